//! Expressions as text.

use std::fmt;

use super::{Atom, Dim, Symbol, Term};
use crate::cursor::{is_word, quoted};

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Symbol::Name(name) if is_plain(name) => f.write_str(name),
            Symbol::Name(name) => f.write_str(&quoted(name, '\'')),
            Symbol::Value(n) => write!(f, "${n}"),
            Symbol::Axis(n) => write!(f, "i{n}"),
            Symbol::Read(n) => write!(f, "@{n}"),
        }
    }
}

/// An identifier that no other token of the text form can be taken for.
fn is_plain(name: &str) -> bool {
    let axis_like = name.strip_prefix('i').is_some_and(|d| !d.is_empty() && d.chars().all(|c| c.is_ascii_digit()));
    is_word(name) && !axis_like && name != "min" && name != "max"
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operand = |d: &Dim| match d.as_atom() {
            Some(Atom::Symbol(_) | Atom::Min(..) | Atom::Max(..)) => d.to_string(),
            None if d.as_int().is_some_and(|n| n >= 0) => d.to_string(),
            _ => format!("({d})"),
        };
        match self {
            Atom::Symbol(symbol) => write!(f, "{symbol}"),
            Atom::FloorDiv(x, y) => write!(f, "{} // {}", operand(x), operand(y)),
            Atom::Mod(x, y) => write!(f, "{} % {}", operand(x), operand(y)),
            Atom::Min(x, y) => write!(f, "min({x}, {y})"),
            Atom::Max(x, y) => write!(f, "max({x}, {y})"),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.coefficient.unsigned_abs() != 1 {
            write!(f, "{}*", self.coefficient.unsigned_abs())?;
        }
        let alone = self.coefficient == 1 && self.factors.len() == 1;
        for (k, atom) in self.factors.iter().enumerate() {
            let times = if k == 0 { "" } else { "*" };
            match atom {
                Atom::FloorDiv(..) | Atom::Mod(..) if !alone => write!(f, "{times}({atom})")?,
                _ => write!(f, "{times}{atom}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(n) = self.as_int() {
            return write!(f, "{n}");
        }
        let mut parts: Vec<(bool, String)> =
            self.terms().iter().map(|term| (term.coefficient < 0, term.to_string())).collect();
        if self.constant() != 0 {
            parts.push((self.constant() < 0, self.constant().unsigned_abs().to_string()));
        }
        // A sum that begins with a minus is hard to read: what is added first leads.
        if let Some(leading) = parts.iter().position(|(negative, _)| !negative) {
            parts[..=leading].rotate_right(1);
        }
        for (k, (negative, text)) in parts.iter().enumerate() {
            match (k, negative) {
                (0, false) => f.write_str(text)?,
                (0, true) => write!(f, "-{text}")?,
                (_, false) => write!(f, " + {text}")?,
                (_, true) => write!(f, " - {text}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
