//! Host operations as text: their attributes by name, printed and read in one place.

use std::fmt;

use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::ops::prim::HostKind;

/// An attribute of a host operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute {
    /// a value symbol, `$3`
    Symbol(u32),
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attribute::Symbol(n) => write!(f, "${n}"),
        }
    }
}

/// Reads the value of an attribute.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Attribute> {
    cursor.expect("$")?;
    cursor.suffix("the number of a value symbol").map(Attribute::Symbol)
}

/// The attributes of an operation in the order in which they are printed.
pub(super) fn attributes(kind: &HostKind) -> Vec<(&'static str, Attribute)> {
    match kind {
        HostKind::NonZero { count } => vec![("count", Attribute::Symbol(*count))],
    }
}

/// The operation with a name and attributes.
pub(super) fn kind(name: &str, given: &[(String, Attribute)]) -> Result<HostKind> {
    let find = |wanted: &str| given.iter().find(|(key, _)| key == wanted).map(|(_, value)| *value);
    let symbol = |wanted: &str| match find(wanted) {
        Some(Attribute::Symbol(n)) => Ok(n),
        _ => Err(Error::invalid(format!("host.{name} takes {wanted}=$n"))),
    };
    let kind = match name {
        "nonzero" => HostKind::NonZero { count: symbol("count")? },
        _ => return Err(Error::invalid(format!("there is no host operation {name}"))),
    };
    let known = attributes(&kind);
    match given.iter().enumerate().find(|(k, (key, _))| {
        !known.iter().any(|(name, _)| name == key) || given[..*k].iter().any(|(earlier, _)| earlier == key)
    }) {
        Some((_, (key, _))) => Err(Error::invalid(format!("host.{name} takes no second or other {key}"))),
        None => Ok(kind),
    }
}
