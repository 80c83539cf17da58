//! Functions that differ in nothing but the tensors that they read and write, as one launch of one function.
//!
//! Contractions that share a factor, such as those of queries, keys and values, are often of one shape. As one launch they fill a device that
//! each by itself would leave idle, and their text is compiled once.

use std::collections::BTreeMap;

use fuseline::tensor::Symbol;

use super::Parameter;
use super::code::Code;
use super::element;
use super::function::Function;
use super::index::{Names, index, size_name};

/// Joins neighbours that need nothing of each other and are equal but for the names in them. Those for which `is_free` does not hold stay alone.
pub(super) fn join(functions: Vec<Function>, is_free: &[bool]) -> Vec<Vec<Function>> {
    let mut groups: Vec<Vec<Function>> = Vec::new();
    let mut is_open = false;
    for (function, free) in functions.into_iter().zip(is_free) {
        match groups.last_mut() {
            Some(group) if is_open && *free && fits(group, &function) => group.push(function),
            _ => groups.push(vec![function]),
        }
        is_open = *free;
    }
    groups
}

/// An order in which functions that fit together are neighbours: one moves up behind the last that it fits to, over free ones that need nothing of it
/// and of which it needs nothing.
pub(super) fn order(functions: &[Function], is_free: &[bool]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::with_capacity(functions.len());
    for (k, function) in functions.iter().enumerate() {
        let mut at = order.len();
        let (mut to, mut passes) = (None, is_free[k]);
        while passes && at > 0 && is_free[order[at - 1]] {
            let other = &functions[order[at - 1]];
            if fits(std::slice::from_ref(other), function) {
                (to, passes) = (Some(at), false);
            } else {
                passes = is_apart(other, function) && is_apart(function, other);
                at -= 1;
            }
        }
        order.insert(to.unwrap_or(order.len()), k);
    }
    order
}

/// Whether a function needs nothing that another one writes.
fn is_apart(writer: &Function, reader: &Function) -> bool {
    let written = writer.parameters.iter().filter(|(_, _, is_written)| *is_written);
    written.into_iter().all(|(parameter, ..)| reader.parameters.iter().all(|(own, ..)| own != parameter))
}

fn fits(group: &[Function], next: &Function) -> bool {
    group.iter().all(|function| is_apart(function, next))
        && group[0].grid == next.grid
        && tensors(&group[0], next).is_some()
}

/// For every tensor of the first function that of the second one which stands in its place; none where they are not equal otherwise.
fn tensors(first: &Function, second: &Function) -> Option<Vec<(Parameter, Parameter)>> {
    let names = renamed(&first.lines, &second.lines)?;
    let mut pairs = Vec::with_capacity(first.parameters.len());
    for (parameter, dtype, is_written) in &first.parameters {
        let name = parameter.name();
        let other = names.get(&name).cloned().unwrap_or_else(|| name.clone());
        let (found, ..) = second.parameters.iter().find(|(own, own_type, own_written)| {
            own.name() == other && own_type == dtype && own_written == is_written
        })?;
        if *parameter == Parameter::Fault {
            return None;
        }
        pairs.push((parameter.clone(), found.clone()));
    }
    (first.parameters.len() == second.parameters.len()).then_some(pairs)
}

/// One function for some that are equal but for the tensors, each of which has a part of the blocks.
pub(super) fn joined(mut functions: Vec<Function>) -> Function {
    let mut first = functions.remove(0);
    if functions.is_empty() {
        return first;
    }
    let others: Vec<Vec<(Parameter, Parameter)>> =
        functions.iter().filter_map(|function| tensors(&first, function)).collect();
    debug_assert_eq!(others.len(), functions.len());
    let blocks = index(&first.grid.blocks, &Sizes);
    let mut lines = vec![format!("const int turn_of = blockIdx.x / ({blocks}), block_of = blockIdx.x % ({blocks});")];
    let mut chosen: BTreeMap<String, String> = BTreeMap::from([("blockIdx.x".to_owned(), "block_of".to_owned())]);
    for (at, (parameter, dtype, is_written)) in first.parameters.iter().enumerate() {
        let differs = others.iter().any(|other| other[at].1 != *parameter);
        let (true, Some(dtype)) = (differs, dtype) else { continue };
        let name = parameter.name();
        let last = others.len();
        let choices = (0..last).map(|k| {
            let own = if k == 0 { name.clone() } else { others[k - 1][at].1.name() };
            format!("turn_of == {k} ? {own} : ")
        });
        let choices: String = choices.collect();
        let constant = if *is_written { "" } else { "const " };
        let ty = element::stored(*dtype).unwrap_or("void");
        let own = format!("own_{name}");
        lines.push(format!("{constant}{ty}* const {own} = {choices}{};", others[last - 1][at].1.name()));
        chosen.insert(name, own);
    }
    lines.extend(first.lines.iter().map(|line| with_names(line, &chosen)));
    for function in functions {
        for parameter in function.parameters {
            if !first.parameters.contains(&parameter) {
                first.parameters.push(parameter);
            }
        }
        first.sites = function.sites;
    }
    first.parameters.sort_by(|a, b| a.0.cmp(&b.0));
    first.grid.blocks = first.grid.blocks * (others.len() as i64 + 1);
    first.what = format!("{}; {} times, for other tensors each", first.what, others.len() + 1);
    first.lines = lines;
    first
}

