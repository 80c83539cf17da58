//! Sums, differences and products of expressions, in canonical form.

use super::{Dim, Factors, Term};

fn add(a: &Dim, b: &Dim) -> Dim {
    match (a.as_int(), b.as_int()) {
        (Some(a), Some(b)) => return Dim::int(a.saturating_add(b)),
        (Some(0), _) => return b.clone(),
        (_, Some(0)) => return a.clone(),
        _ => {}
    }
    let terms = a.terms().iter().chain(b.terms()).cloned().collect();
    Dim::from_terms(terms, a.constant().saturating_add(b.constant()))
}

fn mul(a: &Dim, b: &Dim) -> Dim {
    match (a.as_int(), b.as_int()) {
        (Some(a), Some(b)) => return Dim::int(a.saturating_mul(b)),
        (Some(n), _) => return scaled(b, n),
        (_, Some(n)) => return scaled(a, n),
        _ => {}
    }
    let constant_term = |d: &Dim| Term { factors: Factors::new(), coefficient: d.constant() };
    let mut terms = Vec::new();
    for x in a.terms().iter().cloned().chain([constant_term(a)]) {
        for y in b.terms().iter().cloned().chain([constant_term(b)]) {
            let mut factors: Factors = x.factors.iter().chain(&y.factors).cloned().collect();
            factors.sort();
            terms.push(Term { factors, coefficient: x.coefficient.saturating_mul(y.coefficient) });
        }
    }
    Dim::from_terms(terms, 0)
}

fn scaled(a: &Dim, n: i64) -> Dim {
    match n {
        0 => Dim::int(0),
        1 => a.clone(),
        _ => {
            let times = |t: &Term| Term { factors: t.factors.clone(), coefficient: t.coefficient.saturating_mul(n) };
            Dim::of_sum(a.terms().iter().map(times).collect(), a.constant().saturating_mul(n))
        }
    }
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
