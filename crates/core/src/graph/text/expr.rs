//! Scalar expressions as text, such as `{ t0 = exp(a - b); t0 / (t0 + 1.0) }`.
//!
//! Arguments are letters, coordinates `i0`, `i1`, sizes `size(n + 1)`. A step that is used several times, or lies too
//! deep, gets a name. A constant is written plainly beside an operand that shows its type, otherwise as `f32(2.0)`;
//! around anything else that is a cast, and `bits_f32(…)` reads stored bits as another type.

use super::number;
use crate::ops::{Expr, ExprNode, Scalar, Signature};

/// A step whose tree would be deeper gets a name, so that expressions stay readable and parse without deep recursion.
const MOST_DEEP: usize = 12;

/// How tightly an operator binds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Binding {
    Comparison,
    Sum,
    Product,
    Unary,
    Atom,
}

/// The binary functions that are written between their operands.
pub(super) const INFIX: &[(&str, Scalar, Binding)] = &[
    // Longer ones first: the reader takes the first that fits.
    ("<=", Scalar::Le, Binding::Comparison),
    ("==", Scalar::Eq, Binding::Comparison),
    ("<", Scalar::Lt, Binding::Comparison),
    ("+", Scalar::Add, Binding::Sum),
    ("-", Scalar::Sub, Binding::Sum),
    ("*", Scalar::Mul, Binding::Product),
    ("/", Scalar::Div, Binding::Product),
];

/// The name of an argument: a letter, then `a26`, `a27` and so on.
pub(super) fn arg_name(k: usize) -> String {
    match u8::try_from(k) {
        Ok(k) if k < 26 => char::from(b'a' + k).to_string(),
        _ => format!("a{k}"),
    }
}

/// An expression as text.
pub(crate) fn text(expr: &Expr) -> String {
    let nodes = expr.nodes();
    let mut uses = vec![0; nodes.len()];
    nodes.iter().flat_map(|(node, _)| node.operands()).for_each(|o| uses[*o as usize] += 1);
    let mut printer = Printer { expr, texts: Vec::with_capacity(nodes.len()) };
    let (mut named, mut depths): (Vec<String>, Vec<usize>) = (Vec::new(), Vec::new());
    for (k, (node, _)) in nodes.iter().enumerate() {
        let operands = node.operands();
        let depth = 1 + operands.iter().map(|o| depths[*o as usize]).max().unwrap_or(0);
        let (text, binding) = printer.step(k);
        let is_last = k + 1 == nodes.len();
        if !is_last && !operands.is_empty() && (uses[k] > 1 || depth > MOST_DEEP) {
            let name = format!("t{}", named.len());
            named.push(format!("{name} = {text}; "));
            printer.texts.push((name, Binding::Atom));
            depths.push(0);
        } else {
            printer.texts.push((text, binding));
            depths.push(depth);
        }
    }
    let (result, _) = printer.texts.pop().unwrap_or((String::new(), Binding::Atom));
    if named.is_empty() { result } else { format!("{{ {}{result} }}", named.concat()) }
}

struct Printer<'e> {
    expr: &'e Expr,
    /// the text of each step, or its name
    texts: Vec<(String, Binding)>,
}

impl Printer<'_> {
    fn step(&self, k: usize) -> (String, Binding) {
        let (node, dtype) = &self.expr.nodes()[k];
        match node {
            ExprNode::Arg(k) => (arg_name(*k as usize), Binding::Atom),
            ExprNode::Const(number) => (format!("{dtype}({})", number::text(*dtype, *number)), Binding::Atom),
            ExprNode::Coord(axis) => (format!("i{axis}"), Binding::Atom),
            ExprNode::Size(dim) => (format!("size({dim})"), Binding::Atom),
            ExprNode::Cast(x) => (format!("{dtype}({})", self.texts[*x as usize].0), Binding::Atom),
            ExprNode::Bits(x) => (format!("bits_{dtype}({})", self.texts[*x as usize].0), Binding::Atom),
            ExprNode::Apply(op, operands) => self.apply(*op, operands),
        }
    }

    fn apply(&self, op: Scalar, operands: &[u32]) -> (String, Binding) {
        let infix = INFIX.iter().find(|(_, scalar, _)| *scalar == op);
        if let (Some((symbol, _, binding)), [a, b]) = (infix, operands) {
            // Operators group from the left; comparisons do not group at all.
            let left = if *binding == Binding::Comparison { Binding::Sum } else { *binding };
            let right = match binding {
                Binding::Comparison => Binding::Sum,
                Binding::Sum => Binding::Product,
                _ => Binding::Unary,
            };
            let text = format!("{} {symbol} {}", self.operand(*a, left, operands), self.operand(*b, right, operands));
            return (text, *binding);
        }
        if op == Scalar::Neg {
            return (format!("-{}", self.operand(operands[0], Binding::Unary, operands)), Binding::Unary);
        }
        // The condition of a select says nothing about the type of its alternatives, nor they about it.
        let same = if op.def().signature == Signature::Select { &operands[1..] } else { operands };
        let texts: Vec<String> = operands
            .iter()
            .enumerate()
            .map(|(k, o)| {
                let alone = same.len() < operands.len() && k == 0;
                self.operand(*o, Binding::Comparison, if alone { &operands[..1] } else { same })
            })
            .collect();
        (format!("{}({})", op.def().name, texts.join(", ")), Binding::Atom)
    }

    /// An operand beside others of the same type, in brackets where it binds less tightly than `least`.
    fn operand(&self, step: u32, least: Binding, beside: &[u32]) -> String {
        let nodes = self.expr.nodes();
        let is_const = |o: &u32| matches!(nodes[*o as usize].0, ExprNode::Const(_));
        if let (ExprNode::Const(number), dtype) = &nodes[step as usize]
            && !beside.iter().all(is_const)
        {
            return number::text(*dtype, *number);
        }
        let (text, binding) = &self.texts[step as usize];
        if *binding < least { format!("({text})") } else { text.clone() }
    }
}
