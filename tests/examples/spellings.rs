//! Prints what the passes make of the corpus of spellings: each class with the distinct graphs that its rows become.
//!
//! `cargo run -p fuseline-tests --example spellings [TEXT]` limits it to the families and classes that contain a text.

use fuseline::error::Result;
use fuseline::passes::{Context, run_passes};
use fuseline_tests::spellings::classes;

fn main() -> Result<()> {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for class in classes() {
        let title = format!("{} / {}", class[0].family, class[0].class);
        if !title.contains(&wanted) {
            continue;
        }
        let mut forms: Vec<(String, Vec<&str>)> = Vec::new();
        for row in &class {
            let graph = run_passes(row.graph()?, &Context::default(), &mut |_| {})?;
            let text = graph.to_string();
            match forms.iter_mut().find(|(form, _)| *form == text) {
                Some((_, rows)) => rows.push(row.name),
                None => forms.push((text, vec![row.name])),
            }
        }
        println!("== {title}: {} rows, {} graphs", class.len(), forms.len());
        for (form, rows) in &forms {
            println!("-- {}\n{form}", rows.join(" | "));
        }
    }
    Ok(())
}
