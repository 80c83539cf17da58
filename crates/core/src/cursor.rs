//! Reading text: a position that moves over characters, shared by every text form.
//!
//! Errors say where (line and column), what was expected and what is there instead. Words and numbers end where their
//! characters end; blanks and `#` comments may stand between any two tokens.

use crate::error::{Error, Result};

/// Brackets, regions and expressions inside one another; no printed text comes near it.
const MOST_NESTED: u32 = 200;

/// A place in a text.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'t> {
    text: &'t str,
    at: usize,
    nested: u32,
}

/// Said of what begins a line and does not fit to the one before it.
pub const UNFINISHED: &str = "; is the line before it finished?";

impl<'t> Cursor<'t> {
    /// The beginning of a text.
    pub fn new(text: &'t str) -> Cursor<'t> {
        Cursor { text, at: 0, nested: 0 }
    }

    /// The characters not read yet, from the next token on.
    pub fn rest(&mut self) -> &'t str {
        loop {
            let rest = &self.text[self.at..];
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return trimmed;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// The next character that is no blank.
    pub fn peek(&mut self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Whether these characters come next.
    pub fn sees(&mut self, token: &str) -> bool {
        self.rest().starts_with(token)
    }

    /// Reads these characters if they come next.
    pub fn eat(&mut self, token: &str) -> bool {
        let found = self.sees(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// Reads these characters, which must come next.
    pub fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) { Ok(()) } else { Err(self.expected(&format!("'{token}'"))) }
    }

    /// Reads this whole word if it comes next.
    pub fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == Some(word);
        if found {
            self.at += word.len();
        }
        found
    }

    /// Reads this word, which must come next.
    pub fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.eat_word(word) { Ok(()) } else { Err(self.expected(&format!("'{word}'"))) }
    }

    /// The word (letters, digits and `_`, not beginning with a digit) that comes next.
    pub fn peek_word(&mut self) -> Option<&'t str> {
        let rest = self.rest();
        let starts = rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        starts.then(|| &rest[..rest.find(|c: char| !is_word_char(c)).unwrap_or(rest.len())])
    }

