//! Scalar expressions in C++.

use fuseline::error::Result;
use fuseline::ops::{Expr, ExprNode, Number, Scalar, Threshold, is_kept, threshold};
use fuseline::tensor::{Class, DType, Dim};
use fuseline::tile::{AxisSet, StepId};

use super::body::Body;
use super::code::{Code, Rank};
use super::{element, scalar};

/// An expression that is longer gets lines of its own.
const LONGEST: usize = 88;

/// Nodes of `factor * scale * (number - centre)`.
struct Centred {
    factor: usize,
    number: usize,
    centre: usize,
    scale: usize,
}

impl Body<'_> {
    /// The value of an expression on the innermost level. What is read more than once gets a name.
    pub fn expression(&mut self, expr: &Expr, args: &[StepId]) -> Result<Code> {
        self.nodes(expr.nodes(), args)
    }

    /// The value of a part of an expression: of one of its nodes.
    pub fn part_of(&mut self, expr: &Expr, node: u32, args: &[StepId]) -> Result<Code> {
        self.nodes(&expr.nodes()[..=node as usize], args)
    }

    /// The value of an expression of values that are known, all of which vary over some axes.
    pub fn formula(&mut self, expr: &Expr, values: &[Code], axes: AxisSet) -> Result<Code> {
        self.steps(expr.nodes(), values, &vec![axes; values.len()])
    }

    /// The value of an expression that ends with a conversion to a narrow float, before that.
    pub fn expression_to_store(&mut self, expr: &Expr, args: &[StepId]) -> Result<Code> {
        let (last, nodes) = expr.nodes().split_last().expect("an expression has a result");
        match &last.0 {
            ExprNode::Cast(x) if *x as usize + 1 == nodes.len() && nodes[*x as usize].1.is_float() => {
                self.nodes(nodes, args)
            }
            _ => self.nodes(expr.nodes(), args),
        }
    }

    fn nodes(&mut self, nodes: &[(ExprNode, DType)], args: &[StepId]) -> Result<Code> {
        let values = args.iter().map(|arg| self.value(*arg)).collect::<Result<Vec<Code>>>()?;
        let axes: Vec<AxisSet> = args.iter().map(|arg| self.nest.axes[arg.index()]).collect();
        self.steps(nodes, &values, &axes)
    }

    fn steps(&mut self, nodes: &[(ExprNode, DType)], values: &[Code], of_values: &[AxisSet]) -> Result<Code> {
        let mut readers = vec![0u32; nodes.len()];
        for operand in nodes.iter().flat_map(|(node, _)| node.operands()) {
            readers[*operand as usize] += 1;
        }
        let axes = self.axes_of(nodes, of_values);
        let mut codes: Vec<Code> = Vec::with_capacity(nodes.len());
        for (k, (node, dtype)) in nodes.iter().enumerate() {
            // What does not vary here is computed further out.
            for operand in node.operands() {
                let place = *operand as usize;
                let is_hidden = self.is_from_outside(axes[place]) && axes[place] != axes[k];
                if is_hidden && !nodes[place].0.operands().is_empty() && !codes[place].is_name() {
                    codes[place] = self.named("t", element::held(nodes[place].1), axes[place], &codes[place])?;
                }
            }
            let operand = |o: &u32| (codes[*o as usize].clone(), nodes[*o as usize].1);
            let is_kept = is_kept(nodes, k);
            let near = if self.is_near && !is_kept { self.near_form(nodes, &readers, k, &codes, &axes) } else { None };
            let code = match node {
                ExprNode::Arg(number) => values[*number as usize].clone(),
                ExprNode::Const(number) => element::constant(*dtype, *number),
                ExprNode::Coord(axis) => {
                    let dim = self.nest.dim(&Dim::axis(usize::from(*axis)));
                    Code::cast("long long", &self.index(&dim, &[]))
                }
                ExprNode::Size(dim) => {
                    let dim = self.nest.dim(dim);
                    Code::cast("long long", &self.index(&dim, &[]))
                }
                ExprNode::Cast(x) if let Some((function, number)) = saturated(nodes, &readers, *x, *dtype) => {
                    Code::call(function, &[codes[number as usize].clone()])
                }
                ExprNode::Cast(x) => {
                    let (place, (x, from)) = (*x as usize, operand(x));
                    // What is known to fit needs no care.
                    let fits = from.is_float() && from != DType::F64 && fits_an_int(nodes, place);
                    if fits && dtype.is_int() { wrapped(*dtype, Code::cast("int", &x)) } else { cast(from, *dtype, x) }
                }
                ExprNode::Bits(x) => {
                    let (x, from) = operand(x);
                    reinterpreted(from, *dtype, x)?
                }
                ExprNode::Apply(op, operands) if is_kept && let Some(function) = scalar::rounded_alone(*op, *dtype) => {
                    let operands: Vec<Code> = operands.iter().map(|o| codes[*o as usize].clone()).collect();
                    Code::call(function, &operands)
                }
                ExprNode::Apply(..) if let Some(code) = near => code,
                ExprNode::Apply(Scalar::Exp, parts)
                    if self.is_below
                        && let ExprNode::Apply(Scalar::Sub, of) = &nodes[parts[0] as usize].0 =>
                {
                    Code::call("exp_below", &[codes[of[0] as usize].clone(), codes[of[1] as usize].clone()])
                }
                ExprNode::Apply(Scalar::Mul, parts)
                    if self.is_near
                        && !is_kept
                        && let Some(Centred { factor, number, centre, scale }) =
                            self.centred(nodes, &readers, parts, &axes) =>
                {
                    let centre_of_scaled = codes[centre].times(&codes[scale]);
                    let of_row = axes[centre].union(axes[scale]);
                    let centre = self.named("t", "float", of_row, &centre_of_scaled)?;
                    let scaled = codes[number].times(&codes[scale]);
                    codes[factor].times(&Code::infix("-", Rank::Sum, &scaled, &centre))
                }
                ExprNode::Apply(Scalar::Div, parts) if self.divides_many(nodes, &axes, k, parts[1] as usize) => {
                    let place = parts[1] as usize;
                    let by = Code::call(if self.is_near { "divisor_near" } else { "divisor" }, &[codes[place].clone()]);
                    // A factor that all have in common is the divisor's.
                    let moderate = |(_, factor): &(u32, f64)| (1e-6..=1e6).contains(&factor.abs());
                    let (number, by) = match scaled(nodes, &readers, parts[0]).filter(moderate) {
                        Some((number, factor)) => {
                            let factor = element::constant(DType::F32, Number::new(DType::F32, factor));
                            (number, Code::call("times_divisor", &[factor, by]))
                        }
                        None => (parts[0], by),
                    };
                    let by = self.named("d", "Divisor", axes[place], &by)?;
                    Code::call("divided", &[codes[number as usize].clone(), by])
                }
                ExprNode::Apply(Scalar::Div, parts)
                    if self.is_near
                        && let Some(size) = self.size_of(nodes, parts[1]) =>
                {
                    codes[parts[0] as usize]
                        .times(&element::constant(DType::F32, Number::new(DType::F32, size.recip())))
                }
                ExprNode::Apply(Scalar::Div, parts)
                    if self.is_near && self.is_slow && dtype.is_float() && *dtype != DType::F64 =>
                {
                    Code::call("ratio_near", &[codes[parts[0] as usize].clone(), codes[parts[1] as usize].clone()])
                }
                ExprNode::Apply(op, operands) if let Some(threshold) = threshold(nodes, *op, operands) => {
                    compared(threshold, &codes)
                }
                ExprNode::Apply(op, operands) => {
                    let from = nodes[*operands.last().expect("functions have operands") as usize].1;
                    let operands: Vec<Code> = operands.iter().map(|o| codes[*o as usize].clone()).collect();
                    let code = scalar::apply(*op, from, &operands);
                    if scalar::may_leave(*op, *dtype) {
                        wrapped(*dtype, code)
                    } else if self.rounds_everything() && element::is_wrapped(*dtype) {
                        rounded(*dtype, code)
                    } else {
                        code
                    }
                }
            };
            let is_leaf = node.operands().is_empty();
            let is_shared = readers[k] > 1 && !is_leaf;
            if is_shared || (code.len() > LONGEST && k + 1 < nodes.len()) {
                codes.push(self.named("t", element::held(*dtype), axes[k], &code)?);
            } else {
                codes.push(code);
            }
        }
        Ok(codes.pop().expect("an expression has a result"))
    }

    /// A function of what becomes a narrow float at once, so that it need not be as exact as the scalar table says, or several of them in one.
    fn near_form(
        &self,
        nodes: &[(ExprNode, DType)],
        readers: &[u32],
        node: usize,
        codes: &[Code],
        axes: &[AxisSet],
    ) -> Option<Code> {
        let (ExprNode::Apply(op, parts), dtype) = &nodes[node] else { return None };
        let code = |place: u32| codes[place as usize].clone();
        let (name, args) = match op {
            Scalar::Div if is_inverse_root(nodes, parts) => {
                ("inverse_root_near", vec![code(nodes[parts[1] as usize].0.operands()[0])])
            }
            _ if *dtype == DType::F64 => return None,
            Scalar::Add => {
                let x = erf_plus_one(nodes, readers, parts)?;
                match of_root(nodes, readers, x) {
                    Some(factor) => ("twice_normal_near", vec![code(factor)]),
                    None => ("erf_plus_one_near", vec![code(x)]),
                }
            }
            Scalar::Mul => match times_normal(nodes, readers, parts) {
                Some(number) => ("gelu_near", vec![code(number)]),
                None => return scaled_power(nodes, readers, parts, codes),
            },
            Scalar::Exp => match (&nodes[parts[0] as usize].0, scaled(nodes, readers, parts[0])) {
                (_, Some((factor, scale))) => {
                    let scale = Number::new(DType::F32, scale * std::f64::consts::LOG2_E);
                    ("power_near", vec![code(factor).times(&element::constant(DType::F32, scale))])
                }
                // Worth it where the second number is the same for many.
                (ExprNode::Apply(Scalar::Sub, parts), _)
                    if !self.is_deep || self.is_from_outside(axes[parts[1] as usize]) =>
                {
                    (if self.is_deep { "exp_deep" } else { "exp_near" }, parts.iter().map(|part| code(*part)).collect())
                }
                _ => ("exp_near", vec![code(parts[0])]),
            },
            Scalar::Erf => ("erf_near", vec![code(parts[0])]),
            Scalar::Sigmoid => ("sigmoid_near", vec![code(parts[0])]),
            _ => return None,
        };
        Some(Code::call(name, &args))
    }

    /// A factor times what a number differs from its centre, times a scale: centre and scale come from a level further out, so that a product and a sum do for the
    /// difference and its scale. Of narrow floats, a centre is not so much larger than the differences that single precision would not do.
    fn centred(
        &self,
        nodes: &[(ExprNode, DType)],
        readers: &[u32],
        parts: &[u32],
        axes: &[AxisSet],
    ) -> Option<Centred> {
        let is_from_outside = |node: u32| !axes[node as usize].is_empty() && self.is_from_outside(axes[node as usize]);
        let own = |node: u32, wanted: Scalar| match &nodes[node as usize] {
            (ExprNode::Apply(op, parts), DType::F32) if *op == wanted && readers[node as usize] == 1 => {
                Some([parts[0], parts[1]])
            }
            _ => None,
        };
        let of = |product: u32, difference: u32| {
            let ([a, b], [number, centre]) = (own(product, Scalar::Mul)?, own(difference, Scalar::Sub)?);
            let (factor, scale) = if is_from_outside(a) { (b, a) } else { (a, b) };
            let is_centred = is_from_outside(scale) && is_from_outside(centre);
            let varies = !is_from_outside(factor) && !is_from_outside(number);
            let [factor, number, centre, scale] = [factor, number, centre, scale].map(|node| node as usize);
            (is_centred && varies).then_some(Centred { factor, number, centre, scale })
        };
        of(parts[0], parts[1]).or_else(|| of(parts[1], parts[0]))
    }

    /// A size that is a number, as a float.
    fn size_of(&self, nodes: &[(ExprNode, DType)], node: u32) -> Option<f64> {
        let (ExprNode::Cast(size), DType::F32) = &nodes[node as usize] else { return None };
        let ExprNode::Size(dim) = &nodes[*size as usize].0 else { return None };
        self.nest.dim(dim).as_int().filter(|size| *size > 0).map(|size| size as f64)
    }

    /// Whether a divisor comes from a level further out, so that its inverse is worth having. That rounds twice, which is not strict.
    fn divides_many(&self, nodes: &[(ExprNode, DType)], axes: &[AxisSet], quotient: usize, divisor: usize) -> bool {
        let dtype = nodes[quotient].1;
        let is_narrow = dtype.is_float() && dtype != DType::F64 && !self.rounds_everything();
        let is_size = matches!(nodes[divisor].0, ExprNode::Cast(x) if matches!(nodes[x as usize].0, ExprNode::Size(_)));
        let varies = (is_size || !axes[divisor].is_empty()) && axes[divisor] != axes[quotient];
        is_narrow && varies && self.is_from_outside(axes[divisor])
    }

    /// The axes over which the steps of an expression vary, from those over which its arguments do.
    fn axes_of(&self, nodes: &[(ExprNode, DType)], args: &[AxisSet]) -> Vec<AxisSet> {
        let mut axes: Vec<AxisSet> = Vec::with_capacity(nodes.len());
        for (node, _) in nodes {
            let own = match node {
                ExprNode::Arg(number) => args[*number as usize],
                ExprNode::Coord(axis) => AxisSet::mentioned(&self.nest.dim(&Dim::axis(usize::from(*axis)))),
                _ => AxisSet::EMPTY,
            };
            axes.push(node.operands().iter().fold(own, |all, operand| all.union(axes[*operand as usize])));
        }
        axes
    }
}

