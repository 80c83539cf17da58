//! Kernels that fold rows, or rows and columns, said with less.
//!
//! Gradients read what the forward pass has computed under other names, and with other signs. Here all that such a kernel folds and stores is
//! one set of formulas of what it loads, so that equal parts are computed once, and what does not vary along a sum is multiplied behind it. Sums
//! of a row that need another one of the same row only for some of their terms are cut, if that saves a pass: `Σ (a·s + b)` is `s·Σ a + Σ b`; and
//! what is left of numbers when their mean is taken away sums up to nothing. Last, products are grouped by what they have in common.

use fuseline::ops::normal::{LeafRank, Normalizer};
use fuseline::ops::prim::Monoid;
use fuseline::ops::{Expr, ExprNode, Number, Scalar, Scope, Term};
use fuseline::passes::Numerics;
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{AxisSet, Kernel, Op, Rounding, Schedule, Step, StepId, Store};
use rustc_hash::{FxHashMap, FxHashSet};

use super::affine::affine;
use super::share_products::{Sharing, summands};

/// What terms are made of: a load, or a fold of a term.
struct Leaf {
    number: usize,
    op: Op,
    /// the place of what is folded
    arg: Option<u32>,
    dtype: DType,
    axes: AxisSet,
    /// how many folds stand behind each other, down to loads
    depth: usize,
}

/// Formulas under construction.
struct Work<'s> {
    scope: &'s Scope,
    normalizer: Normalizer<'s>,
    leaves: Vec<Leaf>,
    /// leaves by the number that they have as arguments: that of their step, or one behind all of these
    numbers: FxHashMap<usize, usize>,
    /// steps of the kernel as it was
    steps: usize,
    across: AxisSet,
    /// sizes of the kernel's axes
    extents: Vec<Dim>,
}

/// Sums that may be cut off others.
const MOST_APART: usize = 64;

/// The number of the argument that stands for what is nothing.
const NOTHING: usize = u32::MAX as usize;

/// Products inside of products, down to which a sum among their factors is looked for.
const MOST_NESTED: usize = 4;

/// The same kernel with less to compute; none where there is nothing to gain, or where every operation is rounded by itself.
pub(super) fn tidied(kernel: &Kernel) -> Option<Kernel> {
    let (across, along) = match &kernel.schedule {
        Schedule::Column { across, along, .. } => (*across, *along),
        Schedule::Row { along, .. } => (AxisSet::EMPTY, *along),
        _ => return None,
    };
    let is_plain = |step: &Step| match &step.op {
        Op::Load { reads, .. } => reads.is_empty(),
        // The largest of what is more than a load keeps its value, so that what it is taken from cancels.
        Op::Reduce { monoid: Monoid::Sum, .. } => step.dtype.is_float(),
        Op::Reduce { monoid, arg, .. } => {
            let is_loaded = match &kernel.step(*arg).op {
                Op::Load { .. } => true,
                Op::Map { expr, .. } => expr.is_cast(),
                _ => false,
            };
            !monoid.is_position() && is_loaded
        }
        Op::Map { expr, .. } => !expr.nodes().iter().any(|(_, dtype)| *dtype == DType::F64),
        _ => false,
    };
    if kernel.rounding == Rounding::Every || !kernel.steps.iter().all(is_plain) {
        return None;
    }
    let scope = Scope::default();
    // What varies most stands last in a product.
    let rank = |k: usize| {
        let axes = kernel.steps.get(k).map_or(1, |step| step.axes.iter().count());
        LeafRank { level: 1 + axes as u8, rank: k as u64 }
    };
    let ranks = (0..kernel.steps.len() + MOST_APART).map(rank).collect();
    let normalizer = Normalizer::ranked(&scope, Numerics::Default, ranks, kernel.axes.clone());
    let numbers = FxHashMap::default();
    let (leaves, steps, extents) = (Vec::new(), kernel.steps.len(), kernel.axes.clone());
    let mut work = Work { scope: &scope, normalizer, leaves, numbers, steps, across, extents };
    let mut terms: Vec<Term<'_>> = Vec::with_capacity(kernel.steps.len());
    let mut nothings = FxHashMap::default();
    for (k, step) in kernel.steps.iter().enumerate() {
        let term = match &step.op {
            Op::Map { expr, args } => {
                let args: Vec<Term<'_>> = args.iter().map(|arg| terms[arg.index()]).collect();
                let term = expr.inline(&scope, &args);
                without_nothing(&scope, term, &mut nothings).unwrap_or_else(|| work.nothing(step.dtype))
            }
            Op::Reduce { monoid: Monoid::Sum, arg, .. } if is_nothing(terms[arg.index()]) => work.nothing(step.dtype),
            Op::Reduce { monoid: Monoid::Sum, over, arg } => work.sum(k, terms[arg.index()], *over, step),
            Op::Reduce { monoid, over, arg } => {
                let arg = work.normalizer.normal(or_zero(&scope, terms[arg.index()]));
                work.fold(k, *monoid, arg, *over, step.dtype, step.axes)
            }
            op => work
                .leaf(k, Leaf { number: k, op: op.clone(), arg: None, dtype: step.dtype, axes: step.axes, depth: 0 }),
        };
        terms.push(term);
    }
    let stored = kernel.stores.iter().map(|store| or_zero(&scope, terms[store.value.index()]));
    let stores: Vec<u32> = stored.map(|term| work.normalizer.normal(term).place()).collect();
    work.forget_unread(&stores);
    let stores = work.share_products(along, stores);
    let stores = if is_near(kernel) { work.multiply_add(along, stores) } else { stores };
    let written = work.written(kernel, &stores);
    // Where nothing but rows is folded, formulas are as short as a graph's passes make them; what can be gained are passes over a row.
    let is_gain = !across.is_empty() || passes(&written) < passes(kernel);
    is_gain.then_some(written)
}

