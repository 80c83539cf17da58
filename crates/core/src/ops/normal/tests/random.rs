use super::*;

/// A small generator of random numbers (xorshift): the same ones every time.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

const ARGS: usize = 4;
const CASES: usize = 600;
const CONSTANTS: &[f64] =
    &[0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -0.25, 0.1, std::f64::consts::FRAC_1_SQRT_2, 1.702, 6.0, 0.044715];

fn random_expr(random: &mut Random, dtype: DType, steps: usize) -> Expr {
    use Scalar::*;
    Expr::build(&[dtype; ARGS], |scope, args| {
        let mut terms: Vec<Term<'_>> = args.to_vec();
        for _ in 0..steps {
            let recent = terms.len().saturating_sub(6);
            let a = if random.below(3) == 0 { random.pick(&terms) } else { random.pick(&terms[recent..]) };
            let b = if random.below(3) == 0 { c(a, random.pick(CONSTANTS), scope) } else { random.pick(&terms) };
            let (a, b) = if random.below(2) == 0 { (a, b) } else { (b, a) };
            let op = random.pick(&[
                Add, Add, Add, Sub, Sub, Mul, Mul, Mul, Div, Max, Min, Neg, Abs, Sqrt, Exp, Tanh, Sigmoid, Erf, Log1p,
                Expm1, Pow, Select, Log,
            ]);
            terms.push(match op {
                Neg | Tanh | Sigmoid | Erf | Abs => a.apply(op),
                Exp | Expm1 => Term::call(Min, &[a, c(a, 3.0, scope)]).apply(op),
                Sqrt | Log | Log1p => (a.apply(Abs) + c(a, 0.1, scope)).apply(op),
                Div => a / (b * b + c(a, 0.25, scope)),
                Pow => a.pow(c(a, random.pick(&[2.0, 3.0]), scope)),
                Select => a.lt(b).select(a, random.pick(&terms)),
                _ => Term::call(op, &[a, b]),
            });
        }
        terms[terms.len() - 1]
    })
}

/// The value, and the largest number on the way.
fn evaluate(expr: &Expr, args: &[f64]) -> (f64, f64) {
    let mut values: Vec<f64> = Vec::new();
    for (node, _) in expr.nodes() {
        values.push(match node {
            ExprNode::Arg(k) => args[*k as usize],
            ExprNode::Const(number) => number.to_f64(),
            ExprNode::Cast(x) => values[*x as usize],
            ExprNode::Apply(op, operands) => {
                let operands: Vec<f64> = operands.iter().map(|o| values[*o as usize]).collect();
                (op.def().float.unwrap())(&operands)
            }
            other => unreachable!("{other:?} is not made here"),
        });
    }
    let largest = values.iter().fold(1.0f64, |m, v| m.max(v.abs()));
    (*values.last().unwrap(), largest)
}

/// Whether a comparison is close enough to be decided by rounding.
fn is_undecided(expr: &Expr, args: &[f64], margin: f64) -> bool {
    let mut values: Vec<f64> = Vec::new();
    for (node, _) in expr.nodes() {
        let of = |o: &u32| values[*o as usize];
        let value = match node {
            ExprNode::Arg(k) => args[*k as usize],
            ExprNode::Const(number) => number.to_f64(),
            ExprNode::Apply(Scalar::Lt, operands) => {
                let (a, b) = (of(&operands[0]), of(&operands[1]));
                if (a - b).abs() <= margin * (1.0 + a.abs() + b.abs()) {
                    return true;
                }
                f64::from(u8::from(a < b))
            }
            ExprNode::Apply(op, operands) => (op.def().float.unwrap())(&operands.iter().map(of).collect::<Vec<_>>()),
            other => unreachable!("{other:?} is not made here"),
        };
        values.push(value);
    }
    false
}

