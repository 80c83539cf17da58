//! Host operations as text: their attributes by name, printed and read in one place.

use std::fmt;

use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::ops::prim::{Case, HostKind};

/// An attribute of a host operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    /// a value symbol, `count=$3`
    Symbol(u32),
    /// a number, `axis=1`
    Number(usize),
    /// something that is so; its name alone is printed, and nothing where it is not so
    Flag(bool),
}

/// The attributes of an operation in the order in which they are printed.
pub(super) fn attributes(kind: &HostKind) -> Vec<(&'static str, Attribute)> {
    use Attribute::{Flag, Number, Symbol};
    match kind {
        HostKind::NonZero { count } => vec![("count", Symbol(*count))],
        HostKind::Unique { axis, sorted, count } => {
            vec![("axis", Number(*axis)), ("sorted", Flag(*sorted)), ("count", Symbol(*count))]
        }
        HostKind::NonMaxSuppression { centered, count } => {
            vec![("centered", Flag(*centered)), ("count", Symbol(*count))]
        }
        HostKind::TextJoin | HostKind::TextMatch | HostKind::TextOfNumber => Vec::new(),
        HostKind::NumberOfText { whole } => vec![("whole", Flag(*whole))],
        HostKind::TextSplit { count, width } => vec![("count", Symbol(*count)), ("width", Symbol(*width))],
        HostKind::TextNormalize { case, exact, count, width } => vec![
            ("lower", Flag(*case == Case::Lower)),
            ("upper", Flag(*case == Case::Upper)),
            ("exact", Flag(*exact)),
            ("count", Symbol(*count)),
            ("width", Symbol(*width)),
        ],
    }
}

/// The operation with a name and attributes.
pub(super) fn kind(name: &str, given: &[(String, Attribute)]) -> Result<HostKind> {
    let find = |wanted: &str| given.iter().find(|(key, _)| key == wanted).map(|(_, value)| *value);
    let symbol = |wanted: &str| match find(wanted) {
        Some(Attribute::Symbol(n)) => Ok(n),
        _ => Err(Error::invalid(format!("host.{name} takes {wanted}=$…"))),
    };
    let number = |wanted: &str| match find(wanted) {
        Some(Attribute::Number(n)) => Ok(n),
        _ => Err(Error::invalid(format!("host.{name} takes {wanted}=…"))),
    };
    let flag = |wanted: &str| find(wanted) == Some(Attribute::Flag(true));
    let kind = match name {
        "nonzero" => HostKind::NonZero { count: symbol("count")? },
        "unique" => HostKind::Unique { axis: number("axis")?, sorted: flag("sorted"), count: symbol("count")? },
        "suppress" => HostKind::NonMaxSuppression { centered: flag("centered"), count: symbol("count")? },
        "text_join" => HostKind::TextJoin,
        "text_match" => HostKind::TextMatch,
        "text_of_number" => HostKind::TextOfNumber,
        "number_of_text" => HostKind::NumberOfText { whole: flag("whole") },
        "text_split" => HostKind::TextSplit { count: symbol("count")?, width: symbol("width")? },
        "text_normalize" => {
            let case = match (flag("lower"), flag("upper")) {
                (false, false) => Case::Kept,
                (true, false) => Case::Lower,
                (false, true) => Case::Upper,
                (true, true) => return Err(Error::invalid("either lower or upper")),
            };
            HostKind::TextNormalize { case, exact: flag("exact"), count: symbol("count")?, width: symbol("width")? }
        }
        _ => return Err(Error::invalid(format!("there is no host operation {name}"))),
    };
    let known = attributes(&kind);
    for (k, (key, value)) in given.iter().enumerate() {
        if given[..k].iter().any(|(earlier, _)| earlier == key) {
            return Err(Error::invalid(format!("{key} is given twice")));
        }
        if !known.iter().any(|(name, attribute)| name == key && attribute == value) {
            return Err(Error::invalid(format!("host.{name} takes no {key} like this")));
        }
    }
    Ok(kind)
}

/// An attribute as it is printed, with a blank before it.
pub(super) fn text(key: &str, attribute: Attribute) -> String {
    match attribute {
        Attribute::Flag(true) => format!(" {key}"),
        Attribute::Flag(false) => String::new(),
        other => format!(" {key}={other}"),
    }
}

/// Reads what stands behind the name of an attribute.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Attribute> {
    if !cursor.eat("=") {
        return Ok(Attribute::Flag(true));
    }
    if cursor.eat("$") {
        return cursor.suffix("the number of a value symbol").map(Attribute::Symbol);
    }
    cursor.integer("a number or a value symbol").map(Attribute::Number)
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attribute::Symbol(n) => write!(f, "${n}"),
            Attribute::Number(n) => write!(f, "{n}"),
            Attribute::Flag(holds) => write!(f, "{holds}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_by_its_name() {
        let kinds = [
            HostKind::NonZero { count: 1 },
            HostKind::Unique { axis: 2, sorted: true, count: 0 },
            HostKind::NonMaxSuppression { centered: false, count: 7 },
            HostKind::TextJoin,
            HostKind::TextSplit { count: 1, width: 2 },
            HostKind::TextNormalize { case: Case::Upper, exact: true, count: 3, width: 4 },
            HostKind::TextMatch,
            HostKind::TextOfNumber,
            HostKind::NumberOfText { whole: true },
        ];
        for wanted in kinds {
            let text: String = attributes(&wanted).into_iter().map(|(key, value)| text(key, value)).collect();
            let mut cursor = Cursor::new(&text);
            let mut given = Vec::new();
            while let Some(key) = cursor.peek_word() {
                cursor.eat_word(key);
                given.push((key.to_owned(), read(&mut cursor).unwrap()));
            }
            assert_eq!(kind(wanted.name(), &given).unwrap(), wanted, "{text}");
        }
        assert!(kind("nonzero", &[]).is_err() && kind("sing", &[]).is_err());
    }
}