/// How many folds stand behind each other in what a kernel stores.
fn passes(kernel: &Kernel) -> usize {
    let mut depth = vec![0usize; kernel.steps.len()];
    for (k, step) in kernel.steps.iter().enumerate() {
        let below = step.op.operands().iter().map(|operand| depth[operand.index()]).max().unwrap_or(0);
        depth[k] = below + usize::from(step.op.is_fold());
    }
    kernel.stores.iter().map(|store| depth[store.value.index()]).max().unwrap_or(0)
}

/// What a term is the sum of, also where a sum is multiplied by something: `a·(b + c)` is `a·b + a·c`.
fn spread(term: Term<'_>, deepest: usize) -> Vec<(Term<'_>, bool)> {
    let found = summands(term);
    let &[(term, is_negative)] = found.as_slice() else { return found };
    let (op, a, b) = match (term.node(), term.operands().as_slice()) {
        (ExprNode::Apply(op @ (Scalar::Mul | Scalar::Div), _), &[a, b]) if deepest > 0 => (op, a, b),
        _ => return found,
    };
    let (of_a, of_b) = (spread(a, deepest - 1), if op == Scalar::Mul { spread(b, deepest - 1) } else { Vec::new() });
    let sign = |part: bool| part ^ is_negative;
    match (of_a.len() > 1, of_b.len() > 1) {
        (true, false) if op == Scalar::Mul => of_a.into_iter().map(|(part, minus)| (part * b, sign(minus))).collect(),
        (true, false) => of_a.into_iter().map(|(part, minus)| (part / b, sign(minus))).collect(),
        (false, true) => of_b.into_iter().map(|(part, minus)| (a * part, sign(minus))).collect(),
        _ => found,
    }
}

fn is_nothing(term: Term<'_>) -> bool {
    matches!(term.node(), ExprNode::Arg(number) if number as usize == NOTHING)
}

fn or_zero<'s>(scope: &'s Scope, term: Term<'s>) -> Term<'s> {
    if is_nothing(term) { scope.constant(term.dtype(), Number::new(term.dtype(), 0.0)) } else { term }
}

