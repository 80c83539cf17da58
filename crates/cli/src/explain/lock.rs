//! Plans written down.

use fuseline::fuse::Lock;

use super::{Request, Story};

/// The plan as text, with the names of the user's nodes as notes.
pub fn noted_lock(request: &Request<'_>, story: &Story) -> Lock {
    let mut lock = story.planned.lock(&request.options);
    for (id, note) in &mut lock.rewrites {
        if let Some(row) = story.explanation.decisions.iter().find(|row| row.id == *id) {
            *note = format!("{}: {} → {}", row.rule, row.producer, row.consumer);
        }
    }
    let parts = [
        ("every run", story.planned.run.graph, &story.explanation.run),
        ("prepared once", story.planned.prepare.graph, &story.explanation.prepare),
    ];
    for (note, graph, part) in parts {
        let Some(locked) = lock.graphs.iter_mut().find(|locked| locked.graph == graph) else { continue };
        locked.note = note.to_string();
        let own = part.kernels.iter().filter(|kernel| kernel.inside.is_none());
        for (kernel, row) in locked.kernels.iter_mut().zip(own) {
            let last = row.operators.last().map_or(String::new(), |o| format!(": {}", o.name));
            kernel.note = format!("{}{last}", row.pattern);
        }
    }
    lock
}
