//! `fuseline gallery`: the list of built-in graphs.

use fuseline::gallery;
use serde_json::json;

use crate::arguments::Gallery;
use crate::failure::Outcome;
use crate::screen::{self, Column, Table};

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
    let mut table = Table::new([
        Column::right("row"),
        Column::left("name"),
        Column::left("sizes").wrap(14).goes(1),
        Column::left("").wrap(22),
    ]);
    for entry in gallery::all() {
        let sizes: Vec<String> = entry.sizes.iter().map(|(name, size)| format!("{name}={size}")).collect();
        table.row([entry.row.to_string(), entry.name.to_string(), sizes.join(","), entry.doc.to_string()]);
    }
    screen::print(&table.text(screen::width()))
}
