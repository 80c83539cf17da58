//! Numbers of 64 bits beside contractions. A vector holds half as many of them, and all vectors of a phase have as many lanes: a mask of i64 that is
//! looked at beside scores would halve the speed of both products of attention. What is computed of such numbers alone becomes a step of its own,
//! and that a phase of its own. Coordinates, which are numbers of 64 bits too, are no such thing: where a step is nothing but a coordinate, those who read it
//! have the coordinate instead, and see what hangs on it (that a mask is causal).

use std::borrow::Cow;

use fuseline::error::Result;
use fuseline::ops::{Expr, ExprNode, Scope, Term};
use fuseline::tensor::DType;
use fuseline::tile::{Builder, Kernel, Op, Schedule, StepId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::Emission;
use super::emitter::Held;
use super::factors::hold;
use super::reach::reached as behind;
use super::rows::dense_offset;

/// Steps are computed beforehand where there are so many times as many scores.
const SCORES: i64 = 4;

/// Attention in which maps read nothing of 64 bits but in steps that read nothing else, as far as that goes; any other kernel as it is.
pub(super) fn narrowed(kernel: Cow<'_, Kernel>) -> Cow<'_, Kernel> {
    let reads_wide = |op: &Op| matches!(op, Op::Map { expr, .. } if expr.args().iter().any(|dtype| is_wide(*dtype)));
    let is_attention = matches!(kernel.schedule, Schedule::Attention { .. });
    match is_attention && kernel.steps.iter().any(|step| reads_wide(&step.op)) {
        true => rebuild(&kernel).map_or(kernel, Cow::Owned),
        false => kernel,
    }
}

/// Computes what is made of numbers of 64 bits alone, in phases that may have fewer lanes than others.
pub(super) fn hold_narrow(emission: &mut Emission<'_>, held: &mut FxHashMap<StepId, Held>) -> Result<()> {
    let bound = emission.bound;
    let kernel = bound.kernel;
    let Schedule::Attention { chain, .. } = &kernel.schedule else { return Ok(()) };
    let scores = bound.count(kernel.step(chain.first).axes);
    for (k, step) in kernel.steps.iter().enumerate() {
        let Op::Map { expr, .. } = &step.op else { continue };
        let of_wide = !expr.args().is_empty() && expr.args().iter().all(|dtype| is_wide(*dtype));
        let id = StepId(k as u32);
        if !of_wide || expr.has_coordinates() || is_wide(step.dtype) || bound.count(step.axes) * SCORES > scores {
            continue;
        }
        // Folds come later.
        if behind(kernel, &[id], &|id| held.contains_key(&id)).iter().any(|id| kernel.step(*id).op.is_fold()) {
            continue;
        }
        let order: Vec<usize> = step.axes.iter().collect();
        let place = hold(emission, "convert", id, dense_offset(&order, &bound.extents), &order, held)?;
        held.insert(id, place);
    }
    Ok(())
}

fn is_wide(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::U64 | DType::F64)
}

/// An expression with coordinates instead of arguments of 64 bits that are computed of coordinates alone; with it, which arguments are left.
fn with_coordinates(kernel: &Kernel, expr: &Expr, args: &[StepId]) -> (Expr, SmallVec<[usize; 3]>) {
    let known = |k: usize| match &kernel.step(args[k]).op {
        Op::Map { expr, args } if args.is_empty() && is_wide(expr.dtype()) => Some(expr),
        _ => None,
    };
    let left: SmallVec<[usize; 3]> = (0..args.len()).filter(|k| known(*k).is_none()).collect();
    if left.len() == args.len() {
        return (expr.clone(), left);
    }
    let dtypes: Vec<DType> = left.iter().map(|k| expr.args()[*k]).collect();
    let inlined = Expr::build(&dtypes, |scope, terms| {
        expr.inline_with(scope, |node| match node {
            ExprNode::Arg(k) => match left.iter().position(|own| own == &(*k as usize)) {
                Some(at) => Some(terms[at]),
                None => known(*k as usize).map(|known| known.inline(scope, &[])),
            },
            _ => None,
        })
    });
    (inlined, left)
}

/// An expression in parts.
struct Cut {
    /// what is computed of arguments of 64 bits alone: the expression, and which arguments these are
    parts: Vec<(Expr, SmallVec<[usize; 3]>)>,
    /// the rest, whose arguments are the parts and then these
    rest: Expr,
    others: SmallVec<[usize; 3]>,
}

impl Cut {
    /// The parts of an expression that is not one as a whole, if nothing of 64 bits is left beside them.
    fn of(expr: &Expr) -> Option<Cut> {
        if is_wide(expr.dtype()) || !expr.args().iter().any(|dtype| is_wide(*dtype)) {
            return None;
        }
        let nodes = expr.nodes();
        // of every node: whether it needs arguments of 64 bits, and whether it needs anything else that varies
        let mut needs: Vec<(bool, bool)> = Vec::with_capacity(nodes.len());
        for (node, dtype) in nodes {
            let own = match node {
                ExprNode::Arg(_) => (is_wide(*dtype), !is_wide(*dtype)),
                ExprNode::Coord(_) => (false, true),
                _ => (false, false),
            };
            let all = node.operands().iter().map(|operand| needs[*operand as usize]);
            needs.push(all.fold(own, |a, b| (a.0 || b.0, a.1 || b.1)));
        }
        let is_part = |k: usize| needs[k] == (true, false) && !is_wide(nodes[k].1);
        let root = nodes.len() - 1;
        if is_part(root) {
            return None;
        }
        let (found, others) = reached(nodes, root, &is_part);
        if found.is_empty() || others.iter().any(|k| is_wide(expr.args()[*k])) {
            return None;
        }
        let scope = Scope::default();
        let mut terms: Vec<Term<'_>> = Vec::with_capacity(nodes.len());
        for (node, dtype) in nodes {
            let operands: SmallVec<[Term<'_>; 3]> = node.operands().iter().map(|k| terms[*k as usize]).collect();
            terms.push(scope.step(node, *dtype, &operands));
        }
        let argument = |k: &usize| scope.argument(*k, expr.args()[*k]);
        let part = |k: &usize| {
            let (_, args) = reached(nodes, *k, &|_| false);
            (Expr::of(terms[*k], &args.iter().map(argument).collect::<Vec<_>>()), args)
        };
        let left: Vec<Term<'_>> = found.iter().map(|k| terms[*k]).chain(others.iter().map(argument)).collect();
        Some(Cut { parts: found.iter().map(part).collect(), rest: Expr::of(terms[root], &left), others })
    }
}

/// The parts that a node needs, in order, and the arguments that it needs beside them.
fn reached(
    nodes: &[(ExprNode, DType)],
    root: usize,
    is_part: &dyn Fn(usize) -> bool,
) -> (Vec<usize>, SmallVec<[usize; 3]>) {
    let (mut parts, mut args) = (Vec::new(), SmallVec::new());
    let mut seen = vec![false; nodes.len()];
    let mut todo = vec![root];
    while let Some(k) = todo.pop() {
        if std::mem::replace(&mut seen[k], true) {
            continue;
        }
        match &nodes[k].0 {
            _ if is_part(k) => parts.push(k),
            ExprNode::Arg(arg) => args.push(*arg as usize),
            node => todo.extend(node.operands().iter().map(|operand| *operand as usize)),
        }
    }
    parts.sort_unstable();
    args.sort_unstable();
    (parts, args)
}

/// The kernel with every expression cut that can be.
fn rebuild(kernel: &Kernel) -> Result<Kernel> {
    let mut b = Builder::new();
    for extent in &kernel.axes {
        b.axis(extent.clone())?;
    }
    for param in &kernel.inputs {
        b.input(param.clone());
    }
    for param in &kernel.outputs {
        b.output(param.clone());
    }
    b.rounding(kernel.rounding);
    let mut places: Vec<StepId> = Vec::with_capacity(kernel.steps.len());
    for step in &kernel.steps {
        let mut op = step.op.clone();
        if let Op::Map { expr, args } = &mut op {
            let (inlined, left) = with_coordinates(kernel, expr, args);
            (*expr, *args) = (inlined, left.iter().map(|k| args[*k]).collect());
        }
        rename(&mut op, &places);
        if let Op::Map { expr, args } = &mut op
            && let Some(cut) = Cut::of(expr)
        {
            let mut operands: SmallVec<[StepId; 3]> = SmallVec::new();
            for (part, of) in cut.parts {
                operands.push(b.step(Op::Map { expr: part, args: of.iter().map(|k| args[*k]).collect() })?);
            }
            operands.extend(cut.others.iter().map(|k| args[*k]));
            op = Op::Map { expr: cut.rest, args: operands };
        }
        places.push(b.step(op)?);
    }
    for store in &kernel.stores {
        b.store(store.output, &store.index, places[store.value.index()]);
    }
    let mut schedule = kernel.schedule.clone();
    if let Schedule::Attention { chain, corrections, .. } = &mut schedule {
        let corrected = corrections.iter_mut().flat_map(|correction| [&mut correction.fold, &mut correction.on]);
        corrected.chain([&mut chain.first, &mut chain.second]).for_each(|id| *id = places[id.index()]);
    }
    b.finish(schedule)
}

/// Gives operands the places that steps have now.
pub(super) fn rename(op: &mut Op, places: &[StepId]) {
    let move_one = |id: &mut StepId| *id = places[id.index()];
    match op {
        Op::Load { reads, .. } => reads.iter_mut().for_each(move_one),
        Op::Random { seed, reads, .. } => reads.iter_mut().chain([seed]).for_each(move_one),
        Op::Map { args, .. } => args.iter_mut().for_each(move_one),
        Op::Reduce { arg, .. } | Op::Prefix { arg, .. } => move_one(arg),
        Op::Dot { a, b, .. } => [a, b].into_iter().for_each(move_one),
    }
}

#[cfg(test)]
mod tests {
    use fuseline::tensor::Env;
    use fuseline::tile::parse;

    use super::*;
    use crate::code::Isa;
    use crate::emit::emitter;
    use crate::emit::{Target, emit};

    const MASKED: &str = "kernel { axes i0: 20, i1: 3, i2: 16, i3: 40, i4: 8 \
        in q: f32[20, 3, 8], k: f32[40, 3, 8], v: f32[40, 3, 16], m: i64[40] out y: f32[20, 3, 16] \
        schedule attention first=%2 second=%8 rows=[i0, i1] stream=[i3] inner=[i4] columns=[i2] tile=64x256x64 \
        %0 = load q[i0, i1, i4] %1 = load k[i3, i1, i4] %2 = dot(%0, %1) over [i4] acc=f32 %3 = load m[i3] \
        %4 = map(%3, %2) select(bool(a), f32(0.0), f32(-3e38)) + b * 0.125 %5 = reduce.max %4 over [i3] \
        %6 = map(%4, %5) exp(a - b) %7 = load v[i3, i1, i2] %8 = dot(%6, %7) over [i3] acc=f32 \
        %9 = reduce.sum %6 over [i3] %10 = map(%8, %9) a / b store y[i0, i1, i2] = %10 \
        correct %8 on %5 by select(a == b, 1.0, exp(a - b)) correct %9 on %5 by select(a == b, 1.0, exp(a - b)) }";

    #[test]
    fn a_mask_of_64_bits_is_looked_at_before() {
        let kernel = parse(MASKED).unwrap();
        let narrowed = narrowed(Cow::Borrowed(&kernel));
        let Op::Map { args, .. } = &narrowed.steps[4].op else { panic!("{narrowed}") };
        assert_eq!((args.len(), narrowed.steps[4].dtype, narrowed.steps.len()), (1, DType::F32, 12), "{narrowed}");
        for isa in Isa::available() {
            let emitted = emit(&kernel, &Env::default(), &Target::new(isa, 2)).unwrap();
            let wide: Vec<&str> = emitted
                .phases
                .iter()
                .filter(|phase| emitter::is_wide(&phase.program))
                .map(|phase| phase.name)
                .collect();
            assert_eq!(wide, ["convert"]);
            let last = emitted.phases.last().unwrap();
            assert_eq!((last.name, last.program.lanes as usize), ("attention", isa.vector_bytes() / 4));
        }
    }

    #[test]
    fn steps_that_are_coordinates_are_coordinates() {
        let text = MASKED.replace("%3 = load m[i3]", "%3 = map() i3");
        let text = text.replace("select(bool(a), f32(0.0), f32(-3e38)) + b * 0.125", "select(a <= i0, b, -inf)");
        let kernel = parse(&text.replace("m: i64[40]", "m: f32[40]")).unwrap();
        let narrowed = narrowed(Cow::Borrowed(&kernel));
        let Op::Map { expr, args } = &narrowed.steps[4].op else { panic!("{narrowed}") };
        assert_eq!(
            (args.as_slice(), fuseline::tile::first_masked(expr, 3, 0)),
            (&[StepId(2)][..], Some(1)),
            "{narrowed}"
        );
        for isa in Isa::available() {
            let emitted = emit(&kernel, &Env::default(), &Target::new(isa, 2)).unwrap();
            assert!(emitted.phases.iter().all(|phase| !emitter::is_wide(&phase.program)), "{isa:?}");
        }
    }

    #[test]
    fn packing_by_rows_of_a_table_leaves_products_their_lanes() {
        let text =
            MASKED.replace("m: i64[40]", "m: f32[40], t: f32[50, 8]").replace("%3 = load m[i3]", "%3 = map() i3");
        let text = text.replace("select(bool(a), f32(0.0), f32(-3e38)) + b * 0.125", "select(a <= i0, b, -inf)");
        let text = text.replace(
            "%1 = load k[i3, i1, i4] %2 = dot(%0, %1)",
            "%11 = map() i3 + 1 %12 = load t[@0, i4] reading (%11) %13 = load k[i3, i1, i4] %1 = map(%12, %13) a * b %2 = dot(%0, %1)",
        );
        let kernel = parse(&text).unwrap_or_else(|e| panic!("{e}"));
        for isa in Isa::available() {
            let emitted = emit(&kernel, &Env::default(), &Target::new(isa, 2)).unwrap();
            let last = emitted.phases.last().unwrap();
            assert_eq!((last.name, last.program.lanes as usize), ("attention", isa.vector_bytes() / 4), "{isa:?}");
        }
    }

    #[test]
    fn what_is_mixed_stays_together() {
        for with in ["select(bool(a), f32(0.0), f32(i3)) + b", "f32(a + i3) + b", "select(a < i64(b), b, 0.0)"] {
            let text = MASKED.replace("select(bool(a), f32(0.0), f32(-3e38)) + b * 0.125", with);
            let kernel = parse(&text).unwrap_or_else(|e| panic!("{with}: {e}"));
            let narrowed = narrowed(Cow::Borrowed(&kernel));
            assert_eq!(narrowed.steps.len(), if with.contains("bool") { 12 } else { 11 }, "{with}\n{narrowed}");
        }
    }
}
