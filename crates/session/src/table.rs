//! Tables with aligned columns that fit the terminal, headings, paragraphs: text whose colours the printer may take away.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use anstyle::Style;

use crate::plan::name::cut_back;

/// Whether a character does something to a terminal instead of being shown: moves the cursor, begins a command, turns the direction of writing.
pub fn is_command(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text of a stranger on one line: what would do something to a terminal is spelt out.
pub fn spelt_out(text: &str) -> Cow<'_, str> {
    if !text.contains(is_command) {
        return Cow::Borrowed(text);
    }
    let spelt = text.chars().map(|c| if is_command(c) { c.escape_unicode().to_string() } else { c.to_string() });
    Cow::Owned(spelt.collect())
}

/// A text in lines of at most `width` columns, all of them indented; a word that is longer has a line of its own, and is broken behind commas, and elsewhere only
/// where a line has little room at all. A number and its unit stay together.
pub fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let room = width.saturating_sub(indent).max(10);
    let is_broken = width < NARROWEST && !text.is_empty();
    let lines = if is_broken { broken_lines(text, room) } else { lines(text, room) };
    lines.iter().map(|line| format!("{:indent$}{line}\n", "")).collect()
}

/// Below this width even a word of a sentence may be too long.
const NARROWEST: usize = 30;

/// The words of a text in lines of at most `room` columns, but for words that are longer.
fn lines(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words(text).into_iter().flat_map(|word| listed(word, room)) {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(&word) <= room => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// A list without blanks that is longer than a line, in pieces that are not.
fn listed(word: String, room: usize) -> Vec<String> {
    if columns(&word) <= room {
        return vec![word];
    }
    let mut pieces: Vec<String> = Vec::new();
    for part in word.split_inclusive(',') {
        match pieces.last_mut() {
            Some(piece) if columns(piece) + columns(part) <= room => piece.push_str(part),
            _ => pieces.push(part.to_owned()),
        }
    }
    pieces
}

/// The same, where words that are longer are broken.
fn broken_lines(text: &str, room: usize) -> Vec<String> {
    let pieces = words(text).into_iter().flat_map(|word| broken(word, room.max(1)));
    let pieces: Vec<String> = pieces.collect();
    // Two pieces of a word never fit into one line, so that no blank gets inside.
    if pieces.is_empty() { vec![String::new()] } else { lines(&pieces.join(" "), room) }
}

/// A word in pieces of at most `room` columns, broken behind separators where there are any.
fn broken(word: String, room: usize) -> Vec<String> {
    let (mut pieces, mut rest) = (Vec::new(), word.as_str());
    while let Some((end, _)) = rest.char_indices().nth(room) {
        let separator = rest[..end].rfind([',', '/', '·', ' ', '_', '-', '(']);
        let at = separator.map_or(end, |at| at + rest[at..].chars().next().map_or(1, char::len_utf8));
        pieces.push(rest[..at].trim_end().to_string());
        rest = rest[at..].trim_start();
    }
    pieces.push(rest.to_string());
    pieces
}

/// Words; a number and its unit are one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match words.last_mut() {
            Some(number) if is_unit_of(number, word) => {
                number.push(' ');
                number.push_str(word);
            }
            _ => words.push(word.to_string()),
        }
    }
    words
}

/// Whether a word is the unit of the number before it: `MB`, `%`, `M·rows`.
fn is_unit_of(number: &str, word: &str) -> bool {
    let unit = word.trim_end_matches([',', ';', '.', ':', ')']).split('·').next().unwrap_or(word);
    number.ends_with(|c: char| c.is_ascii_digit()) && columns(unit) <= 3 && !unit.starts_with(|c: char| c.is_numeric())
}