/// A term without sums that are nothing, and what is multiplied by them.
fn without_nothing<'s>(scope: &'s Scope, term: Term<'s>, known: &mut FxHashMap<u32, Option<u32>>) -> Option<Term<'s>> {
    if let Some(found) = known.get(&term.place()) {
        return found.map(|place| scope.term(place));
    }
    let parts: Vec<Option<Term<'s>>> =
        term.operands().into_iter().map(|operand| without_nothing(scope, operand, known)).collect();
    let found = match (term.node(), parts.as_slice()) {
        _ if is_nothing(term) => None,
        (ExprNode::Apply(Scalar::Add, _), &[a, None]) | (ExprNode::Apply(Scalar::Sub, _), &[a, None]) => a,
        (ExprNode::Apply(Scalar::Add, _), &[None, b]) => b,
        (ExprNode::Apply(Scalar::Sub, _), &[None, Some(b)]) => Some(-b),
        (ExprNode::Apply(Scalar::Neg, _) | ExprNode::Cast(_), &[None]) => None,
        (ExprNode::Apply(Scalar::Mul, _), &[None, _] | &[_, None]) => None,
        (ExprNode::Apply(Scalar::Div, _), &[None, _]) => None,
        (_, []) => Some(term),
        (node, parts) => {
            let zero = |operand: Term<'s>| scope.constant(operand.dtype(), Number::new(operand.dtype(), 0.0));
            let operands = term.operands().into_iter();
            let whole = parts.iter().zip(operands).map(|(part, operand)| part.unwrap_or_else(|| zero(operand)));
            Some(scope.step(&node, term.dtype(), &whole.collect::<Vec<_>>()))
        }
    };
    known.insert(term.place(), found.map(Term::place));
    found
}

/// Whether all floats that a kernel loads and stores are narrow.
fn is_near(kernel: &Kernel) -> bool {
    let dtypes = || kernel.inputs.iter().chain(&kernel.outputs).map(|param| param.ty.dtype);
    let is_narrow = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
    dtypes().any(is_narrow) && dtypes().all(|dtype| is_narrow(dtype) || !dtype.is_float())
}

