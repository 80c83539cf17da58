//! Expressions of C++ with how tightly they bind, so that parentheses stand only where they are needed.

use std::fmt;

/// How tightly an expression binds, the tightest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// a name, a number, a call
    Atom,
    /// a sign, a cast
    Unary,
    /// `*`, `/`, `%`
    Product,
    /// `+`, `-`
    Sum,
    /// `<`, `<=`
    Order,
    /// `==`, `!=`
    Equality,
    /// `&`
    BitAnd,
    /// `^`
    BitXor,
    /// `|`
    BitOr,
    /// `&&`
    Both,
    /// `||`
    Either,
    /// `?:`
    Choice,
}

/// An expression.
#[derive(Clone, Debug)]
pub(super) struct Code {
    text: String,
    rank: Rank,
}

impl Code {
    /// A name, a number, anything that needs no parentheses.
    pub fn atom(text: impl Into<String>) -> Code {
        Code { text: text.into(), rank: Rank::Atom }
    }

    /// A call of a function.
    pub fn call(function: &str, args: &[Code]) -> Code {
        let args: Vec<&str> = args.iter().map(|arg| arg.text.as_str()).collect();
        Code::atom(format!("{function}({})", args.join(", ")))
    }

    /// Two operands with an operator between them; a right operand that binds as tightly is put in parentheses.
    pub fn infix(operator: &str, rank: Rank, a: &Code, b: &Code) -> Code {
        Code { text: format!("{} {operator} {}", a.within(rank), b.inside(rank)), rank }
    }

    /// An operator before its operand.
    pub fn prefix(operator: &str, a: &Code) -> Code {
        Code { text: format!("{operator}{}", a.inside(Rank::Unary)), rank: Rank::Unary }
    }

    /// A conversion.
    pub fn cast(ty: &str, a: &Code) -> Code {
        Code::prefix(&format!("({ty})"), a)
    }

    /// One of two.
    pub fn choice(condition: &Code, yes: &Code, no: &Code) -> Code {
        let text =
            format!("{} ? {} : {}", condition.inside(Rank::Choice), yes.inside(Rank::Choice), no.inside(Rank::Choice));
        Code { text, rank: Rank::Choice }
    }

    /// a + b; nothing is added where one is the number 0, and a sign becomes a difference.
    pub fn plus(&self, b: &Code) -> Code {
        match (self.text.as_str(), b.text.as_str()) {
            ("0", _) => b.clone(),
            (_, "0") => self.clone(),
            (_, text) => match text.strip_prefix('-') {
                Some(rest) if b.rank <= Rank::Product => {
                    let rest = Code { text: rest.to_owned(), rank: b.rank };
                    Code::infix("-", Rank::Sum, self, &rest)
                }
                _ => Code { text: format!("{} + {}", self.within(Rank::Sum), b.within(Rank::Sum)), rank: Rank::Sum },
            },
        }
    }

    /// a · b.
    pub fn times(&self, b: &Code) -> Code {
        match (self.text.as_str(), b.text.as_str()) {
            ("0", _) | (_, "0") => Code::atom("0"),
            ("1", _) => b.clone(),
            (_, "1") => self.clone(),
            (_, "-1") => Code::prefix("-", self),
            _ => Code {
                text: format!("{} * {}", self.within(Rank::Product), b.inside(Rank::Product)),
                rank: Rank::Product,
            },
        }
    }

    /// The text as an argument, a condition, the right side of an assignment.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many characters it has.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether it is a name, a number or a call.
    pub fn is_atom(&self) -> bool {
        self.rank == Rank::Atom
    }

    /// Whether it is a name.
    pub fn is_name(&self) -> bool {
        self.is_atom() && self.text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    /// As an operand of something that binds so tightly, where equal ones need no parentheses.
    fn within(&self, rank: Rank) -> String {
        if self.rank <= rank { self.text.clone() } else { format!("({})", self.text) }
    }

    /// As an operand that must bind more tightly.
    fn inside(&self, rank: Rank) -> String {
        if self.rank < rank || (rank == Rank::Unary && self.rank == Rank::Unary && !self.text.starts_with('-')) {
            self.text.clone()
        } else {
            format!("({})", self.text)
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