/// A text whose lines are folded between words where they are longer than so many columns, as deep as they begin; words that are longer stay
/// whole. Styles take no columns.
pub fn folded(text: &str, width: usize) -> String {
    let mut folded = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        if shown(body) <= width {
            folded.push_str(line);
            continue;
        }
        let words = body.trim_start_matches(' ');
        // Half of a line at least has words.
        let indent = " ".repeat((body.len() - words.len()).min(width / 2));
        let mut at = indent.len();
        folded.push_str(&indent);
        // Lists such as `rows=1,columns=2` may be folded behind every comma.
        let words = words.split(' ').filter(|word| !word.is_empty());
        let parts = words.flat_map(|word| word.split_inclusive(',').enumerate().map(|(k, part)| (k == 0, part)));
        for (k, (is_word, part)) in parts.enumerate() {
            let gap = usize::from(is_word && k > 0);
            if k > 0 && at + gap + shown(part) > width {
                folded.push('\n');
                folded.push_str(&indent);
                at = indent.len();
            } else {
                folded.push_str(&" ".repeat(gap));
                at += gap;
            }
            folded.push_str(part);
            at += shown(part);
        }
        folded.push_str(end);
    }
    folded
}

/// Columns that a text takes on a terminal, where styles take none.
fn shown(text: &str) -> usize {
    let styles = text.split('\x1b').skip(1).filter_map(|rest| rest.find('m')).map(|end| end + 2);
    columns(text).saturating_sub(styles.sum())
}

/// Columns that a text takes.
fn columns(text: &str) -> usize {
    text.chars().count()
}

/// A heading.
pub fn heading(text: &str) -> String {
    let bold = Style::new().bold();
    format!("{bold}{text}{bold:#}\n")
}

/// A heading in lines of at most `width` columns, whatever names stand in it.
pub fn title(text: &str, width: usize) -> String {
    let text = spelt_out(text);
    let broken = if columns(&text) > width { broken_lines(&text, width.max(10)) } else { vec![text.into_owned()] };
    heading(&broken.join("\n"))
}

/// On which side of its column a cell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// What happens to the cells of a column where lines are too short.
#[derive(Clone, Copy, Debug)]
enum Fit {
    /// nothing
    Whole,
    /// they become shorter, but no shorter than this
    Cut(usize, fn(&str, usize) -> String),
    /// they go on in lines below, in no fewer columns than these
    Wrap(usize),
}

/// A column of a table, and what gives way where the lines are too short for all of them. Numbers stand as they are: columns of names become
/// narrower first, then columns that can be told from others go.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    name: &'static str,
    side: Side,
    fit: Fit,
    goes: Option<u8>,
}

impl Column {
    /// A column whose cells begin where it begins.
    pub const fn left(name: &'static str) -> Column {
        Column { name, side: Side::Left, fit: Fit::Whole, goes: None }
    }

    /// A column whose cells end where it ends.
    pub const fn right(name: &'static str) -> Column {
        Column { name, side: Side::Right, fit: Fit::Whole, goes: None }
    }

    /// The same; where lines are short, cells lose their ends, and keep so many columns at least.
    pub const fn cut(self, least: usize) -> Column {
        self.cut_by(least, cut_back)
    }

    /// The same; where lines are short, cells are cut in a way of their own.
    pub const fn cut_by(mut self, least: usize, by: fn(&str, usize) -> String) -> Column {
        self.fit = Fit::Cut(least, by);
        self
    }

    /// The same; where lines are short, cells take several, of so many columns at least.
    pub const fn wrap(mut self, least: usize) -> Column {
        self.fit = Fit::Wrap(least);
        self
    }

    /// The same; where there is no room it goes, those with low numbers first.
    pub const fn goes(mut self, when: u8) -> Column {
        self.goes = Some(when);
        self
    }

    /// The fewest columns it can do with, given what its cells take.
    fn least(&self, natural: usize) -> usize {
        match self.fit {
            Fit::Whole => natural,
            Fit::Cut(least, _) | Fit::Wrap(least) => natural.min(least.max(columns(self.name))),
        }
    }
}

/// What stands in a row.
pub enum Cell<'a> {
    /// a text
    Text(String),
    /// something that can be said in any number of columns
    Fitted(Box<dyn Fn(usize) -> String + 'a>),
}