#[test]
fn random_terms_keep_their_value() {
    let mut random = Random(0x1545_f491_4f6c_dd1d);
    let mut compared = 0;
    for case in 0..CASES {
        let (dtype, tolerance) = if case % 2 == 0 { (DType::F64, 1e-10) } else { (DType::F32, 2e-5) };
        let steps = 2 + random.below(14);
        let expr = random_expr(&mut random, dtype, steps);
        let numerics = random.pick(&[Numerics::Strict, Numerics::Default, Numerics::Fast]);
        let form = normal(&expr, numerics);
        for _ in 0..4 {
            let args: Vec<f64> = (0..ARGS).map(|_| (random.below(4001) as f64 - 2000.0) / 1000.0).collect();
            let ((expected, before), (found, after)) = (evaluate(&expr, &args), evaluate(&form, &args));
            let scale = before.max(after);
            if !expected.is_finite() || scale.is_nan() || scale > 1e4 || is_undecided(&expr, &args, 1e-4) {
                continue;
            }
            compared += 1;
            let close = (expected - found).abs() <= tolerance * scale * scale;
            assert!(close, "case {case} at {args:?}: {expected} {found}\n  {}\n  {}", text(&expr), text(&form));
        }
    }
    assert!(compared > 2 * CASES, "only {compared} values were compared");
}

/// The same formula in other words.
fn scrambled(expr: &Expr, random: &mut Random) -> Expr {
    use Scalar::*;
    Expr::build(expr.args(), |scope, args| {
        let mut terms: Vec<Term<'_>> = Vec::new();
        for (node, dtype) in expr.nodes() {
            let operands: Vec<Term<'_>> = node.operands().iter().map(|o| terms[*o as usize]).collect();
            let real = dtype.is_float() && random.below(3) > 0;
            terms.push(match (node, operands.as_slice()) {
                (ExprNode::Arg(k), _) => args[*k as usize],
                (ExprNode::Apply(Add, _), &[a, b]) if real => match random.below(3) {
                    0 => b + a,
                    1 => a - -b,
                    _ => -(-a - b),
                },
                (ExprNode::Apply(Sub, _), &[a, b]) if real => match random.below(3) {
                    0 => -b + a,
                    1 => -(b - a),
                    _ => a + c(a, -1.0, scope) * b,
                },
                (ExprNode::Apply(Mul, _), &[a, b]) if real && a == b => a.pow(c(a, 2.0, scope)),
                (ExprNode::Apply(Mul, _), &[a, b]) if real => match random.below(3) {
                    0 => b * a,
                    1 => -a * -b,
                    _ => (a * c(a, 0.5, scope)) * (b * c(a, 2.0, scope)),
                },
                (ExprNode::Apply(Div, _), &[a, b]) if real => match random.below(3) {
                    0 => a * (c(a, 1.0, scope) / b),
                    1 => c(a, 1.0, scope) / b * a,
                    _ => -a / -b,
                },
                (ExprNode::Apply(Max, _), &[a, b]) if real => match random.below(2) {
                    0 => Term::call(Max, &[b, a]),
                    _ => -Term::call(Min, &[-a, -b]),
                },
                (ExprNode::Apply(Sqrt, _), &[a]) if real => a.pow(c(a, 0.5, scope)),
                (ExprNode::Apply(Sigmoid, _), &[a]) if real => {
                    c(a, 1.0, scope) / (c(a, 1.0, scope) + (a * c(a, -1.0, scope)).apply(Exp))
                }
                (ExprNode::Apply(op @ (Tanh | Erf), _), &[a]) if real => -(-a).apply(*op),
                (ExprNode::Apply(Abs, _), &[a]) if real => (-a).apply(Abs),
                _ => scope.step(node, *dtype, &operands),
            });
        }
        terms[terms.len() - 1]
    })
}

#[test]
fn random_spellings_have_one_form() {
    let mut random = Random(0x8e37_79b9_7f4a_7c15);
    for case in 0..CASES {
        let steps = 2 + random.below(14);
        let expr = random_expr(&mut random, DType::F32, steps);
        let other = scrambled(&expr, &mut random);
        let numerics = random.pick(&[Numerics::Default, Numerics::Fast]);
        let (a, b) = (normal(&expr, numerics), normal(&other, numerics));
        assert_eq!(a, b, "case {case}:\n  {}\n  {}\n  {}\n  {}", text(&expr), text(&other), text(&a), text(&b));
    }
}
