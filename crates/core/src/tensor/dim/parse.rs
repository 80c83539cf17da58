//! Expressions from text: what the printer writes and what people write, such as `2*n + (m // 4) - min(a, 3)`.

use super::{Dim, Symbol};
use crate::cursor::Cursor;
use crate::error::{Error, Result};

/// Products are multiplied out; a short text must not become an endless sum.
const MOST_TERMS: usize = 1 << 12;

impl Dim {
    /// The expression that a text denotes; `*`, `//` and `%` bind tighter than `+` and `-`, all from the left.
    pub fn parse(text: &str) -> Result<Dim> {
        let mut cursor = Cursor::new(text);
        let dim = Dim::read(&mut cursor)?;
        cursor.end()?;
        Ok(dim)
    }

    /// Reads an expression.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Dim> {
        let negative = cursor.eat("-");
        let mut total = read_term(cursor, if negative { Sign::OnFactor } else { Sign::None })?;
        loop {
            let start = *cursor;
            let term = if cursor.eat("+") {
                read_term(cursor, Sign::None)?
            } else if cursor.eat("-") {
                read_term(cursor, Sign::OnTerm)?
            } else {
                return Ok(total);
            };
            if total.terms().len() + term.terms().len() > MOST_TERMS {
                return Err(too_long(start));
            }
            total = total + term;
        }
    }
}

/// Where a minus in front of a product goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    None,
    /// a minus of one operand: `-a // b` is `(-a) // b`
    OnFactor,
    /// a minus between two operands: `a - b // c` is `a - (b // c)`
    OnTerm,
}

fn too_long(cursor: Cursor<'_>) -> Error {
    Error::limit(format!("a sum of more than {MOST_TERMS} products")).at(cursor.place())
}

fn read_term(cursor: &mut Cursor<'_>, sign: Sign) -> Result<Dim> {
    let start = *cursor;
    // The magnitude of the smallest number is no number without its sign.
    let smallest = sign != Sign::None && cursor.integer::<u64>("a number").is_ok_and(|n| n == 1 << 63);
    if !smallest {
        *cursor = start;
    }
    let mut product = match sign {
        _ if smallest => Dim::int(i64::MIN),
        Sign::OnFactor => -read_factor(cursor)?,
        Sign::None | Sign::OnTerm => read_factor(cursor)?,
    };
    loop {
        let start = *cursor;
        if cursor.eat("//") {
            product = product.floordiv(&read_factor(cursor)?);
        } else if cursor.eat("*") {
            let factor = read_factor(cursor)?;
            if (product.terms().len() + 1) * (factor.terms().len() + 1) > MOST_TERMS {
                return Err(too_long(start));
            }
            product = product * factor;
        } else if cursor.eat("%") {
            product = product.modulo(&read_factor(cursor)?);
        } else {
            return Ok(if sign == Sign::OnTerm && !smallest { -product } else { product });
        }
    }
}

fn read_factor(cursor: &mut Cursor<'_>) -> Result<Dim> {
    match cursor.peek() {
        Some(c) if c.is_ascii_digit() => Ok(Dim::int(cursor.integer("a number below 2^63")?)),
        Some('(') => {
            cursor.expect("(")?;
            let inner = cursor.nested(Dim::read)?;
            cursor.expect(")")?;
            Ok(inner)
        }
        Some('\'') => Ok(Dim::named(&cursor.string('\'')?)),
        Some('$') => {
            cursor.expect("$")?;
            Ok(Symbol::Value(cursor.suffix("the number of a value symbol")?).into())
        }
        Some('@') => {
            cursor.expect("@")?;
            Ok(Symbol::Read(cursor.suffix("the number of an index operand")?).into())
        }
        _ => read_word(cursor),
    }
}