/// Names of sizes where there are no coordinates.
struct Sizes;

impl Names for Sizes {
    fn size(&self, symbol: &Symbol) -> Code {
        Code::atom(size_name(symbol))
    }

    fn coordinate(&self, _: usize) -> Code {
        Code::atom("0")
    }

    fn read(&self, _: usize) -> Code {
        Code::atom("0")
    }
}

/// The words of a line and what stands between them; `blockIdx.x` is one word.
fn words(line: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut words, mut rest) = (Vec::new(), line);
    while let Some(c) = rest.chars().next() {
        let length = if rest.starts_with("blockIdx.x") {
            "blockIdx.x".len()
        } else if is_part(c) {
            rest.find(|c| !is_part(c)).unwrap_or(rest.len())
        } else {
            rest.find(is_part).unwrap_or(rest.len())
        };
        let (word, after) = rest.split_at(length);
        words.push(word);
        rest = after;
    }
    words
}

/// Whether a word is a name that a printer has numbered: of a coordinate, a value, a tensor.
fn is_numbered(word: &str) -> bool {
    let letters = word.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_short = letters.len() == 1 && letters != "f" && letters.chars().all(|c| c.is_ascii_lowercase());
    letters.len() < word.len() && (is_short || matches!(letters, "sums" | "total"))
}

/// The names of one text by those of another, if that is all in which they differ.
fn renamed(first: &[String], second: &[String]) -> Option<BTreeMap<String, String>> {
    let (mut there, mut back): (BTreeMap<String, String>, BTreeMap<String, String>) = Default::default();
    if first.len() != second.len() {
        return None;
    }
    for (a, b) in first.iter().zip(second) {
        let (a, b) = (in_order(a), in_order(b));
        let (a, b) = (words(&a), words(&b));
        if a.len() != b.len() {
            return None;
        }
        for (a, b) in a.into_iter().zip(b) {
            if is_numbered(a) && is_numbered(b) {
                let is_known = |names: &mut BTreeMap<String, String>, a: &str, b: &str| {
                    names.entry(a.to_owned()).or_insert_with(|| b.to_owned()) == b
                };
                if !is_known(&mut there, a, b) || !is_known(&mut back, b, a) {
                    return None;
                }
            } else if a != b {
                return None;
            }
        }
    }
    Some(there)
}

/// The line with the terms of sums between parentheses in an order that does not depend on the names in them.
fn in_order(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(open) = rest.find('(') {
        let (before, after) = rest.split_at(open + 1);
        text.push_str(before);
        rest = after;
        let end = rest.find(['(', ')']).unwrap_or(rest.len());
        let is_sum = rest[end..].starts_with(')')
            && rest[..end].chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ' ' | '+' | '*'));
        if is_sum {
            let mut terms: Vec<&str> = rest[..end].split(" + ").collect();
            let unnamed = |term: &str| words(term).into_iter().map(|w| if is_numbered(w) { "#" } else { w }).collect();
            terms.sort_by_cached_key(|term| -> String { unnamed(term) });
            text.push_str(&terms.join(" + "));
            rest = &rest[end..];
        }
    }
    text.push_str(rest);
    text
}

fn with_names(line: &str, names: &BTreeMap<String, String>) -> String {
    words(line).into_iter().map(|word| names.get(word).map_or(word, String::as_str)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[&str]) -> Vec<String> {
        text.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn texts_that_differ_in_names_are_equal() {
        let a = lines(&["float v5 = widen(x1[i2 * 768]);", "y0[i2] = v5;"]);
        let b = lines(&["float v9 = widen(x3[i4 * 768]);", "y1[i4] = v9;"]);
        let names = renamed(&a, &b).expect("they differ in names");
        assert_eq!(names["x1"], "x3");
        assert_eq!(names["y0"], "y1");
    }

    #[test]
    fn terms_of_sums_may_stand_in_another_order() {
        assert!(renamed(&lines(&["x1[(i3 * 768 + i4)]"]), &lines(&["x2[(i2 + i3 * 768)]"])).is_some());
        assert!(renamed(&lines(&["f(i3, i4 + 1)"]), &lines(&["f(i4 + 1, i3)"])).is_none());
        assert_eq!(
            in_order("to + swizzled<64>(line, piece), x1 + (i3 * 768 + i4), true);").matches("(i4 + i3 * 768)").count(),
            1
        );
    }

    #[test]
    fn texts_that_differ_otherwise_are_not() {
        let a = lines(&["y0[i2] = x0[i2] + x1[i2];"]);
        assert!(renamed(&a, &lines(&["y0[i2] = x0[i2] + x0[i2];"])).is_none());
        assert!(renamed(&a, &lines(&["y0[i2] = x0[i2] - x1[i2];"])).is_none());
        assert!(renamed(&lines(&["bf16 a;"]), &lines(&["f16 a;"])).is_none());
        assert!(renamed(&lines(&["v0 * 768"]), &lines(&["v0 * 769"])).is_none());
    }

    #[test]
    fn names_are_replaced_as_words() {
        let names = BTreeMap::from([("x1".to_owned(), "own_x1".to_owned()), ("blockIdx.x".to_owned(), "b".to_owned())]);
        assert_eq!(with_names("x1 + x11 + blockIdx.x / 4", &names), "own_x1 + x11 + b / 4");
    }
}
