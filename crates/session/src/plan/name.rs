//! Names of the user's nodes, made short.

use fuseline::explain::{Explanation, KernelRow};

use crate::table::is_command;

/// Shortens names: what all of them begin with is left out, and what does not fit is cut at a border between parts.
#[derive(Clone, Copy, Debug)]
pub struct Shortener {
    prefix: usize,
}

impl Shortener {
    /// For the names of a plan.
    pub fn of(explanation: &Explanation) -> Shortener {
        let kernels = explanation.run.kernels.iter().chain(&explanation.prepare.kernels);
        let names = kernels.flat_map(|k| k.operators.iter().map(|o| o.name.as_ref()));
        Shortener { prefix: common_prefix(names) }
    }

    /// A name in at most `width` columns.
    pub fn short(&self, name: &str, width: usize) -> String {
        cut_path(&one_line(name.get(self.prefix..).unwrap_or(name)), width)
    }

    /// The operators of a kernel in at most `width` columns: all of them, `layer.0/{query/Add, key/Add}`, or the last.
    pub fn list(&self, kernel: &KernelRow, width: usize) -> String {
        let names = kernel.operators.iter().map(|o| one_line(o.name.get(self.prefix..).unwrap_or(&o.name)));
        let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let [first, .., last] = names.as_slice() else {
            let nodes: Vec<String> = kernel.members.iter().map(|m| format!("%{m}")).collect();
            return names.first().map_or_else(|| cut_back(&nodes.join(" "), width), |only| cut_path(only, width));
        };
        let shared = common_prefix(names.iter().copied());
        let tails: Vec<&str> = names.iter().map(|n| &n[shared..]).collect();
        let all = match shared {
            0 => tails.join(", "),
            _ => format!("{}{{{}}}", &first[..shared], tails.join(", ")),
        };
        if all.chars().count() <= width {
            return all;
        }
        let more = format!(" (+{})", names.len() - 1);
        format!("{}{more}", cut_path(last, width.saturating_sub(more.len())))
    }
}

/// A name on one line, whatever its writer put into it.
fn one_line(name: &str) -> String {
    name.chars().map(|c| if is_command(c) { ' ' } else { c }).collect()
}

/// The length of what all names begin with, up to a separator; 0 for a single name.
fn common_prefix<'n>(mut names: impl Iterator<Item = &'n str>) -> usize {
    let Some(first) = names.next() else { return 0 };
    let (mut length, mut count) = (first.len(), 1);
    for name in names {
        count += 1;
        length = first.as_bytes()[..length].iter().zip(name.as_bytes()).take_while(|(a, b)| a == b).count();
    }
    if count == 1 {
        return 0;
    }
    first.as_bytes()[..length].iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1)
}

/// A path in at most `width` columns. The last part stays, then parts with a number, which tell layers apart, then parts
/// from the right; what goes leaves an ellipsis.
pub fn cut_path(path: &str, width: usize) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let mut kept = vec![false; parts.len()];
    let numbered = (0..parts.len()).rev().filter(|k| parts[*k].contains(|c: char| c.is_ascii_digit()));
    for k in std::iter::once(parts.len() - 1).chain(numbered).chain((0..parts.len()).rev()) {
        kept[k] = true;
        if with_gaps(&parts, &kept).chars().count() > width {
            kept[k] = k == parts.len() - 1;
        }
    }
    cut_front(&with_gaps(&parts, &kept), width)
}

/// The kept parts of a path, an ellipsis for each run of others.
fn with_gaps(parts: &[&str], kept: &[bool]) -> String {
    let mut shown: Vec<&str> = Vec::new();
    for (part, kept) in parts.iter().zip(kept) {
        match kept {
            true => shown.push(part),
            false if shown.last() == Some(&"…") => {}
            false => shown.push("…"),
        }
    }
    shown.join("/")
}

/// The end of a text.
pub fn cut_front(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_string();
    }
    let tail: String = text.chars().skip(count - width.saturating_sub(1)).collect();
    format!("…{tail}")
}

/// The beginning of a text.
pub fn cut_back(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_string();
    }
    let head: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", head.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_between_parts() {
        let path = "encoder/layer.0/attention/output/Add";
        assert_eq!(cut_path(path, 40), path);
        assert_eq!(cut_path(path, 30), "…/layer.0/attention/output/Add");
        assert_eq!(cut_path(path, 22), "…/layer.0/…/output/Add");
        assert_eq!(cut_path(path, 15), "…/layer.0/…/Add");
        assert_eq!(cut_path(path, 10), "…/Add");
        assert_eq!(cut_path("abcdefgh", 4), "…fgh");
        assert_eq!(cut_back("one two three", 8), "one two…");
        assert_eq!(common_prefix(["/m/a/x", "/m/a/y", "/m/b"].into_iter()), 3);
        assert_eq!(common_prefix(["/m/a/x"].into_iter()), 0);
        assert_eq!(common_prefix(["m/é", "m/è", "m/ê"].into_iter()), 2);
        assert_eq!(one_line("two\nlines"), "two lines");
    }
}