impl Cell<'_> {
    /// A cell that says what it says in the columns that there are.
    pub fn fitted<'a>(say: impl Fn(usize) -> String + 'a) -> Cell<'a> {
        Cell::Fitted(Box::new(say))
    }

    fn natural(&self) -> usize {
        match self {
            Cell::Text(text) => columns(text),
            Cell::Fitted(say) => columns(&say(usize::MAX)),
        }
    }

    fn lines(&self, fit: Fit, width: usize) -> Vec<String> {
        match (self, fit) {
            (Cell::Text(text), _) if columns(text) <= width => vec![text.clone()],
            (Cell::Text(text), Fit::Whole) => vec![text.clone()],
            (Cell::Text(text), Fit::Cut(_, by)) => vec![by(text, width)],
            (Cell::Text(text), Fit::Wrap(_)) => broken_lines(text, width),
            (Cell::Fitted(say), _) => vec![say(width)],
        }
    }
}

impl fmt::Debug for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Text(text) => text.fmt(f),
            Cell::Fitted(say) => say(usize::MAX).fmt(f),
        }
    }
}

impl From<String> for Cell<'_> {
    fn from(text: String) -> Self {
        Cell::Text(match spelt_out(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(spelt) => spelt,
        })
    }
}

/// Rows of text under a head, indented by two.
#[derive(Debug)]
pub struct Table<'a> {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell<'a>>>,
}

