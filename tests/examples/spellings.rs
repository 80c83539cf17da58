//! Prints what becomes of the corpus of spellings: each class with the distinct forms that its rows take.
//!
//! `cargo run -p fuseline-tests --example spellings -- FORM [TEXT]` with the form `passes` (the graph after passes), `rewrites`
//! (after rewrites too) or the name of a device (the kernels planned for it); a text limits it to the families and
//! classes that contain it.

use fuseline::error::Result;
use fuseline::passes::{Context, Numerics, run_passes};
use fuseline_tests::spellings::{Spelling, classes};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let form = arguments.next().unwrap_or_else(|| "passes".into());
    let wanted = arguments.next().unwrap_or_default();
    for class in classes() {
        let title = format!("{} / {}", class[0].family, class[0].class);
        if !title.contains(&wanted) {
            continue;
        }
        let mut forms: Vec<(String, Vec<&str>)> = Vec::new();
        for row in &class {
            let text = text(row, &form).unwrap_or_else(|error| format!("error: {error}\n"));
            match forms.iter_mut().find(|(form, _)| *form == text) {
                Some((_, rows)) => rows.push(row.name),
                None => forms.push((text, vec![row.name])),
            }
        }
        println!("== {title}: {} rows, {} forms", class.len(), forms.len());
        for (form, rows) in &forms {
            println!("-- {}\n{form}", rows.join(" | "));
        }
    }
    Ok(())
}

fn text(row: &Spelling, form: &str) -> Result<String> {
    Ok(match form {
        "passes" => run_passes(row.graph()?, &Context::default(), &mut |_| {})?.to_string(),
        "rewrites" => row.plain(Numerics::Default)?.to_string(),
        device => row.planned(device, Numerics::Default)?.kernels(),
    })
}