/// A comparison of a word with a number that is known.
fn compared(threshold: Threshold, codes: &[Code]) -> Code {
    let Threshold { word, least, holds_above } = threshold;
    match u32::try_from(least) {
        Err(_) => Code::atom(if holds_above { "false" } else { "true" }),
        Ok(0) => Code::atom(if holds_above { "true" } else { "false" }),
        Ok(least) => {
            let (word, least) = (&codes[word as usize], Code::atom(format!("{least}u")));
            if holds_above {
                Code::infix("<=", Rank::Order, &least, word)
            } else {
                Code::infix("<", Rank::Order, word, &least)
            }
        }
    }
}

/// Whether a quotient is that of one by a root.
fn is_inverse_root(nodes: &[(ExprNode, DType)], parts: &[u32]) -> bool {
    let is_one = matches!(nodes[parts[0] as usize].0, ExprNode::Const(number) if number.to_f64() == 1.0);
    let is_root = matches!(nodes[parts[1] as usize].0, ExprNode::Apply(Scalar::Sqrt, _));
    is_one && is_root && nodes[parts[1] as usize].1 != DType::F64
}

/// Whether a float is certainly NaN or within the range of `int`.
fn fits_an_int(nodes: &[(ExprNode, DType)], at: usize) -> bool {
    const LIMIT: f64 = 2_147_483_000.0;
    bounds(nodes, at).is_some_and(|(low, high)| -LIMIT <= low && high <= LIMIT)
}

