//! Comparisons of numbers that rise with an integer: `0.1 ≤ f32(word >> 8) · 2^−24`, as dropout asks, holds from one word on, and
//! which that is can be found before anything runs.

use super::{ExprNode, Number, Scalar};
use crate::tensor::DType;

/// The steps of an expression.
type Nodes = [(ExprNode, DType)];

/// A comparison of an unsigned integer of 32 bits with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// the step that is compared
    pub word: u32,
    /// the least integer of those above; 2^32 if there is none
    pub least: u64,
    /// whether the comparison holds above, and not below
    pub holds_above: bool,
}

/// A comparison of floats as one of integers, where that is what it is.
pub fn threshold(nodes: &Nodes, op: Scalar, operands: &[u32]) -> Option<Threshold> {
    let (Scalar::Lt | Scalar::Le, [a, b]) = (op, operands) else { return None };
    let (constant, rising, holds_above) = match (float(nodes, *a), float(nodes, *b)) {
        (Some(c), None) => (c, *b, true),
        (None, Some(c)) => (c, *a, false),
        _ => return None,
    };
    let chain = Chain::to(nodes, rising)?;
    let compare = op.def().float?;
    // Whether a word is above: the comparison as it is, of numbers as every step rounds them.
    let is_above = |word: u64| {
        let number = chain.value(word as u32);
        let arguments = if holds_above { [constant, number] } else { [number, constant] };
        (compare(&arguments) != 0.0) == holds_above
    };
    let (mut least, mut most) = (0u64, 1u64 << 32);
    while least < most {
        let middle = least.midpoint(most);
        if is_above(middle) { most = middle } else { least = middle + 1 }
    }
    Some(Threshold { word: chain.word, least, holds_above })
}

/// Functions that do not fall, one behind another, of an unsigned integer.
struct Chain {
    word: u32,
    links: Vec<Link>,
}

enum Link {
    /// the integer without its low bits
    Shift(u32),
    /// the number with this factor, above 0, rounded
    Times(f64),
}

impl Chain {
    /// The chain that ends with a step of f32.
    fn to(nodes: &Nodes, end: u32) -> Option<Chain> {
        let (mut at, mut links) = (end, Vec::new());
        loop {
            let (node, dtype) = &nodes[at as usize];
            match (node, dtype) {
                (ExprNode::Apply(Scalar::Mul, operands), DType::F32) => {
                    let (factor, rest) = match (float(nodes, operands[0]), float(nodes, operands[1])) {
                        (Some(factor), None) => (factor, operands[1]),
                        (None, Some(factor)) => (factor, operands[0]),
                        _ => return None,
                    };
                    if factor.is_nan() || factor <= 0.0 {
                        return None;
                    }
                    links.push(Link::Times(factor));
                    at = rest;
                }
                (ExprNode::Cast(from), DType::F32) if nodes[*from as usize].1 == DType::U32 => {
                    at = *from;
                    if let ExprNode::Apply(Scalar::Shr, operands) = &nodes[at as usize].0
                        && let ExprNode::Const(Number::Int(by @ 0..32)) = nodes[operands[1] as usize].0
                    {
                        links.push(Link::Shift(by as u32));
                        at = operands[0];
                    }
                    links.reverse();
                    return Some(Chain { word: at, links });
                }
                _ => return None,
            }
        }
    }

    /// The number of a word.
    fn value(&self, word: u32) -> f64 {
        let (mut word, mut number) = (word, None);
        for link in &self.links {
            match link {
                Link::Shift(by) => word >>= by,
                Link::Times(factor) => {
                    let before = number.unwrap_or_else(|| DType::F32.round(f64::from(word)));
                    number = Some(DType::F32.round(before * factor));
                }
            }
        }
        number.unwrap_or_else(|| DType::F32.round(f64::from(word)))
    }
}

/// The number that a step of f32 is.
fn float(nodes: &Nodes, step: u32) -> Option<f64> {
    match nodes[step as usize] {
        (ExprNode::Const(Number::Float(bits)), DType::F32) => Some(f64::from_bits(bits)).filter(|x| !x.is_nan()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The threshold of the last step of an expression of one argument.
    fn found(body: &str) -> Option<Threshold> {
        let text = format!(
            "kernel {{ axes i0: 4\nin x0: u32[4]\nout y0: bool[4]\nschedule map\n%0 = load x0[i0]\n%1 = map(%0) {body}\nstore y0[i0] = %1 }}"
        );
        let kernel = crate::tile::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let crate::tile::Op::Map { expr, .. } = &kernel.steps[1].op else { panic!("a map") };
        let ExprNode::Apply(op, operands) = &expr.nodes().last()?.0 else { return None };
        threshold(expr.nodes(), *op, operands)
    }

    #[test]
    fn the_first_word_that_is_above_is_found() {
        let least = |body: &str| found(body).map(|t| (t.least, t.holds_above));
        // 0.1 as f32 is 1677721.625 · 2^−24.
        assert_eq!(least("0.1 <= f32(shr(a, 8)) * 5.9604645e-8"), Some((1_677_722 << 8, true)));
        assert_eq!(least("f32(shr(a, 8)) * 5.9604645e-8 < 0.5"), Some((1 << 31, false)));
        assert_eq!(least("f32(shr(a, 8)) * 5.9604645e-8 <= 0.5"), Some(((1 << 31) + 256, false)));
        assert_eq!(least("0.0 <= f32(shr(a, 8)) * 5.9604645e-8"), Some((0, true)));
        assert_eq!(least("1.0 <= f32(shr(a, 8)) * 5.9604645e-8"), Some((1 << 32, true)));
        assert_eq!(least("3.0 < f32(a)"), Some((4, true)));
        // Words next to 2^32 round up.
        assert_eq!(least("4294967296.0 <= f32(a)"), Some(((1 << 32) - 128, true)));
        assert_eq!(found("f32(a) * -1.0 < 3.0"), None);
        assert_eq!(found("f32(a) * f32(a) < 3.0"), None);
    }
}
