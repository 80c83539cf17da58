//! Sizes and index expressions in C++.

use fuseline::tensor::{Algebra, Dim, Symbol};

use super::code::{Code, Rank};

/// An integer expression, and whether it is known never to be negative.
#[derive(Clone, Debug)]
pub(super) struct Index {
    pub code: Code,
    is_nonnegative: bool,
}

/// What symbols are called.
pub(super) trait Names {
    /// a size
    fn size(&self, symbol: &Symbol) -> Code;
    /// a coordinate
    fn coordinate(&self, axis: usize) -> Code;
    /// the value of a step that is read
    fn read(&self, number: usize) -> Code;
}

/// An index expression as code.
pub(super) fn index(dim: &Dim, names: &dyn Names) -> Code {
    dim.interpret(&Printing(names)).code
}

/// A name for a size that is an argument of a kernel.
pub(super) fn size_name(symbol: &Symbol) -> String {
    match symbol {
        Symbol::Value(number) => format!("value{number}"),
        other => {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let word: String = other.to_string().chars().map(|c| if is_word(c) { c } else { '_' }).collect();
            format!("size_{word}")
        }
    }
}

struct Printing<'a>(&'a dyn Names);

impl Algebra for Printing<'_> {
    type Number = Index;

    fn int(&self, n: i64) -> Index {
        let magnitude = n.unsigned_abs();
        let suffix = if magnitude > i32::MAX as u64 { "ll" } else { "" };
        let code = Code::atom(format!("{magnitude}{suffix}"));
        Index { code: if n < 0 { Code::prefix("-", &code) } else { code }, is_nonnegative: n >= 0 }
    }

    fn symbol(&self, symbol: &Symbol) -> Index {
        match symbol {
            Symbol::Axis(axis) => Index { code: self.0.coordinate(usize::from(*axis)), is_nonnegative: true },
            Symbol::Read(k) => Index { code: self.0.read(usize::from(*k)), is_nonnegative: false },
            Symbol::Name(_) | Symbol::Value(_) => Index { code: self.0.size(symbol), is_nonnegative: true },
        }
    }

    fn add(&self, a: Index, b: Index) -> Index {
        Index { code: a.code.plus(&b.code), is_nonnegative: a.is_nonnegative && b.is_nonnegative }
    }

    fn mul(&self, a: Index, b: Index) -> Index {
        Index { code: a.code.times(&b.code), is_nonnegative: a.is_nonnegative && b.is_nonnegative }
    }

    fn floordiv(&self, a: Index, b: Index) -> Index {
        let code = if a.is_nonnegative {
            Code::infix("/", Rank::Product, &a.code, &b.code)
        } else {
            Code::call("floor_div<Index>", &[a.code, b.code])
        };
        Index { code, is_nonnegative: a.is_nonnegative }
    }

    fn modulo(&self, a: Index, b: Index) -> Index {
        let code = if a.is_nonnegative {
            Code::infix("%", Rank::Product, &a.code, &b.code)
        } else {
            Code::call("floor_rest<Index>", &[a.code, b.code])
        };
        Index { code, is_nonnegative: true }
    }

    fn min(&self, a: Index, b: Index) -> Index {
        let is_nonnegative = a.is_nonnegative && b.is_nonnegative;
        Index { code: Code::call("smaller<Index>", &[a.code, b.code]), is_nonnegative }
    }

    fn max(&self, a: Index, b: Index) -> Index {
        let is_nonnegative = a.is_nonnegative || b.is_nonnegative;
        Index { code: Code::call("larger<Index>", &[a.code, b.code]), is_nonnegative }
    }
}