/// The number that becomes an integer of a short type, what the type has no place for being brought to its bounds, and the function that does all of it at once:
/// the nearest integer, or without a fraction. In which order that is written makes no difference, and NaN is 0 in any case.
fn saturated(nodes: &[(ExprNode, DType)], readers: &[u32], float: u32, dtype: DType) -> Option<(&'static str, u32)> {
    let (nearest, whole, low, high) = match dtype {
        DType::I8 => ("nearest_i8", "whole_i8", -128.0, 127.0),
        DType::U8 => ("nearest_u8", "whole_u8", 0.0, 255.0),
        DType::I16 => ("nearest_i16", "whole_i16", -32768.0, 32767.0),
        DType::U16 => ("nearest_u16", "whole_u16", 0.0, 65535.0),
        _ => return None,
    };
    let (mut at, mut is_rounded, mut has_low, mut has_high) = (float, false, false, false);
    while let (ExprNode::Apply(op, parts), DType::F32) = &nodes[at as usize] {
        let beside = |bound: f64| with_constant(nodes, parts).filter(|(_, number)| *number == bound).map(|(x, _)| x);
        let (seen, next) = match op {
            Scalar::Round => (&mut is_rounded, Some(parts[0])),
            Scalar::Max => (&mut has_low, beside(low)),
            Scalar::Min => (&mut has_high, beside(high)),
            _ => break,
        };
        let (Some(next), 1) = (next, readers[at as usize]) else { break };
        (at, *seen) = (next, true);
    }
    (has_low && has_high).then_some((if is_rounded { nearest } else { whole }, at))
}

