//! Expressions computed in other algebras: numbers under a binding, terms, code.

use rustc_hash::FxHashMap;

use super::{Atom, Dim, Symbol};

/// A place in which integer expressions can be computed.
pub trait Algebra {
    /// its numbers
    type Number;
    /// a constant
    fn int(&self, n: i64) -> Self::Number;
    /// the value of a symbol
    fn symbol(&self, symbol: &Symbol) -> Self::Number;
    /// a + b
    fn add(&self, a: Self::Number, b: Self::Number) -> Self::Number;
    /// a · b
    fn mul(&self, a: Self::Number, b: Self::Number) -> Self::Number;
    /// the floor of a / b
    fn floordiv(&self, a: Self::Number, b: Self::Number) -> Self::Number;
    /// a − b · floor(a / b)
    fn modulo(&self, a: Self::Number, b: Self::Number) -> Self::Number;
    /// the smaller
    fn min(&self, a: Self::Number, b: Self::Number) -> Self::Number;
    /// the larger
    fn max(&self, a: Self::Number, b: Self::Number) -> Self::Number;
}

impl Dim {
    /// The number that is added to multiples of symbols, each of which is shown with its factor; `None` where the expression is more than
    /// that, when some may have been shown.
    pub fn linear(&self, mut see: impl FnMut(&Symbol, i64)) -> Option<i64> {
        for term in self.terms() {
            match term.factors.as_slice() {
                [Atom::Symbol(symbol)] => see(symbol, term.coefficient),
                _ => return None,
            }
        }
        Some(self.constant())
    }

    /// The expression computed in another algebra: how index code and index tensors are made.
    pub fn interpret<A: Algebra>(&self, algebra: &A) -> A::Number {
        let mut total = None;
        for term in self.terms() {
            let factors = term.factors.iter().map(|atom| match atom {
                Atom::Symbol(symbol) => algebra.symbol(symbol),
                Atom::FloorDiv(x, y) => algebra.floordiv(x.interpret(algebra), y.interpret(algebra)),
                Atom::Mod(x, y) => algebra.modulo(x.interpret(algebra), y.interpret(algebra)),
                Atom::Min(x, y) => algebra.min(x.interpret(algebra), y.interpret(algebra)),
                Atom::Max(x, y) => algebra.max(x.interpret(algebra), y.interpret(algebra)),
            });
            let product = factors.reduce(|a, b| algebra.mul(a, b)).expect("a term has factors");
            let product = match term.coefficient {
                1 => product,
                c => algebra.mul(product, algebra.int(c)),
            };
            total = Some(match total {
                Some(sum) => algebra.add(sum, product),
                None => product,
            });
        }
        match (total, self.constant()) {
            (Some(sum), 0) => sum,
            (Some(sum), n) => algebra.add(sum, algebra.int(n)),
            (None, n) => algebra.int(n),
        }
    }
}

/// A binding of symbols to numbers.
#[derive(Clone, Debug, Default)]
pub struct Env {
    numbers: FxHashMap<Symbol, i64>,
    /// every binding in order, with what it took the place of
    bound: Vec<(Symbol, Option<i64>)>,
}

impl Env {
    /// No bindings.
    pub fn new() -> Env {
        Env::default()
    }

    /// The number bound to a symbol.
    pub fn get(&self, symbol: &Symbol) -> Option<i64> {
        self.numbers.get(symbol).copied()
    }

    /// Binds a symbol and returns what it was bound to before.
    pub fn bind(&mut self, symbol: Symbol, value: i64) -> Option<i64> {
        let before = self.numbers.insert(symbol.clone(), value);
        if before != Some(value) {
            self.bound.push((symbol, before));
        }
        before
    }

    /// How many bindings were made so far.
    pub fn mark(&self) -> usize {
        self.bound.len()
    }

    /// The symbols that were bound since.
    pub fn since(&self, mark: usize) -> impl Iterator<Item = &Symbol> {
        self.bound[mark.min(self.bound.len())..].iter().map(|(symbol, _)| symbol)
    }

    /// Undoes what was bound since: where a region ends, its symbols mean nothing, however many there are around it.
    pub fn undo(&mut self, mark: usize) {
        while self.bound.len() > mark {
            match self.bound.pop() {
                Some((symbol, Some(before))) => drop(self.numbers.insert(symbol, before)),
                Some((symbol, None)) => drop(self.numbers.remove(&symbol)),
                None => return,
            }
        }
    }

    /// The expression with every bound symbol replaced by its number.
    pub fn apply(&self, dim: &Dim) -> Dim {
        dim.substitute(&|s| self.get(s).map(Dim::int))
    }
}

impl FromIterator<(Symbol, i64)> for Env {
    fn from_iter<I: IntoIterator<Item = (Symbol, i64)>>(bindings: I) -> Env {
        let mut env = Env::new();
        for (symbol, value) in bindings {
            env.bind(symbol, value);
        }
        env
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_multiples_are_linear() {
        let shown = |dim: &Dim| {
            let mut shown = Vec::new();
            dim.linear(|symbol, factor| shown.push((symbol.clone(), factor))).map(|constant| (shown, constant))
        };
        let (i, n) = (Dim::axis(1), Dim::named("n"));
        let expected = vec![(Symbol::Axis(1), 3), (Symbol::name("n"), -1)];
        let (mut found, constant) = shown(&(i.clone() * 3 - n.clone() + 7)).unwrap();
        found.sort_by_key(|(_, factor)| -factor);
        assert_eq!((found, constant), (expected, 7));
        assert_eq!(shown(&Dim::int(5)), Some((Vec::new(), 5)));
        for more in [i.clone() * n.clone(), i.floordiv(&n), i.modulo(&Dim::int(4)) + 1] {
            assert_eq!(shown(&more), None, "{more}");
        }
    }
}
