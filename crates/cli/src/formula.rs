//! Size expressions for people: the largest terms first, coefficients in units, powers as small digits.

use std::cmp::Reverse;

use fuseline::tensor::{Algebra, Dim, Symbol};
use indexmap::IndexMap;

use crate::quantity;

/// Longer sums are cut off here.
const MOST_TERMS: usize = 4;

/// An expression such as `2.36 M·batch·seq + 1.54 k·batch·seq²`; a number where it is one.
pub fn formula(dim: &Dim) -> String {
    if let Some(n) = dim.as_int() {
        return quantity::count(n as f64);
    }
    let mut terms = dim.interpret(&Polynomials).0;
    terms.sort_by_key(|term| Reverse((term.degree(), term.coefficient)));
    let cut = terms.len().saturating_sub(MOST_TERMS);
    let shown = if cut > 1 { &terms[..MOST_TERMS] } else { &terms[..] };
    let mut text = shown[0].text();
    for term in &shown[1..] {
        match term.text().strip_prefix('-') {
            Some(positive) => text.push_str(&format!(" − {positive}")),
            None => text.push_str(&format!(" + {}", term.text())),
        }
    }
    if cut > 1 {
        text.push_str(&format!(" + {cut} smaller terms"));
    }
    text
}

/// A product of named factors, each with its power.
#[derive(Clone, Debug)]
struct Term {
    coefficient: i64,
    factors: IndexMap<String, u32>,
}

impl Term {
    fn degree(&self) -> u32 {
        self.factors.values().sum()
    }

    fn text(&self) -> String {
        let factors = self.factors.iter().map(|(name, power)| format!("{name}{}", superscript(*power)));
        let factors: Vec<String> = factors.collect();
        match self.coefficient {
            n if factors.is_empty() => quantity::count(n as f64),
            1 => factors.join("·"),
            -1 => format!("-{}", factors.join("·")),
            n => format!("{}·{}", quantity::count(n as f64), factors.join("·")),
        }
    }
}

fn superscript(power: u32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    if power == 1 {
        return String::new();
    }
    power.to_string().bytes().map(|b| DIGITS[usize::from(b - b'0')]).collect()
}

/// A sum of products.
#[derive(Clone, Debug)]
struct Polynomial(Vec<Term>);

impl Polynomial {
    fn factor(name: String) -> Polynomial {
        Polynomial(vec![Term { coefficient: 1, factors: IndexMap::from([(name, 1)]) }])
    }

    fn text(&self) -> String {
        let texts: Vec<String> = self.0.iter().map(Term::text).collect();
        texts.join(" + ").replace("+ -", "− ")
    }

    fn operand(&self) -> String {
        let text = self.text();
        if self.0.len() > 1 { format!("({text})") } else { text }
    }
}

struct Polynomials;

impl Algebra for Polynomials {
    type Number = Polynomial;

    fn int(&self, n: i64) -> Polynomial {
        Polynomial(vec![Term { coefficient: n, factors: IndexMap::new() }])
    }

    fn symbol(&self, symbol: &Symbol) -> Polynomial {
        Polynomial::factor(symbol.to_string())
    }

    fn add(&self, mut a: Polynomial, b: Polynomial) -> Polynomial {
        a.0.extend(b.0);
        a
    }

    fn mul(&self, a: Polynomial, b: Polynomial) -> Polynomial {
        let mut products = Vec::new();
        for x in &a.0 {
            for y in &b.0 {
                let mut product = x.clone();
                product.coefficient = product.coefficient.saturating_mul(y.coefficient);
                for (name, power) in &y.factors {
                    *product.factors.entry(name.clone()).or_insert(0) += power;
                }
                products.push(product);
            }
        }
        Polynomial(products)
    }

    fn floordiv(&self, a: Polynomial, b: Polynomial) -> Polynomial {
        Polynomial::factor(format!("⌊{} / {}⌋", a.operand(), b.operand()))
    }

    fn modulo(&self, a: Polynomial, b: Polynomial) -> Polynomial {
        Polynomial::factor(format!("({} mod {})", a.operand(), b.operand()))
    }

    fn min(&self, a: Polynomial, b: Polynomial) -> Polynomial {
        Polynomial::factor(format!("min({}, {})", a.text(), b.text()))
    }

    fn max(&self, a: Polynomial, b: Polynomial) -> Polynomial {
        Polynomial::factor(format!("max({}, {})", a.text(), b.text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulae_read_well() {
        let (b, s) = (Dim::named("b"), Dim::named("s"));
        assert_eq!(formula(&Dim::int(1_500_000)), "1.50 M");
        assert_eq!(formula(&(&b * &s * &s * 3 + &b * 2_000_000 + 7)), "3·b·s² + 2.00 M·b + 7");
        assert_eq!(formula(&(&b * &s - &s)), "b·s − s");
        assert_eq!(formula(&((&s + 1).floordiv(&Dim::int(2)) * &b)), "b·⌊(s + 1) / 2⌋");
        let many: Dim = (1..8).map(|k| Dim::named(&format!("n{k}"))).sum();
        assert!(formula(&many).ends_with(" + 3 smaller terms"));
    }
}