/// Bounds of a float that is a number, as far as constants show them.
fn bounds(nodes: &[(ExprNode, DType)], at: usize) -> Option<(f64, f64)> {
    let everything = (f64::NEG_INFINITY, f64::INFINITY);
    match &nodes[at].0 {
        ExprNode::Const(number) => Some((number.to_f64(), number.to_f64())),
        ExprNode::Apply(Scalar::Max | Scalar::Min, operands) => {
            let [(a, b), (c, d)] = [0, 1].map(|k| bounds(nodes, operands[k] as usize).unwrap_or(everything));
            let is_max = matches!(&nodes[at].0, ExprNode::Apply(Scalar::Max, _));
            Some(if is_max { (a.max(c), b.max(d)) } else { (a.min(c), b.min(d)) })
        }
        ExprNode::Apply(Scalar::Round | Scalar::Floor | Scalar::Ceil | Scalar::Trunc, operands) => {
            bounds(nodes, operands[0] as usize).map(|(low, high)| (low - 1.0, high + 1.0))
        }
        ExprNode::Cast(x) if nodes[at].1.is_float() => bounds(nodes, *x as usize),
        _ => None,
    }
}

/// An integer whose low bits are right, brought into the range of its type.
pub(super) fn wrapped(dtype: DType, code: Code) -> Code {
    match dtype {
        DType::I8 => Code::cast("signed char", &code),
        DType::U8 => Code::cast("unsigned char", &code),
        DType::I16 => Code::cast("short", &code),
        DType::U16 => Code::cast("unsigned short", &code),
        DType::I2 | DType::I4 => {
            let unused = 32 - dtype.bits();
            Code::atom(format!("((int)((unsigned)({code}) << {unused}) >> {unused})"))
        }
        DType::U2 | DType::U4 => Code::atom(format!("(({code}) & {})", (1 << dtype.bits()) - 1)),
        _ => Code::cast(element::held(dtype), &code),
    }
}

