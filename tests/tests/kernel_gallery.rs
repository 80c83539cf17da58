//! `docs/kernel-gallery` says what is emitted and what was measured. `BLESS=1` writes the pages.

use std::collections::BTreeSet;
use std::path::Path;

use fuseline_tests::kernel_gallery::pages;

#[test]
fn the_pages_are_what_is_emitted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = root.join("docs/kernel-gallery");
    let pages = pages(&root).unwrap_or_else(|e| panic!("{e}"));
    let bless = std::env::var_os("BLESS").is_some();
    for (name, text) in &pages {
        let path = folder.join(name);
        if bless {
            std::fs::write(&path, text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        let differs = found.lines().zip(text.lines()).position(|(a, b)| a != b);
        assert!(
            found == *text,
            "{name} is not up to date from line {:?} on (BLESS=1 writes it)",
            differs.map(|k| k + 1)
        );
    }
    let wanted: BTreeSet<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    let found = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let found: BTreeSet<String> = found.collect();
    assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), wanted);
}
