//! Tables with aligned columns, headings, paragraphs: text for a terminal, whose colours the printer may take away.

use std::fmt::Write as _;

use anstyle::Style;

/// A text in lines of at most `width` columns, all of them indented; a word that is longer has a line of its own.
pub fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let room = width.saturating_sub(indent).max(20);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines.iter().map(|line| format!("{:indent$}{line}\n", "")).collect()
}

/// A heading.
pub fn heading(text: &str) -> String {
    let bold = Style::new().bold();
    format!("{bold}{text}{bold:#}\n")
}

/// On which side of its column a cell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// it starts where the column starts
    Left,
    /// it ends where the column ends
    Right,
}

/// Rows of text under a head, indented by two.
#[derive(Debug)]
pub struct Table {
    head: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns; without any head where all names are empty.
    pub fn new(head: &[(&'static str, Side)]) -> Table {
        Table { head: head.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The lines of the table.
    pub fn text(&self) -> String {
        let mut widths: Vec<usize> = self.head.iter().map(|(name, _)| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        if self.head.iter().any(|(name, _)| !name.is_empty()) {
            let dim = Style::new().dimmed();
            let names: Vec<String> = self.head.iter().map(|(name, _)| (*name).to_string()).collect();
            let line = self.line(&names, &widths);
            writeln!(text, "{dim}{line}{dim:#}").expect("writing to a string succeeds");
        }
        for row in &self.rows {
            text.push_str(&self.line(row, &widths));
            text.push('\n');
        }
        text
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (((_, side), width), cell) in self.head.iter().zip(widths).zip(cells) {
            line.push_str("  ");
            match side {
                Side::Left => write!(line, "{cell:<width$}"),
                Side::Right => write!(line, "{cell:>width$}"),
            }
            .expect("writing to a string succeeds");
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_become_lines() {
        assert_eq!(wrapped("one two three four", 2, 22), "  one two three four\n");
        assert_eq!(wrapped("one two three four five six", 4, 24), "    one two three four\n    five six\n");
        assert_eq!(wrapped("a-word-that-is-longer-than-a-line b", 0, 10), "a-word-that-is-longer-than-a-line\nb\n");
        assert_eq!(wrapped("", 2, 80), "");
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&[("", Side::Left), ("", Side::Right)]);
        table.row(vec!["x".into(), "1".into()]);
        table.row(vec!["größe".into(), "23".into()]);
        assert_eq!(table.text(), "  x       1\n  größe  23\n");
    }
}