impl<'a> Table<'a> {
    /// A table with these columns; without any head where all names are empty.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Table<'a> {
        Table { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<Cell<'a>>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The lines of the table, of at most so many columns. Where numbers alone are wider than that, every row becomes a list.
    pub fn text(&self, width: usize) -> String {
        let widths = self.widths(width);
        if widths.iter().flatten().map(|column| GAP + column).sum::<usize>() > width {
            return self.lists(width);
        }
        let mut text = String::new();
        if self.columns.iter().any(|column| !column.name.is_empty()) {
            let dim = Style::new().dimmed();
            let line = self.line(&widths, |k| self.columns[k].name);
            writeln!(text, "{dim}{line}{dim:#}").expect("writing to a string succeeds");
        }
        for row in &self.rows {
            let cells = self.columns.iter().zip(row).zip(&widths);
            let cells = cells.map(|((column, cell), width)| cell.lines(column.fit, width.unwrap_or(0)));
            let cells: Vec<Vec<String>> = cells.collect();
            let shown = cells.iter().zip(&widths).filter(|(_, width)| width.is_some());
            for k in 0..shown.map(|(lines, _)| lines.len()).max().unwrap_or(1) {
                let part = |column: usize| cells.get(column).and_then(|lines| lines.get(k)).map_or("", String::as_str);
                text.push_str(&self.line(&widths, part));
                text.push('\n');
            }
        }
        text
    }

    /// The rows one below the other, each as a list of its cells with the names of their columns; only words that are longer than a line
    /// take more than one.
    fn lists(&self, width: usize) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let mut indent = GAP;
            for (column, cell) in self.columns.iter().zip(row) {
                let room = width.saturating_sub(indent);
                let said = cell.lines(column.fit, room).join(" ");
                if said.is_empty() {
                    continue;
                }
                let named = if column.name.is_empty() { said } else { format!("{} {said}", column.name) };
                for line in broken_lines(&named, room) {
                    writeln!(text, "{:indent$}{line}", "").expect("writing to a string succeeds");
                }
                indent = 2 * GAP;
            }
        }
        text
    }

    /// How wide each column is; none where it has gone.
    fn widths(&self, width: usize) -> Vec<Option<usize>> {
        let mut natural: Vec<usize> = self.columns.iter().enumerate().map(|(k, c)| self.natural(k, c)).collect();
        let all: usize = natural.iter().map(|column| GAP + column).sum();
        if all <= width {
            return natural.into_iter().map(Some).collect();
        }
        // Cells that can be said in any number of columns say little first, and have what the others leave.
        let mut fitted: Vec<usize> = Vec::new();
        for (k, column) in self.columns.iter().enumerate() {
            if let Some(said) = self.said(k, column.least(natural[k])) {
                natural[k] = said.max(columns(column.name));
                fitted.push(k);
            }
        }
        let mut widths = self.shared(&natural, width);
        let over = width.saturating_sub(widths.iter().flatten().map(|column| GAP + column).sum());
        if let Some(last) = fitted.last().and_then(|k| widths[*k].as_mut()) {
            *last += over;
        }
        widths
    }

    /// What fitted cells of a column take if they may take so much.
    fn said(&self, k: usize, width: usize) -> Option<usize> {
        let cells = self.rows.iter().filter_map(|row| match row.get(k) {
            Some(Cell::Fitted(say)) => Some(columns(&say(width))),
            _ => None,
        });
        cells.max()
    }

    /// How wide columns are that would take so much each.
    fn shared(&self, natural: &[usize], width: usize) -> Vec<Option<usize>> {
        let mut order: Vec<(u8, usize)> =
            self.columns.iter().enumerate().filter_map(|(k, column)| Some((column.goes?, k))).collect();
        order.sort_unstable();
        let mut gone = order.into_iter().map(|(_, k)| k);
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let room = |shown: &[usize]| width.saturating_sub(GAP * shown.len());
        let least = |shown: &[usize]| shown.iter().map(|k| self.columns[*k].least(natural[*k])).sum::<usize>();
        while least(&shown) > room(&shown) {
            let Some(next) = gone.next() else { break };
            shown.retain(|k| *k != next);
        }
        // What is wider than others becomes narrower until all fits.
        let wide = shown.iter().map(|k| natural[*k]).max().unwrap_or(0);
        let given = |cap: usize, k: usize| natural[k].min(cap.max(self.columns[k].least(natural[k])));
        let fits = |cap: &usize| shown.iter().map(|k| given(*cap, *k)).sum::<usize>() <= room(&shown);
        let cap = (0..=wide).rev().find(fits).unwrap_or(0);
        // The last columns that the cap leaves over belong to the first that wants them.
        let mut widths: Vec<Option<usize>> = vec![None; natural.len()];
        let mut over = room(&shown).saturating_sub(shown.iter().map(|k| given(cap, *k)).sum());
        for k in shown {
            let more = over.min(natural[k] - given(cap, k));
            over -= more;
            widths[k] = Some(given(cap, k) + more);
        }
        widths
    }

    /// What the widest cell of a column takes.
    fn natural(&self, k: usize, column: &Column) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(k)).map(Cell::natural);
        cells.max().unwrap_or(0).max(columns(column.name))
    }

    fn line<'t>(&self, widths: &[Option<usize>], cell: impl Fn(usize) -> &'t str) -> String {
        let mut line = String::new();
        for (k, column) in self.columns.iter().enumerate() {
            let (Some(width), cell) = (widths[k], cell(k)) else { continue };
            line.push_str(&" ".repeat(GAP));
            match column.side {
                Side::Left => write!(line, "{cell:<width$}"),
                Side::Right => write!(line, "{cell:>width$}"),
            }
            .expect("writing to a string succeeds");
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Blanks before every column.
const GAP: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_become_lines() {
        assert_eq!(wrapped("one two three four", 2, 22), "  one two three four\n");
        assert_eq!(wrapped("one two three four five six", 4, 24), "    one two three four\n    five six\n");
        assert_eq!(wrapped("a-word-that-is-longer-than-a-line b", 0, 30), "a-word-that-is-longer-than-a-line\nb\n");
        assert_eq!(wrapped("a-word-that-is-longer b", 0, 20), "a-word-that-is-\nlonger b\n", "there is no room");
        assert_eq!((wrapped("", 2, 80), wrapped("", 2, 20)), (String::new(), String::new()));
        assert_eq!(wrapped("it takes a time of 12.5 ms.", 0, 23), "it takes a time of\n12.5 ms.\n", "units stay");
    }

    #[test]
    fn titles_are_folded_whatever_names_they_have() {
        assert_eq!(title("short on cpu", 20), heading("short on cpu"));
        let path = "a/very/long/path/of/a/model/that/somebody/has/called/net.onnx on 2 threads";
        for width in [20, 40] {
            let text = title(path, width);
            let plain = text.replace(heading("").trim_end_matches('\n'), "");
            assert!(text.lines().count() > 1 && text.ends_with('\n'), "{text}");
            let escapes = |line: &str| line.chars().filter(|c| *c == '\u{1b}').count() * 5;
            assert!(plain.lines().all(|line| columns(line) <= width + escapes(line)), "{plain}");
        }
    }

    #[test]
    fn lists_without_blanks_are_wrapped_behind_commas() {
        let text = "sizes assumed: p2o.DynamicDimension.0=1,p2o.DynamicDimension.1=64 (choose them)";
        let lines = "sizes assumed:\np2o.DynamicDimension.0=1,\np2o.DynamicDimension.1=64 (choose\nthem)\n";
        assert_eq!(wrapped(text, 0, 34), lines);
        assert_eq!(wrapped("a/path/that/is/longer/than/thirty_two/columns", 0, 32).lines().count(), 1);
    }

    #[test]
    fn long_lines_are_folded_as_deep_as_they_begin() {
        assert_eq!(folded("short\n  a line of words\n", 12), "short\n  a line of\n  words\n");
        assert_eq!(folded("  a/path/that/is/long  5 kB", 10), "  a/path/that/is/long\n  5 kB");
        assert_eq!(folded("sizes rows=1,columns=2", 13), "sizes rows=1,\ncolumns=2");
        assert_eq!(folded("          deep words", 12), "      deep\n      words");
        let bold = heading("bold words");
        assert_eq!((folded(&bold, 10), folded(&bold, 9).lines().count()), (bold.clone(), 2));
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new([Column::left(""), Column::right("")]);
        table.row(["x", "1"].map(String::from));
        table.row(["größe", "23"].map(String::from));
        assert_eq!(table.text(80), "  x       1\n  größe  23\n");
    }

    #[test]
    fn short_lines_cut_names_then_drop_columns_and_keep_numbers() {
        let columns = [
            Column::left("").cut(6),
            Column::right("").goes(2),
            Column::right("").goes(1),
            Column::right(""),
            Column::left("").wrap(8),
        ];
        let mut table = Table::new(columns);
        table.row(["a long name", "1234", "5678", "90.5", "some words to read"].map(String::from));
        assert_eq!(table.text(60), "  a long name  1234  5678  90.5  some words to read\n");
        let lines = |width: usize| table.text(width).lines().map(String::from).collect::<Vec<_>>();
        assert_eq!(
            lines(42),
            ["  a long na…  1234  5678  90.5  some words", "                                to read"]
        );
        assert_eq!(lines(37)[0], "  a long…  1234  5678  90.5  some", "names and words give way to their least");
        assert_eq!(lines(34)[0], "  a long n…  1234  90.5  some", "then a column goes, and they have more");
        assert_eq!(lines(25)[0], "  a long…  90.5  some");
        for width in 24..80 {
            let text = table.text(width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            assert!(text.contains("90.5"), "{text}");
        }
    }

    #[test]
    fn rows_become_lists_where_nothing_else_fits() {
        let mut table = Table::new([Column::left("kernel").cut(6), Column::right("µs each"), Column::right("GB/s")]);
        table.row(["LayerNorm + GELU", "1234.5", "56.7"].map(String::from));
        table.row(["", "1", "2"].map(String::from));
        assert!(
            table.text(25).contains("\n  LayerNo…   1234.5  56.7\n                  1     2\n"),
            "{}",
            table.text(25)
        );
        assert_eq!(
            table.text(22),
            "  kernel LayerNorm +\n  GELU\n    µs each 1234.5\n    GB/s 56.7\n  µs each 1\n    GB/s 2\n"
        );
        for width in 16..40 {
            let text = table.text(width);
            assert!(text.lines().all(|line| shown(line) <= width), "{width}:\n{text}");
            assert!(text.contains("1234.5"), "{text}");
        }
    }

    #[test]
    fn cells_may_know_what_to_say_in_few_columns() {
        let mut table = Table::new([Column::left("").wrap(4), Column::right("")]);
        let say = |room: usize| if room >= 5 { "names".to_string() } else { "(+5)".to_string() };
        table.row([Cell::fitted(say), "7".to_string().into()]);
        assert_eq!(table.text(80), "  names  7\n");
        assert_eq!(table.text(9), "  (+5)  7\n");
    }

    #[test]
    fn words_without_blanks_break_behind_separators() {
        assert_eq!(broken_lines("rows=4096,columns=1024", 12), ["rows=4096,", "columns=1024"]);
        assert_eq!(broken_lines("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(broken_lines("7·rows + 1.50 M·rows·columns", 10), ["7·rows +", "1.50 M·", "rows·", "columns"]);
        assert_eq!(broken_lines("", 3), [""]);
    }
}
