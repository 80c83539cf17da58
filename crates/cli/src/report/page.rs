//! The page: markup, style and script, with the data in it.
//!
//! Data goes into one JSON element and into the text of a few others; names come from the model and may be anything.

use serde_json::Value;

use crate::roofline::svg::escaped;

const MARKUP: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPTS: [&str; 6] = [
    include_str!("page/format.js"),
    include_str!("page/graph.js"),
    include_str!("page/paper.js"),
    include_str!("page/charts.js"),
    include_str!("page/tables.js"),
    include_str!("page/page.js"),
];

/// The whole page. `roofline` is an SVG element.
pub fn page(data: &Value, roofline: &str) -> String {
    let title = data["model"].as_str().unwrap_or("a model");
    let json = serde_json::to_string(data).expect("a JSON value can be written");
    let script = SCRIPTS.concat();
    let parts = [
        ("title", escaped(title)),
        ("style", STYLE.to_string()),
        ("roofline", roofline.to_string()),
        ("data", embedded(&json)),
        ("script", script),
    ];
    let mut page = String::with_capacity(MARKUP.len() + parts.iter().map(|(_, part)| part.len()).sum::<usize>());
    // One walk over the markup alone: what is put in is never looked at again.
    let mut rest = MARKUP;
    while let Some((before, behind)) = rest.split_once("{{") {
        let (name, behind) = behind.split_once("}}").expect("a place of the page has an end");
        let (_, part) = parts.iter().find(|(known, _)| *known == name).expect("a place of the page has a part");
        page.push_str(before);
        page.push_str(part);
        rest = behind;
    }
    page.push_str(rest);
    page
}

/// JSON that may stand inside of a script element: nothing in it can end the element or begin another one.
fn embedded(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_cannot_leave_their_place() {
        let evil = "</script><script>alert(1)</script><!-- {{style}} & \u{2028}";
        let page = page(&json!({ "model": evil, "kernels": [evil] }), "<svg></svg>");
        assert!(!page.contains("alert(1)</script>"));
        assert_eq!(page.matches("</script").count(), MARKUP.matches("</script").count(), "no element is ended early");
        let (_, behind) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
        let (json, _) = behind.split_once("</script>").unwrap();
        let read: Value = serde_json::from_str(json).unwrap();
        assert_eq!(read["model"], evil);
    }

    #[test]
    fn scripts_hold_nothing_that_ends_them() {
        for part in SCRIPTS.iter().chain([&STYLE]) {
            assert!(!part.contains("</") && !part.contains("<!--"), "a part of the page would be cut off");
        }
        assert!(!SCRIPTS.concat().contains("innerHTML"), "data is shown as text only");
    }
}
