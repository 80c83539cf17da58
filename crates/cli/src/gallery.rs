//! `fuseline gallery`: the list of built-in graphs.

use fuseline::gallery;
use serde_json::json;

use crate::arguments::Gallery;
use crate::failure::Outcome;
use crate::screen::{self, Side, Table};

/// Lists the gallery.
pub fn list(arguments: &Gallery) -> Outcome {
    if arguments.json {
        let entries = gallery::all().map(|entry| {
            let sizes: serde_json::Map<_, _> =
                entry.sizes.iter().map(|(n, size)| (n.to_string(), json!(size))).collect();
            json!({ "name": entry.name, "row": entry.row, "doc": entry.doc, "sizes": sizes })
        });
        return screen::print_json(&entries.collect());
    }
    let mut table = Table::new(&[("row", Side::Right), ("name", Side::Left), ("sizes", Side::Left), ("", Side::Left)]);
    for entry in gallery::all() {
        let sizes: Vec<String> = entry.sizes.iter().map(|(name, size)| format!("{name}={size}")).collect();
        table.row(vec![entry.row.to_string(), entry.name.into(), sizes.join(","), entry.doc.into()]);
    }
    screen::print(&table.text())
}
