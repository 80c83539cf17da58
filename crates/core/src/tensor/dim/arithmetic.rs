//! Sums, differences and products of expressions, in canonical form.

use super::{Atom, Dim, Term};

fn add(a: &Dim, b: &Dim) -> Dim {
    if let (Some(a), Some(b)) = (a.as_int(), b.as_int()) {
        return Dim::int(a.saturating_add(b));
    }
    let terms = a.terms().iter().chain(b.terms()).cloned().collect();
    Dim::from_terms(terms, a.constant().saturating_add(b.constant()))
}

fn mul(a: &Dim, b: &Dim) -> Dim {
    if let (Some(a), Some(b)) = (a.as_int(), b.as_int()) {
        return Dim::int(a.saturating_mul(b));
    }
    let constant_term = |d: &Dim| Term { factors: Vec::new(), coefficient: d.constant() };
    let mut terms = Vec::new();
    for x in a.terms().iter().cloned().chain([constant_term(a)]) {
        for y in b.terms().iter().cloned().chain([constant_term(b)]) {
            let mut factors: Vec<Atom> = x.factors.iter().chain(&y.factors).cloned().collect();
            factors.sort();
            terms.push(Term { factors, coefficient: x.coefficient.saturating_mul(y.coefficient) });
        }
    }
    Dim::from_terms(terms, 0)
}

fn sub(a: &Dim, b: &Dim) -> Dim {
    add(a, &mul(b, &Dim::int(-1)))
}

macro_rules! operators {
    ($($Trait:ident $method:ident $function:ident;)+) => { $(
        impl std::ops::$Trait<&Dim> for &Dim { type Output = Dim; fn $method(self, r: &Dim) -> Dim { $function(self, r) } }
        impl std::ops::$Trait<Dim> for &Dim { type Output = Dim; fn $method(self, r: Dim) -> Dim { $function(self, &r) } }
        impl std::ops::$Trait<&Dim> for Dim { type Output = Dim; fn $method(self, r: &Dim) -> Dim { $function(&self, r) } }
        impl std::ops::$Trait<Dim> for Dim { type Output = Dim; fn $method(self, r: Dim) -> Dim { $function(&self, &r) } }
        impl std::ops::$Trait<i64> for &Dim { type Output = Dim; fn $method(self, r: i64) -> Dim { $function(self, &Dim::int(r)) } }
        impl std::ops::$Trait<i64> for Dim { type Output = Dim; fn $method(self, r: i64) -> Dim { $function(&self, &Dim::int(r)) } }
    )+ };
}

operators! { Add add add; Sub sub sub; Mul mul mul; }

impl std::ops::Neg for &Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        mul(self, &Dim::int(-1))
    }
}

impl std::ops::Neg for Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        -&self
    }
}

impl std::iter::Product for Dim {
    fn product<I: Iterator<Item = Dim>>(dims: I) -> Dim {
        dims.fold(Dim::int(1), |p, d| p * d)
    }
}

impl<'a> std::iter::Product<&'a Dim> for Dim {
    fn product<I: Iterator<Item = &'a Dim>>(dims: I) -> Dim {
        dims.fold(Dim::int(1), |p, d| p * d)
    }
}

impl std::iter::Sum for Dim {
    fn sum<I: Iterator<Item = Dim>>(dims: I) -> Dim {
        dims.fold(Dim::int(0), |p, d| p + d)
    }
}
