//! Pictures as SVG.

use std::fmt::Write as _;

use super::scene::{Anchor, Item, Paint, Scene, Weight};

/// Colours of a picture that stands by itself; a page that holds one has its own.
const STYLE: &str = include_str!("plot.css");

/// A file.
pub fn file(scene: &Scene) -> String {
    let element = element(scene);
    let (head, body) = element.split_once('>').expect("an element has a head");
    format!(
        "{head} xmlns=\"http://www.w3.org/2000/svg\">\n<style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>{body}\n"
    )
}

/// An element to put into a page, drawn by classes.
pub fn element(scene: &Scene) -> String {
    let title = escaped(&scene.title);
    let (width, height) = (scene.width, scene.height);
    let mut text = format!(
        "<svg class=\"roofline\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n"
    );
    for item in &scene.items {
        match item {
            Item::Line { from, to, paint } => {
                let class = class(*paint);
                writeln!(
                    text,
                    "<line {class} x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
                    from.0, from.1, to.0, to.1
                )
            }
            Item::Dot { at, radius, paint, title } => {
                let (class, title) = (class(*paint), escaped(title));
                writeln!(
                    text,
                    "<circle {class} cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius:.1}\"><title>{title}</title></circle>",
                    at.0, at.1
                )
            }
            Item::Text { at, text: words, anchor, weight, degrees } => {
                let turned = match *degrees {
                    0.0 => String::new(),
                    degrees => format!(" transform=\"rotate({degrees:.1} {:.1} {:.1})\"", at.0, at.1),
                };
                let (anchor, weight) = (anchor_name(*anchor), weight_name(*weight));
                let words = escaped(words);
                writeln!(
                    text,
                    "<text class=\"{weight}\" text-anchor=\"{anchor}\" x=\"{:.1}\" y=\"{:.1}\"{turned}>{words}</text>",
                    at.0, at.1
                )
            }
        }
        .expect("writing to a string succeeds");
    }
    text.push_str("</svg>");
    text
}

fn class(paint: Paint) -> String {
    match paint {
        Paint::Grid => "class=\"grid\"".into(),
        Paint::Axis => "class=\"axis\"".into(),
        Paint::Memory(n) => format!("class=\"roof memory m{n}\""),
        Paint::Peak(n) => format!("class=\"roof peak p{n}\""),
        Paint::Fused(kernel, class) => format!("class=\"dot fused c{}\" data-kernel=\"{kernel}\"", class % 12),
        Paint::Unfused(kernel) => format!("class=\"dot unfused\" data-unfused=\"{kernel}\""),
    }
}

fn anchor_name(anchor: Anchor) -> &'static str {
    match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    }
}

fn weight_name(weight: Weight) -> &'static str {
    match weight {
        Weight::Title => "title",
        Weight::Label => "label",
        Weight::Small => "small",
    }
}

/// Text that may stand in markup.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // No document may have these.
            c if c.is_control() && !matches!(c, '\n' | '\t') => safe.push(' '),
            '\u{fffe}' | '\u{ffff}' => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_text() {
        let dot =
            Item::Dot { at: (1.0, 2.0), radius: 3.0, paint: Paint::Fused(7, 1), title: "</svg><script>\u{0}".into() };
        let scene = Scene { width: 10.0, height: 10.0, title: "a \"b\" <c>".into(), items: vec![dot] };
        let file = file(&scene);
        assert!(!file.contains("<script") && !file.contains("<c>") && !file.contains('\u{0}'), "{file}");
        assert!(file.contains("data-kernel=\"7\"") && file.contains("&lt;/svg&gt;"), "{file}");
        assert_eq!(file.matches("</svg>").count(), 1);
    }
}