/// What the error function is taken of, where two parts of a sum are that and 1, and nobody else reads it.
fn erf_plus_one(nodes: &[(ExprNode, DType)], readers: &[u32], parts: &[u32]) -> Option<u32> {
    let of = |erf: u32, one: u32| match (&nodes[erf as usize], &nodes[one as usize].0) {
        ((ExprNode::Apply(Scalar::Erf, x), DType::F32), ExprNode::Const(one)) if one.to_f64() == 1.0 => Some(x[0]),
        _ => None,
    };
    let &[a, b] = parts else { return None };
    let found = of(a, b).map(|x| (a, x)).or_else(|| of(b, a).map(|x| (b, x)));
    found.filter(|(erf, _)| readers[*erf as usize] == 1).map(|(_, x)| x)
}

/// What is multiplied with the root of 1/2.
fn of_root(nodes: &[(ExprNode, DType)], readers: &[u32], product: u32) -> Option<u32> {
    let (factor, scale) = scaled(nodes, readers, product)?;
    ((scale - std::f64::consts::FRAC_1_SQRT_2).abs() < 1e-7).then_some(factor)
}

/// The number of which half is multiplied with twice its normal distribution, where nobody else reads either.
fn times_normal(nodes: &[(ExprNode, DType)], readers: &[u32], parts: &[u32]) -> Option<u32> {
    let of = |half: u32, twice: u32| {
        let (number, scale) = scaled(nodes, readers, half)?;
        let (ExprNode::Apply(Scalar::Add, terms), DType::F32) = &nodes[twice as usize] else { return None };
        let under = of_root(nodes, readers, erf_plus_one(nodes, readers, terms)?)?;
        (scale == 0.5 && under == number && readers[twice as usize] == 1).then_some(number)
    };
    let &[a, b] = parts else { return None };
    of(a, b).or_else(|| of(b, a))
}