    /// Reads a word; `what` says in an error which one is missing.
    pub fn word(&mut self, what: &str) -> Result<&'t str> {
        let word = self.peek_word().ok_or_else(|| self.expected(what))?;
        self.at += word.len();
        Ok(word)
    }

    /// Reads word characters that may begin with a digit and follow without a blank, such as the `12` of `%12`.
    pub fn label(&mut self, what: &str) -> Result<&'t str> {
        let rest = &self.text[self.at..];
        let label = &rest[..rest.find(|c: char| !is_word_char(c)).unwrap_or(rest.len())];
        if label.is_empty() {
            return Err(self.expected(what));
        }
        self.at += label.len();
        Ok(label)
    }

    /// Reads a number that follows without a blank, such as the `3` of `$3`.
    pub fn suffix<N: TryFrom<u128>>(&mut self, what: &str) -> Result<N> {
        let digits = |c: char| !c.is_ascii_digit();
        let rest = &self.text[self.at..];
        let text = &rest[..rest.find(digits).unwrap_or(rest.len())];
        let number = text.parse::<u128>().ok().and_then(|n| N::try_from(n).ok());
        let number = number.ok_or_else(|| self.expected(what))?;
        self.at += text.len();
        Ok(number)
    }

    /// Reads a number without sign.
    pub fn integer<N: TryFrom<u128>>(&mut self, what: &str) -> Result<N> {
        self.rest();
        self.suffix(what)
    }

    /// Whether these characters follow without a blank; reads them.
    pub fn eat_adjacent(&mut self, token: &str) -> bool {
        let found = self.text[self.at..].starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// Reads the characters of a number: an optional sign, then digits, letters and points (`-1.5e-3`, `0x1f`, `inf`).
    pub fn number(&mut self) -> Result<&'t str> {
        let rest = self.rest();
        let body = rest.strip_prefix('-').unwrap_or(rest);
        let signed_exponent = body.starts_with(|c: char| c.is_ascii_digit()) && !body.starts_with("0x");
        let mut last = ' ';
        let length = body.find(|c: char| {
            let exponent_sign = signed_exponent && matches!(last, 'e' | 'E') && matches!(c, '+' | '-');
            last = c;
            !(is_word_char(c) || c == '.' || exponent_sign)
        });
        let length = length.unwrap_or(body.len());
        if length == 0 {
            return Err(self.expected("a number"));
        }
        let text = &rest[..rest.len() - body.len() + length];
        self.at += text.len();
        Ok(text)
    }

    /// Reads text between two `quote` characters; escapes are those of [`quoted`].
    pub fn string(&mut self, quote: char) -> Result<String> {
        if self.peek() != Some(quote) {
            return Err(self.expected(&format!("text between {quote} and {quote}")));
        }
        let start = *self;
        self.at += quote.len_utf8();
        let mut text = String::new();
        loop {
            let c = self.text[self.at..].chars().next();
            let c = c.ok_or_else(|| start.error("this text does not end"))?;
            self.at += c.len_utf8();
            match c {
                c if c == quote => return Ok(text),
                '\\' => text.push(self.escape()?),
                c => text.push(c),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let start = *self;
        let c = self.text[self.at..].chars().next();
        self.at += c.map_or(0, char::len_utf8);
        match c {
            Some('n') => Ok('\n'),
            Some('t') => Ok('\t'),
            Some('r') => Ok('\r'),
            Some(c @ ('\\' | '"' | '\'')) => Ok(c),
            Some('u') if self.eat_adjacent("{") => {
                let digits = self.label("the number of a character")?;
                let code = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
                let code = code.ok_or_else(|| start.error(format!("no character has the number {digits}")))?;
                if self.eat_adjacent("}") { Ok(code) } else { Err(self.expected("'}'")) }
            }
            _ => Err(start.error("unknown escape (wanted: \\n, \\t, \\r, \\\\, \\\", \\' or \\u{…})")),
        }
    }

    /// Reads a word or a text between `"`.
    pub fn name(&mut self, what: &str) -> Result<String> {
        match self.peek() {
            Some('"') => self.string('"'),
            _ => self.word(what).map(str::to_owned),
        }
    }

    /// Reads items separated by commas until `close`, which is read too.
    pub fn list<T>(&mut self, close: &str, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = Vec::new();
        if self.eat(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.eat(close) {
                return Ok(items);
            }
            if !self.eat(",") {
                return Err(self.expected(&format!("',' or '{close}'")));
            }
        }
    }

    /// Reads `key=`, which must come next.
    pub fn key(&mut self, key: &str) -> Result<()> {
        if self.eat_word(key) && self.eat("=") { Ok(()) } else { Err(self.expected(&format!("'{key}='"))) }
    }

    /// Reads the second part of a name such as `reduce.max`.
    pub fn variant<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        self.expect(".")?;
        let start = *self;
        let name = self.word(what)?;
        find(name).ok_or_else(|| start.error(format!("{name} is not {what}")))
    }

    /// Reads what stands one level deeper.
    pub fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.descend()?;
        let result = read(self)?;
        self.ascend();
        Ok(result)
    }

    /// Goes one level deeper; refused where there are too many.
    pub fn descend(&mut self) -> Result<()> {
        if self.nested == MOST_NESTED {
            let message = format!("more than {MOST_NESTED} levels inside one another");
            return Err(Error::limit(message).at(self.place()));
        }
        self.nested += 1;
        Ok(())
    }

    /// Comes back from one level deeper.
    pub fn ascend(&mut self) {
        self.nested -= 1;
    }

    /// Refuses anything but blanks from here on.
    pub fn end(&mut self) -> Result<()> {
        if self.rest().is_empty() { Ok(()) } else { Err(self.expected("the end of the text")) }
    }

    /// Line and column of the next token, from 1 on.
    pub fn line_and_column(mut self) -> (usize, usize) {
        self.rest();
        let before = &self.text[..self.at];
        let line_start = before.rfind('\n').map_or(0, |k| k + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// The place of the next token, in words.
    pub fn place(self) -> String {
        let (line, column) = self.line_and_column();
        format!("line {line}, column {column}")
    }

    /// An error at this place.
    pub fn error(self, message: impl Into<String>) -> Error {
        Error::invalid(message).at(self.place())
    }

    /// The error that something is missing here.
    pub fn expected(mut self, what: &str) -> Error {
        let rest = self.rest();
        let length = match rest.find(|c: char| !is_word_char(c)).unwrap_or(rest.len()) {
            0 => rest.chars().next().map_or(0, char::len_utf8),
            length => length,
        };
        let found = if length == 0 { "the end of the text".to_owned() } else { format!("'{}'", &rest[..length]) };
        // What closes a parenthesis is mostly forgotten at the end of a line, and missed in the next one.
        let hint = if what.contains("')'") && self.begins_line() { UNFINISHED } else { "" };
        self.error(format!("expected {what}, found {found}{hint}"))
    }

    /// Whether the next token is the first of a line behind the first one.
    pub fn begins_line(mut self) -> bool {
        self.rest();
        let before = &self.text[..self.at];
        before.rfind('\n').is_some_and(|end| before[end..].trim().is_empty())
    }
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether a name can stand as a word, without quotes.
pub fn is_word(name: &str) -> bool {
    Cursor::new(name).peek_word() == Some(name)
}

/// A name as a word where it is one, otherwise between `"`.
pub fn name_text(name: &str) -> String {
    if is_word(name) { name.to_owned() } else { quoted(name, '"') }
}

/// Text between two `quote` characters; quotes, backslashes and control characters are escaped.
pub fn quoted(text: &str, quote: char) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_control() => out.extend(format!("\\u{{{:x}}}", u32::from(c)).chars()),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_quotes() {
        for name in ["x", "", "a b", "\"'\\", "line\nbreak\u{7}", "ü", "3x", "é\t"] {
            for quote in ['"', '\''] {
                assert_eq!(Cursor::new(&quoted(name, quote)).string(quote).unwrap(), name);
            }
            assert_eq!(Cursor::new(&name_text(name)).name("a name").unwrap(), name);
        }
        assert_eq!((name_text("x_1"), name_text("x.1")), ("x_1".to_owned(), "\"x.1\"".to_owned()));
    }

    #[test]
    fn errors_say_where_and_what() {
        let mut cursor = Cursor::new("one # a comment\n  two, ü!");
        assert!(cursor.eat_word("one") && !cursor.eat_word("tw") && cursor.eat_word("two") && cursor.eat(","));
        let error = cursor.expect("(").unwrap_err().to_string();
        assert_eq!(error, "invalid input: line 2, column 8: expected '(', found 'ü'");
        assert_eq!(Cursor::new(" ").expect("x").unwrap_err().message(), "expected 'x', found the end of the text");
        assert_eq!(
            Cursor::new(" \"abc").string('"').unwrap_err().to_string(),
            "invalid input: line 1, column 2: this text does not end"
        );
        assert!(Cursor::new("\"\\q\"").string('"').is_err() && Cursor::new("\"\\u{d800}\"").string('"').is_err());
    }

    #[test]
    fn numbers_end_where_they_should() {
        for (text, number) in
            [("-1.5e-3)", "-1.5e-3"), ("0x1e-3", "0x1e"), ("inf,", "inf"), ("12]", "12"), ("2e+5+1", "2e+5")]
        {
            assert_eq!(Cursor::new(text).number().unwrap(), number);
        }
        assert!(Cursor::new("-").number().is_err() && Cursor::new("").number().is_err());
    }

    #[test]
    fn nesting_is_limited() {
        fn parens(cursor: &mut Cursor<'_>) -> Result<()> {
            if cursor.eat("(") { cursor.nested(parens) } else { Ok(()) }
        }
        assert!(parens(&mut Cursor::new(&"(".repeat(100))).is_ok());
        let error = parens(&mut Cursor::new(&"(".repeat(100_000))).unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::Limit);
    }
}