fn read_word(cursor: &mut Cursor<'_>) -> Result<Dim> {
    let start = *cursor;
    let word = cursor.word("a size")?;
    if matches!(word, "min" | "max") && cursor.eat("(") {
        let a = cursor.nested(Dim::read)?;
        cursor.expect(",")?;
        let b = cursor.nested(Dim::read)?;
        cursor.expect(")")?;
        return Ok(if word == "min" { a.min_with(&b) } else { a.max_with(&b) });
    }
    match word.strip_prefix('i').filter(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())) {
        Some(digits) => match digits.parse() {
            Ok(axis) => Ok(Symbol::Axis(axis).into()),
            Err(_) => Err(start.error(format!("there is no axis {digits}"))),
        },
        None => Ok(Dim::named(word)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_back() {
        let (a, b, i) = (Dim::named("a"), Dim::named("two words'"), Dim::axis(1));
        let (value, read) = (Dim::from(Symbol::Value(3)), Dim::from(Symbol::Read(0)));
        let samples = [
            Dim::int(0),
            Dim::int(i64::MIN),
            Dim::int(i64::MAX),
            &a * i64::MIN + i64::MIN,
            &a - &b * i64::MIN,
            -&a,
            (&a * 3 - &b).floordiv(&Dim::int(4)),
            (-&a).ceildiv(&(&b + 1)) * &i - 7,
            (&i * &a + &value).modulo(&Dim::int(5)),
            a.min_with(&b).max_with(&(&value * 2)) * 3 - &read,
            Dim::int(5).floordiv(&a),
            (&a - 3).modulo(&b).floordiv(&(&a + &b)),
            Dim::named("i7"),
            Dim::named("min"),
            Dim::named("new\nline"),
            Dim::named(""),
            &a * &a * &b,
        ];
        for dim in samples {
            assert_eq!(Dim::parse(&dim.to_string()).unwrap(), dim, "{dim}");
        }
    }

    #[test]
    fn operators_bind_as_in_python() {
        let at = |text: &str| {
            let n = |s: &Symbol| (*s == Symbol::name("n")).then_some(7);
            Dim::parse(text).unwrap().eval_with(&n).unwrap()
        };
        assert_eq!([at("-n // 2"), at("1 - n // 2"), at("n - 1 - 2"), at("n*2 // 4 * 3")], [-4, -2, 4, 9]);
        assert_eq!([at("n % 4*2"), at("min(n, 3) + max(n, 3)"), at("-(n + 1)"), at("n//2%2")], [6, 10, -8, 1]);
    }

    #[test]
    fn extreme_numbers_do_not_panic() {
        let extremes =
            ["9223372036854775807", "(-9223372036854775808)", "(-1)", "0", "3", "n", "(n - 9223372036854775808)"];
        for a in extremes {
            for b in extremes {
                for op in ["+", "-", "*", "//", "%"] {
                    let dim = Dim::parse(&format!("{a} {op} {b}")).unwrap();
                    assert_eq!(Dim::parse(&dim.to_string()).unwrap(), dim);
                    let _ = dim.eval_with(&|_| Some(i64::MIN));
                }
            }
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let error = |text: &str| Dim::parse(text).unwrap_err().to_string();
        assert_eq!(error("n + "), "invalid input: line 1, column 5: expected a size, found the end of the text");
        assert_eq!(error("n + )"), "invalid input: line 1, column 5: expected a size, found ')'");
        assert_eq!(error("(n, 1"), "invalid input: line 1, column 3: expected ')', found ','");
        assert_eq!(
            error("9223372036854775808"),
            "invalid input: line 1, column 1: expected a number below 2^63, found '9223372036854775808'"
        );
        assert_eq!(error("i300"), "invalid input: line 1, column 1: there is no axis 300");
        assert_eq!(error("n 2"), "invalid input: line 1, column 3: expected the end of the text, found '2'");
        let long = (0..20).map(|k| format!("(a{k} + b{k})")).collect::<Vec<_>>().join("*");
        assert!(error(&long).contains("a sum of more than 4096 products"));
        assert!(error(&"(".repeat(10_000)).contains("levels inside one another"));
    }
}
