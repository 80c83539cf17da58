//! Expressions as text.

use std::fmt;

use super::{Atom, Dim, Symbol};
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

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for term in self.terms() {
            let sign = if term.coefficient < 0 { "-" } else { "+" };
            match (first, sign) {
                (true, "-") => f.write_str("-")?,
                (true, _) => {}
                (false, _) => write!(f, " {sign} ")?,
            }
            first = false;
            if term.coefficient.unsigned_abs() != 1 {
                write!(f, "{}*", term.coefficient.unsigned_abs())?;
            }
            let alone = term.coefficient == 1 && term.factors.len() == 1;
            for (k, atom) in term.factors.iter().enumerate() {
                let times = if k == 0 { "" } else { "*" };
                match atom {
                    Atom::FloorDiv(..) | Atom::Mod(..) if !alone => write!(f, "{times}({atom})")?,
                    _ => write!(f, "{times}{atom}")?,
                }
            }
        }
        match self.constant() {
            n if first => write!(f, "{n}"),
            0 => Ok(()),
            n if n < 0 => write!(f, " - {}", n.unsigned_abs()),
            n => write!(f, " + {n}"),
        }
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
