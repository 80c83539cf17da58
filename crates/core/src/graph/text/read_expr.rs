//! Scalar expressions from text.

use rustc_hash::FxHashMap;

use super::expr::{Binding, INFIX, arg_name};
use super::number::{self, NumberText};
use crate::cursor::Cursor;
use crate::error::Result;
use crate::nearest::suggestion;
use crate::ops::{Expr, Scalar, Scope, Signature, Term};
use crate::tensor::{DType, Dim};

/// Reads an expression of arguments of the given types.
pub(crate) fn read<'t>(cursor: &mut Cursor<'t>, args: &[DType]) -> Result<Expr> {
    Expr::try_build(args, |scope, terms| {
        let names = terms.iter().enumerate().map(|(k, term)| (arg_name(k), *term)).collect();
        let mut reader = Reader { cursor, scope, names, outside: None };
        reader.body()
    })
}

/// What a word of an expression stands for that is neither a function nor a part of the expression itself.
pub(crate) enum Found<K> {
    /// a value of its own, which the expression takes as an argument
    Value(K, DType),
    /// a coordinate
    Axis(usize),
}

/// Who knows words that an expression does not.
pub(crate) trait Outside<'t, K> {
    /// What a word stands for, if it is known; what belongs to it is read.
    fn find(&mut self, word: &'t str, place: Cursor<'t>, cursor: &mut Cursor<'t>) -> Result<Option<Found<K>>>;
}

/// Reads an expression whose words are found outside of it; its arguments are returned in order.
pub(crate) fn read_with<'t, K: Copy + PartialEq>(
    cursor: &mut Cursor<'t>,
    outside: &mut dyn Outside<'t, K>,
) -> Result<(Expr, Vec<K>)> {
    let scope = Scope::default();
    let mut found: Vec<(K, Term<'_>)> = Vec::new();
    let mut look = |word: &'t str, place: Cursor<'t>, cursor: &mut Cursor<'t>| {
        Ok(match outside.find(word, place, cursor)? {
            None => None,
            Some(Found::Axis(axis)) => Some(scope.coord(axis)),
            Some(Found::Value(key, dtype)) => Some(match found.iter().find(|(other, _)| *other == key) {
                Some((_, term)) => *term,
                None => {
                    let term = scope.argument(found.len(), dtype);
                    found.push((key, term));
                    term
                }
            }),
        })
    };
    let mut reader = Reader { cursor, scope: &scope, names: FxHashMap::default(), outside: Some(&mut look) };
    let root = reader.whole()?;
    let args: Vec<Term<'_>> = found.iter().map(|(_, term)| *term).collect();
    Ok((Expr::of(root, &args), found.into_iter().map(|(key, _)| key).collect()))
}

/// The term that a word stands for, if it is known.
type Look<'c, 't, 's> = dyn FnMut(&'t str, Cursor<'t>, &mut Cursor<'t>) -> Result<Option<Term<'s>>> + 'c;

struct Reader<'c, 't, 's> {
    cursor: &'c mut Cursor<'t>,
    scope: &'s Scope,
    names: FxHashMap<String, Term<'s>>,
    /// who knows other words
    outside: Option<&'c mut Look<'c, 't, 's>>,
}