/// A product with a constant that nobody else reads: the other factor, and the constant.
fn scaled(nodes: &[(ExprNode, DType)], readers: &[u32], product: u32) -> Option<(u32, f64)> {
    let (ExprNode::Apply(Scalar::Mul, parts), DType::F32) = &nodes[product as usize] else { return None };
    with_constant(nodes, parts).filter(|_| readers[product as usize] == 1)
}

/// Of two operands, the one that is no constant, and the constant.
fn with_constant(nodes: &[(ExprNode, DType)], parts: &[u32]) -> Option<(u32, f64)> {
    let of = |factor: u32, constant: u32| match &nodes[constant as usize].0 {
        ExprNode::Const(number) => Some((factor, number.to_f64())),
        _ => None,
    };
    of(parts[0], parts[1]).or_else(|| of(parts[1], parts[0]))
}

/// An exponential times a constant, maybe with another factor between them: the constant is part of the exponent, where adding it is part of
/// a multiply-add.
fn scaled_power(nodes: &[(ExprNode, DType)], readers: &[u32], parts: &[u32], codes: &[Code]) -> Option<Code> {
    let (product, constant) = with_constant(nodes, parts).filter(|(_, factor)| (1e-6..=1e6).contains(factor))?;
    let is_alone = |node: u32| readers[node as usize] == 1 && !codes[node as usize].is_name();
    let power = |exponential: u32| {
        let (ExprNode::Apply(Scalar::Exp, x), DType::F32) = &nodes[exponential as usize] else { return None };
        let is_difference = matches!(nodes[x[0] as usize].0, ExprNode::Apply(Scalar::Sub, _));
        let (factor, scale) = scaled(nodes, readers, x[0]).unwrap_or((x[0], 1.0));
        let [scale, offset] = [scale * std::f64::consts::LOG2_E, constant.log2()]
            .map(|number| element::constant(DType::F32, Number::new(DType::F32, number)));
        let exponent = codes[factor as usize].times(&scale).plus(&offset);
        (is_alone(exponential) && !is_difference).then(|| Code::call("power_near", &[exponent]))
    };
    match &nodes[product as usize] {
        _ if !is_alone(product) => None,
        (ExprNode::Apply(Scalar::Mul, parts), DType::F32) => {
            let with = |factor: u32, exponential: u32| Some(codes[factor as usize].times(&power(exponential)?));
            with(parts[0], parts[1]).or_else(|| with(parts[1], parts[0]))
        }
        _ => power(product),
    }
}

/// The nearest number of a narrow float type.
pub(super) fn rounded(dtype: DType, code: Code) -> Code {
    match element::stored(dtype) {
        Ok(ty) if element::is_wrapped(dtype) => Code::call("widen", &[Code::call(&format!("narrow<{ty}>"), &[code])]),
        _ => code,
    }
}

/// A value of one type converted to another, as the reference does it.
fn cast(from: DType, to: DType, value: Code) -> Code {
    match (from.class(), to.class()) {
        _ if from == to => value,
        (_, Class::Bool) => Code::infix("!=", Rank::Equality, &value, &Code::atom("0")),
        (Class::Bool, _) => Code::cast(element::held(to), &value),
        (Class::Float, Class::Float) => match (from, to) {
            (DType::F64, DType::F32) => Code::cast("float", &value),
            (_, DType::F64) => Code::cast("double", &value),
            (_, DType::F32) => value,
            _ => rounded(to, value),
        },
        (Class::Float, _) => wrapped(to, Code::call("whole", &[value])),
        (_, Class::Float) => match (from.bits(), to) {
            (_, DType::F64) => Code::cast("double", &value),
            (64, DType::F32) => Code::cast("float", &Code::cast("double", &value)),
            (_, DType::F32) => Code::cast("float", &value),
            (..=16, _) => rounded(to, Code::cast("float", &value)),
            _ => rounded(to, Code::cast("double", &value)),
        },
        _ => {
            let (low, high) = to.int_range().expect("integers have a range");
            let (least, most) = from.int_range().expect("integers have a range");
            let fits = low <= least && most <= high;
            if fits && element::held(from) == element::held(to) { value } else { wrapped(to, value) }
        }
    }
}