impl<'s> Work<'s> {
    /// One more leaf, with the number of a step if no other leaf has it.
    fn leaf(&mut self, step: usize, leaf: Leaf) -> Term<'s> {
        let number = if self.numbers.contains_key(&step) { self.steps + self.leaves.len() } else { step };
        let term = self.scope.argument(number, leaf.dtype);
        self.numbers.insert(number, self.leaves.len());
        self.leaves.push(Leaf { number, ..leaf });
        term
    }

    fn fold(
        &mut self,
        step: usize,
        monoid: Monoid,
        arg: Term<'s>,
        over: AxisSet,
        dtype: DType,
        axes: AxisSet,
    ) -> Term<'s> {
        let depth = self.depth(arg) + 1;
        // The argument is known once all is.
        let op = Op::Reduce { monoid, over, arg: StepId(0) };
        self.leaf(step, Leaf { number: step, op, arg: Some(arg.place()), dtype, axes, depth })
    }

    /// A fold of a term that there is already.
    fn known_fold(&self, monoid: Monoid, arg: Term<'s>, over: AxisSet, axes: AxisSet) -> Option<Term<'s>> {
        let is_same = |leaf: &&Leaf| {
            let is_fold =
                matches!(leaf.op, Op::Reduce { monoid: own, over: along, .. } if own == monoid && along == over);
            is_fold && leaf.arg == Some(arg.place()) && leaf.dtype == arg.dtype() && leaf.axes == axes
        };
        self.leaves.iter().find(is_same).map(|leaf| self.scope.argument(leaf.number, leaf.dtype))
    }

    /// The sum of a term, as few sums of what varies.
    fn sum(&mut self, k: usize, term: Term<'s>, over: AxisSet, step: &Step) -> Term<'s> {
        let varies = self.varies(over);
        let whole = self.normalizer.split(term, &varies);
        if self.sums_to_nothing(whole.element, over, step) {
            return self.nothing(step.dtype);
        }
        let deep = self.depth(whole.element);
        let (mut together, mut apart, mut cuts): (Option<Term<'s>>, Vec<_>, bool) = (None, Vec::new(), false);
        for (term, is_negative) in summands(whole.element) {
            let part = self.normalizer.split(term, &varies);
            if !part.is_plain() && self.depth(part.element) < deep {
                if !self.is_centred(part.element, over) {
                    apart.push((part, is_negative));
                }
                cuts = true;
            } else {
                together = Some(match (together, is_negative) {
                    (None, false) => term,
                    (None, true) => -term,
                    (Some(others), false) => others + term,
                    (Some(others), true) => others - term,
                });
            }
        }
        // Folds across rows are read by nothing that is folded. Where there are none, numbers of a row may be so far from 0 that parts of a sum
        // would cancel.
        let is_row = over.common(self.across).is_empty() && !self.across.is_empty();
        let is_saved = is_row && cuts && together.is_none_or(|term| self.depth(term) < deep);
        if !is_saved {
            let fold = self.fold(k, Monoid::Sum, whole.element, over, whole.element.dtype(), step.axes);
            return whole.around(&mut self.normalizer, fold).cast(step.dtype);
        }
        let mut total = together.map(|term| {
            let term = self.normalizer.normal(term);
            self.fold(k, Monoid::Sum, term, over, term.dtype(), step.axes)
        });
        for (part, is_negative) in apart {
            let fold = self.fold(k, Monoid::Sum, part.element, over, part.element.dtype(), step.axes);
            let part = part.around(&mut self.normalizer, fold);
            total = Some(match (total, is_negative) {
                (None, false) => part,
                (None, true) => -part,
                (Some(others), false) => others + part,
                (Some(others), true) => others - part,
            });
        }
        let total = total.unwrap_or_else(|| self.scope.float(whole.element, 0.0));
        whole.around(&mut self.normalizer, total).cast(step.dtype)
    }

    /// Whether parts of a sum, as far as they are known as sums, cancel: `Σ e·(c − g/s)` with `c = Σ e·g / s²` and `s = Σ e`, by which a softmax does not
    /// change with the largest number that it takes away.
    fn sums_to_nothing(&mut self, element: Term<'s>, over: AxisSet, step: &Step) -> bool {
        let varies = self.varies(over);
        let (mut left, summands) = (Vec::new(), spread(element, MOST_NESTED));
        if summands.len() < 2 {
            return false;
        }
        for (term, is_negative) in summands {
            let part = self.normalizer.split(term, &varies);
            let Some(fold) = self.known_fold(Monoid::Sum, part.element, over, step.axes) else { return false };
            let part = part.around(&mut self.normalizer, fold);
            let part = self.without_quotient(part);
            match left.iter().position(|other| *other == (part, !is_negative)) {
                Some(at) => drop(left.remove(at)),
                None => left.push((part, is_negative)),
            }
        }
        left.is_empty()
    }

    /// What stands for a sum that is found to be nothing.
    fn nothing(&self, dtype: DType) -> Term<'s> {
        self.scope.argument(NOTHING, dtype)
    }

    /// `a·s/s` as `a`, where `s` is a sum of exponentials of numbers below their largest: one or more.
    fn without_quotient(&self, term: Term<'s>) -> Term<'s> {
        let (ExprNode::Apply(Scalar::Div, _), &[product, by]) = (term.node(), term.operands().as_slice()) else {
            return term;
        };
        let (ExprNode::Apply(Scalar::Mul, _), &[a, b]) = (product.node(), product.operands().as_slice()) else {
            return term;
        };
        match () {
            () if !self.is_sum_of_weights(by) => term,
            () if a == by => b,
            () if b == by => a,
            () => term,
        }
    }

    fn is_sum_of_weights(&self, term: Term<'s>) -> bool {
        let leaf = |term: Term<'s>| match term.node() {
            ExprNode::Arg(number) => self.numbers.get(&(number as usize)).map(|at| &self.leaves[*at]),
            _ => None,
        };
        let Some(Leaf { op: Op::Reduce { monoid: Monoid::Sum, over, .. }, arg: Some(arg), .. }) = leaf(term) else {
            return false;
        };
        let weight = self.scope.term(*arg);
        let (ExprNode::Apply(Scalar::Exp, _), &[below]) = (weight.node(), weight.operands().as_slice()) else {
            return false;
        };
        let (ExprNode::Apply(Scalar::Sub, _), &[number, most]) = (below.node(), below.operands().as_slice()) else {
            return false;
        };
        let most = leaf(most);
        most.is_some_and(|most| {
            let is_most = matches!(&most.op, Op::Reduce { monoid: Monoid::Max, over: own, .. } if own == over);
            is_most && most.arg == Some(number.place())
        })
    }

    /// Whether a term is what is left of numbers when their mean along some axes is taken away, or its negative.
    fn is_centred(&self, term: Term<'s>, over: AxisSet) -> bool {
        let (ExprNode::Apply(Scalar::Sub, _), &[a, b]) = (term.node(), term.operands().as_slice()) else {
            return false;
        };
        let is_mean = |mean: Term<'s>, of: Term<'s>| {
            let (ExprNode::Apply(Scalar::Div, _), &[sum, count]) = (mean.node(), mean.operands().as_slice()) else {
                return false;
            };
            let ExprNode::Arg(number) = sum.node() else { return false };
            let leaf = &self.leaves[self.numbers[&(number as usize)]];
            let is_sum = matches!(leaf.op, Op::Reduce { monoid: Monoid::Sum, over: own, .. } if own == over);
            is_sum && leaf.arg == Some(of.place()) && self.is_count(count, over)
        };
        is_mean(a, b) || is_mean(b, a)
    }

    /// Whether a term is the number of elements along some axes.
    fn is_count(&self, term: Term<'s>, over: AxisSet) -> bool {
        let count = over.iter().fold(Dim::int(1), |all, axis| all * &self.extents[axis]);
        let term = if let ExprNode::Cast(_) = term.node() { term.operands()[0] } else { term };
        match (term.node(), count.as_int()) {
            (ExprNode::Size(dim), _) => dim == count,
            (ExprNode::Const(Number::Int(n)), Some(count)) => n == count,
            (ExprNode::Const(Number::Float(bits)), Some(count)) => f64::from_bits(bits) == count as f64,
            _ => false,
        }
    }

    /// Forgets leaves that no store needs.
    fn forget_unread(&mut self, stores: &[u32]) {
        let mut read = FxHashSet::default();
        let mut todo: Vec<u32> = stores.to_vec();
        while let Some(place) = todo.pop() {
            for number in self.leaves_of(self.scope.term(place)) {
                if read.insert(number) {
                    todo.extend(self.leaves[self.numbers[&number]].arg);
                }
            }
        }
        self.leaves.retain(|leaf| read.contains(&leaf.number));
        self.numbers = self.leaves.iter().enumerate().map(|(at, leaf)| (leaf.number, at)).collect();
    }

    /// Whether a leaf varies along some axes.
    fn varies(&self, along: AxisSet) -> impl Fn(&ExprNode) -> bool + use<> {
        let of: FxHashMap<usize, AxisSet> = self.leaves.iter().map(|leaf| (leaf.number, leaf.axes)).collect();
        move |node: &ExprNode| match node {
            ExprNode::Arg(k) => of.get(&(*k as usize)).is_some_and(|axes| !axes.common(along).is_empty()),
            ExprNode::Coord(axis) => along.contains(usize::from(*axis)),
            _ => false,
        }
    }

    /// Stores as few multiply-adds of what varies along a row.
    fn multiply_add(&self, along: AxisSet, stores: Vec<u32>) -> Vec<u32> {
        let varies = self.varies(along);
        let ends: Vec<u32> = self.leaves.iter().filter_map(|leaf| leaf.arg).chain(stores.iter().copied()).collect();
        let known = shared(self.scope, &ends);
        stores.into_iter().map(|store| affine(self.scope, store, &varies, &known)).collect()
    }

    /// Groups products by what they have in common, in all that is folded and in these stores, which are given back.
    fn share_products(&mut self, along: AxisSet, stores: Vec<u32>) -> Vec<u32> {
        let varies = self.varies(along);
        let ends: Vec<u32> = self.leaves.iter().filter_map(|leaf| leaf.arg).chain(stores).collect();
        let mut shared = Sharing::of(self.scope, &ends, &varies).into_iter();
        for leaf in self.leaves.iter_mut().filter(|leaf| leaf.arg.is_some()) {
            leaf.arg = shared.next();
        }
        shared.collect()
    }

    /// How many folds stand behind each other below a term.
    fn depth(&self, term: Term<'s>) -> usize {
        self.leaves_of(term).into_iter().map(|leaf| self.leaves[self.numbers[&leaf]].depth).max().unwrap_or(0)
    }

    fn leaves_of(&self, term: Term<'s>) -> FxHashSet<usize> {
        let (mut found, mut seen, mut todo) = (FxHashSet::default(), FxHashSet::default(), vec![term]);
        while let Some(term) = todo.pop() {
            if seen.insert(term.place()) {
                match term.node() {
                    ExprNode::Arg(k) => {
                        found.insert(k as usize);
                    }
                    _ => todo.extend(term.operands()),
                }
            }
        }
        found
    }

    /// The kernel: leaves in their order, and of terms those that several folds and stores read as steps of their own.
    fn written(&self, kernel: &Kernel, stores: &[u32]) -> Kernel {
        let ends: Vec<u32> = self.leaves.iter().filter_map(|leaf| leaf.arg).chain(stores.iter().copied()).collect();
        let mut writer =
            Writer { work: self, shared: shared(self.scope, &ends), steps: Vec::new(), at: FxHashMap::default() };
        for leaf in &self.leaves {
            let op = match (&leaf.op, leaf.arg) {
                (Op::Reduce { monoid, over, .. }, Some(arg)) => {
                    let arg = writer.term(arg);
                    Op::Reduce { monoid: *monoid, over: *over, arg }
                }
                (op, _) => op.clone(),
            };
            writer.steps.push(Step { op, dtype: leaf.dtype, axes: leaf.axes });
            let id = StepId(writer.steps.len() as u32 - 1);
            writer.at.insert(self.scope.argument(leaf.number, leaf.dtype).place(), id);
        }
        let stored = kernel.stores.iter().zip(stores);
        let stores = stored.map(|(store, place)| Store { value: writer.term(*place), ..store.clone() }).collect();
        Kernel { steps: writer.steps, stores, ..kernel.clone() }
    }
}

/// Terms that several ends read and that are work: the largest such terms.
fn shared(scope: &Scope, ends: &[u32]) -> FxHashSet<u32> {
    let last = ends.iter().copied().max().unwrap_or(0);
    let operands: Vec<Vec<u32>> =
        (0..=last).map(|place| scope.term(place).operands().iter().map(|term| term.place()).collect()).collect();
    let mut readers: Vec<FxHashSet<usize>> = vec![FxHashSet::default(); operands.len()];
    for (number, end) in ends.iter().enumerate() {
        let mut todo = vec![*end];
        while let Some(place) = todo.pop() {
            if readers[place as usize].insert(number) {
                todo.extend(&operands[place as usize]);
            }
        }
    }
    // A term whose reader is shared by the same ends is part of that.
    let mut is_inner = vec![false; operands.len()];
    for (place, operands) in operands.iter().enumerate().filter(|(place, _)| !readers[*place].is_empty()) {
        for operand in operands {
            is_inner[*operand as usize] |= readers[*operand as usize] == readers[place];
        }
    }
    let is_work = |place: u32| matches!(scope.term(place).node(), ExprNode::Apply(..));
    let is_shared = |place: &u32| readers[*place as usize].len() > 1 && !is_inner[*place as usize] && is_work(*place);
    (0..=last).filter(is_shared).collect()
}

struct Writer<'w, 's> {
    work: &'w Work<'s>,
    shared: FxHashSet<u32>,
    steps: Vec<Step>,
    /// steps that were written, by the place of their term
    at: FxHashMap<u32, StepId>,
}

impl Writer<'_, '_> {
    /// The step that computes a term.
    fn term(&mut self, place: u32) -> StepId {
        if let Some(id) = self.at.get(&place) {
            return *id;
        }
        let scope = self.work.scope;
        let (mut cut, mut seen, mut todo) = (Vec::new(), FxHashSet::default(), vec![place]);
        let mut axes = AxisSet::EMPTY;
        while let Some(next) = todo.pop() {
            if !seen.insert(next) {
                continue;
            }
            let term = scope.term(next);
            match term.node() {
                ExprNode::Arg(_) => cut.push(next),
                _ if next != place && (self.shared.contains(&next) || self.at.contains_key(&next)) => cut.push(next),
                ExprNode::Coord(axis) => axes = axes.with(usize::from(axis)),
                _ => todo.extend(term.operands().iter().rev().map(|operand| operand.place())),
            }
        }
        let args: Vec<StepId> = cut.iter().map(|place| self.term(*place)).collect();
        let axes = args.iter().fold(axes, |all, arg| all.union(self.steps[arg.index()].axes));
        let terms: Vec<Term<'_>> = cut.iter().map(|place| scope.term(*place)).collect();
        let root = scope.term(place);
        let op = Op::Map { expr: Expr::of(root, &terms), args: args.into() };
        self.steps.push(Step { op, dtype: root.dtype(), axes });
        let id = StepId(self.steps.len() as u32 - 1);
        self.at.insert(place, id);
        id
    }
}