/// What has been read: a term, or a number that takes the type of what stands beside it.
#[derive(Clone, Copy)]
enum Read<'t, 's> {
    Term(Term<'s>),
    Number(NumberText<'t>, Cursor<'t>),
}

impl<'t, 's> Reader<'_, 't, 's> {
    /// One expression, or named steps and the result between `{` and `}`.
    fn body(&mut self) -> Result<Term<'s>> {
        if !self.cursor.eat("{") {
            return self.whole();
        }
        loop {
            let start = *self.cursor;
            let name = self.cursor.peek_word().unwrap_or_default();
            let mut after = start;
            let named = after.eat_word(name) && !name.is_empty() && after.eat("=") && !after.sees("=");
            if !named {
                let result = self.whole()?;
                self.cursor.expect("}")?;
                return Ok(result);
            }
            *self.cursor = after;
            let step = self.whole()?;
            if self.names.insert(name.to_owned(), step).is_some() {
                return Err(start.error(format!("{name} has a meaning already")));
            }
            self.cursor.expect(";")?;
        }
    }

    /// An expression whose type is known.
    fn whole(&mut self) -> Result<Term<'s>> {
        match self.level(Binding::Comparison)? {
            Read::Term(term) => Ok(term),
            Read::Number(_, place) => Err(untyped(place)),
        }
    }

    /// Operators that bind at least as tightly as `least`.
    fn level(&mut self, least: Binding) -> Result<Read<'t, 's>> {
        let tighter = match least {
            Binding::Comparison => Binding::Sum,
            Binding::Sum => Binding::Product,
            Binding::Product | Binding::Unary | Binding::Atom => return self.product(),
        };
        let mut left = self.level(tighter)?;
        loop {
            let start = *self.cursor;
            let turned = if least == Binding::Comparison { self.turned() } else { None };
            let Some(op) = turned.or_else(|| self.operator(least)) else { return Ok(left) };
            let right = self.level(tighter)?;
            let operands = if turned.is_some() { [right, left] } else { [left, right] };
            left = Read::Term(self.call(op, &operands, start)?);
            if least == Binding::Comparison {
                return Ok(left);
            }
        }
    }

    fn product(&mut self) -> Result<Read<'t, 's>> {
        let mut left = self.unary()?;
        loop {
            let start = *self.cursor;
            let Some(op) = self.operator(Binding::Product) else { return Ok(left) };
            let right = self.unary()?;
            left = Read::Term(self.call(op, &[left, right], start)?);
        }
    }

    /// `>` and `>=`, which are the same comparisons of what stands on their other sides.
    fn turned(&mut self) -> Option<Scalar> {
        let op = if self.cursor.eat(">=") { "<=" } else { self.cursor.eat(">").then_some("<")? };
        INFIX.iter().find(|(symbol, _, _)| *symbol == op).map(|(_, scalar, _)| *scalar)
    }

    fn operator(&mut self, binding: Binding) -> Option<Scalar> {
        let fits = |(symbol, _, b): &&(&str, Scalar, Binding)| *b == binding && self.cursor.sees(symbol);
        let (symbol, op, _) = INFIX.iter().find(fits)?;
        self.cursor.eat(symbol);
        Some(*op)
    }

    fn unary(&mut self) -> Result<Read<'t, 's>> {
        if number::is_next(self.cursor) {
            let place = *self.cursor;
            return Ok(Read::Number(number::read(self.cursor)?, place));
        }
        let start = *self.cursor;
        if self.cursor.eat("-") {
            let operand = self.deeper(|reader| reader.unary())?;
            return Ok(Read::Term(self.call(Scalar::Neg, &[operand], start)?));
        }
        self.atom()
    }

    fn atom(&mut self) -> Result<Read<'t, 's>> {
        let start = *self.cursor;
        if self.cursor.eat("(") {
            let inner = self.deeper(|reader| reader.level(Binding::Comparison))?;
            self.cursor.expect(")")?;
            return Ok(inner);
        }
        let word = self.cursor.word("an expression")?;
        if let Some(look) = &mut self.outside
            && let Some(term) = look(word, start, self.cursor)?
        {
            return Ok(Read::Term(term));
        }
        if !self.cursor.eat("(") {
            return self.leaf(word, start).map(Read::Term);
        }
        if word == "size" {
            let dim = Dim::read(self.cursor)?;
            self.cursor.expect(")")?;
            return Ok(Read::Term(self.scope.size(dim)));
        }
        let args = self.arguments()?;
        if let Some(dtype) = word.strip_prefix("bits_").and_then(DType::from_name) {
            return match args[..] {
                [Read::Term(term)] => term.try_bits(dtype).map(Read::Term).map_err(|e| e.at(start.place())),
                [Read::Number(_, place)] => Err(untyped(place)),
                _ => Err(start.error(format!("{word} takes one operand, got {}", args.len()))),
            };
        }
        if let Some(dtype) = DType::from_name(word) {
            return match args[..] {
                [Read::Number(text, place)] => {
                    let number = text.number(dtype).map_err(|e| e.at(place.place()))?;
                    Ok(Read::Term(self.scope.constant(dtype, number)))
                }
                [Read::Term(term)] => Ok(Read::Term(term.cast(dtype))),
                _ => Err(start.error(format!("{dtype} converts one number, got {}", args.len()))),
            };
        }
        match Scalar::from_name(word) {
            Some(op) if op.def().arity == args.len() => self.call(op, &args, start).map(Read::Term),
            Some(op) => {
                let wanted = match op.def().arity {
                    1 => "one operand".to_owned(),
                    arity => format!("{arity} operands"),
                };
                Err(start.error(format!("{word} takes {wanted}, got {}", args.len())))
            }
            None => {
                let near = suggestion(word, Scalar::ALL.iter().map(|op| op.def().name));
                Err(start.error(format!("there is no function {word}; {near}")))
            }
        }
    }

    fn arguments(&mut self) -> Result<Vec<Read<'t, 's>>> {
        let mut args = Vec::new();
        if self.cursor.eat(")") {
            return Ok(args);
        }
        loop {
            args.push(self.deeper(|reader| reader.level(Binding::Comparison))?);
            if self.cursor.eat(")") {
                return Ok(args);
            }
            if !self.cursor.eat(",") {
                return Err(self.cursor.expected("',' or ')'"));
            }
        }
    }

    fn leaf(&mut self, word: &str, start: Cursor<'t>) -> Result<Term<'s>> {
        if let Some(term) = self.names.get(word) {
            return Ok(*term);
        }
        if self.outside.is_some() {
            return Err(start.error(format!("{word} stands for nothing here")));
        }
        let axis = word.strip_prefix('i').and_then(|digits| digits.parse::<u8>().ok()).filter(|axis| *axis < 64);
        match axis {
            Some(axis) => Ok(self.scope.coord(usize::from(axis))),
            None => Err(start.error(format!("{word} stands for nothing here"))),
        }
    }

    /// A function of what was read; numbers take the type of the other operands.
    fn call(&mut self, op: Scalar, operands: &[Read<'t, 's>], start: Cursor<'t>) -> Result<Term<'s>> {
        let select = op.def().signature == Signature::Select;
        let typed = operands.iter().skip(usize::from(select)).find_map(|o| match o {
            Read::Term(term) => Some(term.dtype()),
            Read::Number(..) => None,
        });
        let mut terms = Vec::with_capacity(operands.len());
        for (k, operand) in operands.iter().enumerate() {
            terms.push(match (*operand, typed) {
                (Read::Term(term), _) => term,
                (Read::Number(text, place), Some(dtype)) if !(select && k == 0) => {
                    let number = text.number(dtype).map_err(|e| e.at(place.place()))?;
                    self.scope.constant(dtype, number)
                }
                (Read::Number(_, place), _) => return Err(untyped(place)),
            });
        }
        Term::try_call(op, &terms).map_err(|e| e.at(start.place()))
    }

    /// Reads what stands one level deeper.
    fn deeper<R>(&mut self, read: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        self.cursor.descend()?;
        let result = read(self)?;
        self.cursor.ascend();
        Ok(result)
    }
}

fn untyped(place: Cursor<'_>) -> crate::error::Error {
    place.error("nothing here shows the type of this number (write it as f32(…))")
}

#[cfg(test)]
mod tests {
    use super::super::expr::text;
    use super::*;
    use crate::ops::Number;

    fn check(expr: &Expr, wanted: &str) {
        assert_eq!(text(expr), wanted);
        let mut cursor = Cursor::new(wanted);
        assert_eq!(read(&mut cursor, expr.args()).unwrap(), *expr, "{wanted}");
        cursor.end().unwrap();
    }

    #[test]
    fn expressions_survive() {
        let f = [DType::F32; 3];
        check(&Expr::build(&f, |_, x| x[0] - x[1] - x[2]), "a - b - c");
        check(&Expr::build(&f, |_, x| x[0] - (x[1] - x[2])), "a - (b - c)");
        check(&Expr::build(&f, |_, x| (x[0] + x[1]) * x[2] / (x[0] * x[1])), "(a + b) * c / (a * b)");
        check(&Expr::bits(DType::F32, DType::U32).unwrap(), "bits_u32(a)");
        check(&Expr::build(&f, |_, x| -(-(x[0] * x[1])) + -x[2]), "--(a * b) + -c");
        check(&Expr::build(&f, |s, x| x[0] * s.float(x[0], -2.0) - s.one(x[0])), "a * -2.0 - 1.0");
        check(&Expr::build(&f[..1], |s, x| -s.one(x[0])), "-f32(1.0)");
        check(&Expr::build(&f[..0], |s, _| s.constant(DType::F16, Number::new(DType::F16, 0.1))), "f16(0.1)");
        check(&Expr::build(&f[..1], |s, x| s.float(x[0], f64::NEG_INFINITY).lt(x[0])), "-inf < a");
        check(&Expr::build(&f, |_, x| x[0].lt(x[1]).select(x[1], x[2]).cast(DType::I8)), "i8(select(a < b, b, c))");
        check(
            &Expr::build(&f, |s, x| x[0].lt(x[1]).select(s.one(x[0]), s.float(x[0], 0.0))),
            "select(a < b, f32(1.0), f32(0.0))",
        );
        check(
            &Expr::build(&f, |s, x| {
                let always = s.constant(DType::Bool, Number::Int(1));
                always.select(x[0], s.float(x[0], f64::NAN))
            }),
            "select(bool(true), a, nan)",
        );
        check(
            &Expr::build(&f[..1], |_, x| {
                let e = x[0].apply(Scalar::Exp);
                e / (e + x[0])
            }),
            "{ t0 = exp(a); t0 / (t0 + a) }",
        );
        check(
            &Expr::build(&[], |s, _| s.coord(1).lt(s.size(Dim::named("n") + 1)).cast(DType::F32)),
            "f32(i1 < size(n + 1))",
        );
        let eq = Expr::build(&[DType::Bool; 2], |_, x| {
            Term::call(Scalar::Eq, &[x[0], Term::call(Scalar::Eq, &[x[1], x[0]])])
        });
        check(&eq, "a == (b == a)");
    }

    #[test]
    fn comparisons_can_be_turned() {
        let read = |text: &str| read(&mut Cursor::new(text), &[DType::F32; 2]).unwrap();
        assert_eq!(read("a > b"), read("b < a"));
        assert_eq!(read("select(a + 1.0 >= 2.0, a, b)"), read("select(2.0 <= a + 1.0, a, b)"));
    }

    #[test]
    fn deep_and_wide_expressions_survive() {
        let deep = Expr::build(&[DType::F64], |_, x| (0..500).fold(x[0], |t, _| (t - x[0]).apply(Scalar::Exp)));
        let shared = Expr::build(&[DType::F64], |_, x| (0..200).fold(x[0], |t, _| t * t));
        let wide = Expr::build(&[DType::I32; 40], |_, x| x.iter().copied().reduce(|a, b| a + b).unwrap());
        for expr in [deep, shared, wide] {
            assert_eq!(read(&mut Cursor::new(&text(&expr)), expr.args()).unwrap(), expr);
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let error = |text: &str| {
            let mut cursor = Cursor::new(text);
            read(&mut cursor, &[DType::F32, DType::I64]).and_then(|_| cursor.end()).unwrap_err().to_string()
        };
        let cases = [
            ("a + ", "line 1, column 5: expected an expression, found the end of the text"),
            ("a + b", "line 1, column 3: add is not defined for (f32, i64); f32(…) converts what is of another type"),
            ("2.0 + 1.0", "line 1, column 1: nothing here shows the type of this number (write it as f32(…))"),
            ("b + 1.5", "line 1, column 5: 1.5 is not a number of type i64"),
            ("q", "line 1, column 1: q stands for nothing here"),
            ("exp(a, a)", "line 1, column 1: exp takes one operand, got 2"),
            ("sqr(a)", "line 1, column 1: there is no function sqr; the nearest are sqrt, shr"),
            ("f16(a, a)", "line 1, column 1: f16 converts one number, got 2"),
            ("{ t = a; t = a; t }", "line 1, column 10: t has a meaning already"),
            ("a < a < a", "line 1, column 7: expected the end of the text, found '<'"),
            ("(a", "line 1, column 3: expected ')', found the end of the text"),
        ];
        for (text, wanted) in cases {
            assert_eq!(error(text), format!("invalid input: {wanted}"));
        }
        assert!(error(&"(".repeat(100_000)).contains("levels inside one another"));
        assert!(error(&"-".repeat(100_000)).contains("levels inside one another"));
    }
}