/// The stored bits of one type read as another that is as wide.
fn reinterpreted(from: DType, to: DType, value: Code) -> Result<Code> {
    let bits = match from {
        DType::F32 => Code::call("__float_as_int", &[value]),
        DType::F64 => Code::call("__double_as_longlong", &[value]),
        _ if from.is_float() => {
            Code::atom(format!("{}.bits", Code::call(&format!("narrow<{}>", element::stored(from)?), &[value])))
        }
        _ => value,
    };
    Ok(match to {
        DType::F32 => Code::call("__int_as_float", &[Code::cast("int", &bits)]),
        DType::F64 => Code::call("__longlong_as_double", &[Code::cast("long long", &bits)]),
        _ if to.is_float() => {
            let ty = element::stored(to)?;
            let unsigned = if to.bits() == 16 { "unsigned short" } else { "unsigned char" };
            Code::call("widen", &[Code::atom(format!("{ty}{{({unsigned})({bits})}}"))])
        }
        _ => wrapped(to, bits),
    })
}

#[cfg(test)]
mod tests {
    use fuseline::tensor::Env;
    use fuseline::tile::parse;

    use super::super::print;
    use super::super::tests::made_for;

    /// What is printed for a map of a float to some type.
    fn mapped(dtype: &str, map: &str) -> String {
        let kernel = format!(
            "kernel {{ axes i0: n in x: f32[n] out y: {dtype}[n] schedule map %0 = load x[i0] %1 = map(%0) {map} store y[i0] = %1 }}"
        );
        print(&parse(&kernel).unwrap(), &made_for(&Env::new())).unwrap().functions
    }

    #[test]
    fn bounds_of_a_short_type_are_what_a_conversion_keeps_to() {
        for (dtype, map, function) in [
            ("i8", "i8(min(max(round(a), -128.0), 127.0))", "nearest_i8("),
            ("i8", "i8(round(max(min(a, 127.0), -128.0)))", "nearest_i8("),
            ("u8", "u8(min(max(round(a) + 3.0, 0.0), 255.0))", "whole_u8("),
            ("u16", "u16(max(round(min(a, 65535.0)), 0.0))", "nearest_u16("),
        ] {
            let text = mapped(dtype, map);
            assert!(text.contains(function) && !text.contains("smaller("), "{map}: {text}");
        }
        // Other bounds, one bound, and what others read too are computed as they are written.
        for (dtype, map) in [
            ("i8", "i8(min(max(round(a), -127.0), 127.0))"),
            ("u8", "u8(max(round(a), 0.0))"),
            ("i8", "{ t0 = min(max(a, -128.0), 127.0); i8(t0 + t0) }"),
        ] {
            let text = mapped(dtype, map);
            assert!(!text.contains("nearest_") && !text.contains("whole_"), "{map}: {text}");
        }
    }

    #[test]
    fn a_difference_from_the_centre_of_a_row_and_its_scale_are_one_operation_for_narrow_floats() {
        let text = |dtype: &str| {
            let kernel = format!(
                "kernel {{ axes i0: n, i1: 4096 in w: {dtype}[4096], x: {dtype}[n, 4096] out y: {dtype}[n, 4096] \
                 schedule row along=[i1] placement=on_chip %0 = load w[i1] %1 = load x[i0, i1] %2 = map(%1) f32(a) \
                 %3 = reduce.sum %2 over [i1] %4 = map(%2, %3) {{ t0 = a - b; t0 * t0 }} %5 = reduce.sum %4 over [i1] \
                 %6 = map(%0, %2, %3, %5) {dtype}(f32(a) * (1.0 / sqrt(d)) * (b - c)) store y[i0, i1] = %6 }}"
            );
            print(&parse(&kernel).unwrap(), &made_for(&Env::new())).unwrap().functions
        };
        let narrow = text("bf16");
        let centre = narrow.lines().find(|line| line.contains(" = s3 * t")).unwrap_or_else(|| panic!("{narrow}"));
        let name = centre.trim().split(' ').nth(2).unwrap();
        assert!(narrow.contains(&format!("- {name})")), "{narrow}");
        assert!(!text("f32").contains(" = s3 * t"), "{}", text("f32"));
    }
}
