//! A factor of a product on its way into shared memory: copied as it lies, or computed.

use fuseline::error::Result;
use fuseline::ops::{Expr, ExprNode, Number, Scalar};
use fuseline::tensor::{DType, Dim, Symbol};
use fuseline::tile::{AxisSet, Op, StepId};

use super::body::{Body, Lanes};
use super::element;
use super::nest::{Access, Nest, is_multiple, slope};
use super::points::decode;

/// How the elements of a factor come into shared memory.
#[derive(Clone, Debug)]
enum Source {
    /// so many neighbours at once, by copies that nobody waits for
    Copied { access: Access, width: i64 },
    /// the value of the factor, so many neighbours at once
    Computed { width: i64 },
}

/// A factor of a product.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    /// the factor
    pub factor: StepId,
    /// the type of its elements in shared memory
    pub dtype: DType,
    /// its axes that are not summed, the outermost first; a number counts their points in this order
    free: Vec<usize>,
    /// the axes that are summed
    sum: Vec<usize>,
    /// whether neighbours in memory are steps of the sum
    pub along_sum: bool,
    source: Source,
}

/// A tile of an operand: where it begins, how far the operand goes, and where it is put.
#[derive(Clone, Debug)]
pub(super) struct Part<'a> {
    /// the number of its first free point, and how many points there are in all
    pub free: (&'a str, &'a Dim),
    /// the number of its first step, and how many steps there are in all
    pub sum: (&'a str, &'a Dim),
    /// free points and steps of a tile
    pub tile: (i64, i64),
    /// threads that fill it
    pub threads: i64,
    /// by how many neighbours lines are dealt to threads, as units for matrices leave sums with them: two, if they lie as they come
    pub dealt: i64,
    /// where it lies in shared memory: an address, or a pointer where units for matrices are not used
    pub at: &'a str,
}

/// The narrow float as which a factor can be multiplied: that of its type, or the one that it was before it was widened.
pub(super) fn narrow_type(nest: &Nest<'_>, factor: StepId) -> Option<DType> {
    let step = nest.kernel.step(factor);
    if matches!(step.dtype, DType::BF16 | DType::F16) {
        return Some(step.dtype);
    }
    let Op::Map { expr, .. } = &step.op else { return None };
    let last = expr.nodes().len().checked_sub(1)?;
    [DType::BF16, DType::F16].into_iter().find(|narrow| is_narrow_in(expr, last, *narrow) && !is_constant(expr, last))
}

fn is_constant(expr: &Expr, at: usize) -> bool {
    matches!(expr.nodes()[at].0, ExprNode::Const(_))
}

/// Whether a step of an expression is a number of a narrow type, widened perhaps, wherever it came from.
fn is_narrow_in(expr: &Expr, at: usize, narrow: DType) -> bool {
    let (node, dtype) = &expr.nodes()[at];
    let inner = |x: &u32| is_narrow_in(expr, *x as usize, narrow);
    match node {
        _ if *dtype == narrow => true,
        ExprNode::Cast(x) => *dtype == DType::F32 && expr.nodes()[*x as usize].1 == narrow,
        ExprNode::Const(number) => {
            let is_kept = |x: f64| narrow.round(x).to_bits() == x.to_bits();
            *dtype == DType::F32 && matches!(number, Number::Float(bits) if is_kept(f64::from_bits(*bits)))
        }
        // One of two, none of which is anything but a constant: a padded operand, a maximum with zero.
        ExprNode::Apply(Scalar::Select, of) => {
            let (a, b) = (&of[1], &of[2]);
            inner(a) && inner(b) && !(is_constant(expr, *a as usize) && is_constant(expr, *b as usize))
        }
        _ => false,
    }
}

/// Elements of 16 bytes.
fn pack_of(dtype: DType) -> i64 {
    16 / element::bytes(dtype)
}

impl Operand {
    /// How a factor with these axes comes into shared memory as elements of a type; points are counted in the order of the axes.
    pub fn of(nest: &Nest<'_>, factor: StepId, dtype: DType, free: &[usize], sum: &[usize]) -> Operand {
        let (free, sum) = (free.to_vec(), sum.to_vec());
        if let Some((access, along_sum, width)) = copied(nest, factor, dtype, &free, &sum) {
            let source = Source::Copied { access, width };
            return Operand { factor, dtype, free, sum, along_sum, source };
        }
        let along_sum = lies_along(nest, factor, &sum) >= lies_along(nest, factor, &free);
        let inner = if along_sum { sum.last() } else { free.last() };
        let pack = pack_of(dtype);
        let is_whole = inner.is_some_and(|axis| is_multiple(&nest.extents[*axis], pack));
        let source = Source::Computed { width: if is_whole { pack } else { 1 } };
        Operand { factor, dtype, free, sum, along_sum, source }
    }

    /// Where its elements lie, if they are copied as they are.
    pub fn copied(&self) -> Option<&Access> {
        match &self.source {
            Source::Copied { access, .. } => Some(access),
            Source::Computed { .. } => None,
        }
    }

    /// How many neighbours come at once.
    pub fn width(&self) -> i64 {
        match self.source {
            Source::Copied { width, .. } | Source::Computed { width } => width,
        }
    }

    /// Whether its elements are computed, which takes registers.
    pub fn is_computed(&self) -> bool {
        matches!(self.source, Source::Computed { .. })
    }

    /// The lines of a tile for units for matrices.
    pub fn lines(&self, tile: (i64, i64)) -> i64 {
        if self.along_sum { tile.0 } else { tile.1 }
    }

    /// Bytes of a tile for units for matrices: panels of lines of 128 bytes.
    pub fn tile_bytes(&self, tile: (i64, i64)) -> i64 {
        let line = (if self.along_sum { tile.1 } else { tile.0 }) * element::bytes(self.dtype);
        (line + 127) / 128 * 128 * self.lines(tile)
    }

    /// Prints what fills a tile: lines of 16-byte pieces, swizzled.
    pub fn print_fill(&self, body: &mut Body<'_>, part: &Part<'_>) -> Result<()> {
        let width = match self.source {
            Source::Copied { width, .. } => width,
            Source::Computed { .. } => pack_of(self.dtype),
        };
        let lines = self.lines(part.tile);
        let pack = pack_of(self.dtype);
        let line = if part.dealt > 2 { format!("dealt<{}>(line)", part.dealt) } else { "line".to_owned() };
        let place = if width == pack {
            format!("{} + swizzled<{lines}>({line}, piece)", part.at)
        } else {
            let bytes = element::bytes(self.dtype) * width;
            let pieces = pack / width;
            format!("{} + swizzled<{lines}>({line}, piece / {pieces}) + piece % {pieces} * {bytes}", part.at)
        };
        self.print_pieces(body, part, width, &place, &|ty, count| {
            format!("*(Pack<{ty}, {count}>*)(memory + ({place} - shared)) = packed<{ty}>(v);")
        })
    }

    /// Prints what fills a tile of numbers whose lines are free points, so many elements apart; `place` says where line AT lies.
    pub fn print_line_fill(&self, body: &mut Body<'_>, part: &Part<'_>, pitch: i64, place: &str) -> Result<()> {
        let width = match &self.source {
            Source::Copied { .. } if !self.along_sum => 1,
            Source::Copied { width, .. } => *width,
            Source::Computed { .. } => pack_of(self.dtype),
        };
        let base = part.at;
        let of = |line: &str| format!("{} * {pitch}", place.replace("AT", line));
        let at = match self.along_sum {
            true => format!("{} + piece * {width}", of("line")),
            false => format!("{} + line", of("piece")),
        };
        self.print_pieces(body, part, width, &format!("shared_address({base} + {at})"), &|_, count| {
            if self.along_sum {
                format!("*(Pack<float, {count}>*)({base} + {at}) = packed<float>(v);")
            } else {
                let line = of(&format!("(piece * {count} + e)"));
                format!("#pragma unroll\nfor (int e = 0; e < {count}; ++e) {base}[{line} + line] = v[e];")
            }
        })
    }

    /// Prints what fills a tile of numbers whose lines are steps of the sum, so many elements apart.
    pub fn print_plain_fill(&self, body: &mut Body<'_>, part: &Part<'_>, pitch: i64) -> Result<()> {
        let width = match &self.source {
            Source::Copied { .. } if self.along_sum => 1,
            Source::Copied { width, .. } => *width,
            Source::Computed { .. } => pack_of(self.dtype),
        };
        let at = if self.along_sum {
            format!("piece * {} + line", width * pitch)
        } else {
            format!("line * {pitch} + piece * {width}")
        };
        let place = format!("shared_address({} + {at})", part.at);
        self.print_pieces(body, part, width, &place, &|_, count| {
            if self.along_sum {
                let base = part.at;
                let one = format!("{base}[{at} + e * {pitch}] = v[e];");
                format!("#pragma unroll\nfor (int e = 0; e < {count}; ++e) {one}")
            } else {
                format!("*(Pack<float, {count}>*)({} + {at}) = packed<float>(v);", part.at)
            }
        })
    }

    /// A loop in which every thread fills pieces of so many elements; `line` and `piece` say which.
    fn print_pieces(
        &self,
        body: &mut Body<'_>,
        part: &Part<'_>,
        width: i64,
        place: &str,
        keep: &dyn Fn(&str, i64) -> String,
    ) -> Result<()> {
        let (lines, line) = if self.along_sum { part.tile } else { (part.tile.1, part.tile.0) };
        let pieces = line / width;
        let turns = (lines * pieces + part.threads - 1) / part.threads;
        let axes: AxisSet = self.free.iter().chain(&self.sum).copied().collect();
        body.open(AxisSet::EMPTY);
        body.line(format!("const int line = (turn * {} + threadIdx.x) / {pieces};", part.threads));
        body.line(format!("const int piece = (turn * {} + threadIdx.x) % {pieces};", part.threads));
        let (along, across) = (format!("piece * {width}"), "line".to_owned());
        let (free, sum) = if self.along_sum { (&across, &along) } else { (&along, &across) };
        let is_exact = lines * pieces % part.threads == 0;
        let (free_count, sum_count) = (body.index(part.free.1, &[]), body.index(part.sum.1, &[]));
        let inside = if is_exact { "" } else { "line < LINES && " }.replace("LINES", &lines.to_string());
        match &self.source {
            Source::Copied { access, .. } => {
                body.line(format!("const Index point = {} + {free};", part.free.0));
                body.line(format!("const Index step = {} + {sum};", part.sum.0));
                decode(body, body.nest, &self.free, "point", None);
                decode(body, body.nest, &self.sum, "step", None);
                body.bind(axes);
                let offset = body.index(&access.offset, &[]);
                body.use_parameter(access.tensor.parameter.clone());
                let from = format!("{} + ({offset})", access.tensor.parameter.name());
                let bytes = width * element::bytes(self.dtype);
                let there = self.there(part, &free_count.to_string(), &sum_count.to_string());
                let copy = format!("copy_async<{bytes}>({place}, {from}, {there});");
                body.line(if is_exact { copy } else { format!("if (line < {lines}) {copy}") });
                body.close(&format!("#pragma unroll\nfor (int turn = 0; turn < {turns}; ++turn)"));
            }
            Source::Computed { width: lanes } => {
                let ty = element::stored(self.dtype)?;
                body.line(format!("float v[{width}] = {{}};"));
                if *lanes > 1 {
                    self.print_lanes(body, part, (free, sum), &inside, *lanes)?;
                } else {
                    self.print_single(body, part, (free, sum), &inside, width)?;
                }
                let keep = keep(ty, width);
                if is_exact {
                    keep.lines().for_each(|line| body.line(line));
                } else {
                    body.open(AxisSet::EMPTY);
                    keep.lines().for_each(|line| body.line(line));
                    body.close(&format!("if (line < {lines})"));
                }
                body.close(&format!("#pragma unroll 2\nfor (int turn = 0; turn < {turns}; ++turn)"));
            }
        }
        Ok(())
    }

    /// Brings some tiles, one after another along the sum, from memory into the cache that all processors share.
    pub fn print_prefetch(&self, body: &mut Body<'_>, part: &Part<'_>) {
        let Source::Copied { access, .. } = &self.source else { return };
        let line = 128 / element::bytes(self.dtype);
        let (free, depth) = part.tile;
        body.open(AxisSet::EMPTY);
        if self.along_sum {
            body.line(format!(
                "const Index point = {} + at / tiles, step = {} + at % tiles * {depth};",
                part.free.0, part.sum.0
            ));
        } else {
            let pieces = (free + line - 1) / line;
            body.line(format!("const Index point = {} + at % {pieces} * {line};", part.free.0));
            body.line(format!("const Index step = {} + at / {pieces};", part.sum.0));
        }
        decode(body, body.nest, &self.free, "point", None);
        decode(body, body.nest, &self.sum, "step", None);
        body.bind(self.free.iter().chain(&self.sum).copied().collect());
        let offset = body.index(&access.offset, &[]);
        body.use_parameter(access.tensor.parameter.clone());
        let (free_count, sum_count) = (body.index(part.free.1, &[]), body.index(part.sum.1, &[]));
        let there = self.there(part, &free_count.to_string(), &sum_count.to_string());
        body.line(format!("if ({there}) fetch_early({} + ({offset}));", access.tensor.parameter.name()));
        let count = if self.along_sum { free } else { depth * ((free + line - 1) / line) };
        body.close(&format!("for (int at = threadIdx.x; at < tiles * {count}; at += {})", part.threads));
    }

    /// The condition under which a piece is there; none where every piece of a tile is.
    fn there(&self, part: &Part<'_>, free: &str, sum: &str) -> String {
        let mut all = Vec::new();
        if !is_multiple(part.free.1, part.tile.0) {
            all.push(format!("point < {free}"));
        }
        if !is_multiple(part.sum.1, part.tile.1) {
            all.push(format!("step < {sum}"));
        }
        if all.is_empty() { "true".to_owned() } else { all.join(" && ") }
    }

    /// Neighbours computed together.
    fn print_lanes(
        &self,
        body: &mut Body<'_>,
        part: &Part<'_>,
        (free, sum): (&str, &str),
        inside: &str,
        count: i64,
    ) -> Result<()> {
        let axis = *(if self.along_sum { self.sum.last() } else { self.free.last() }).expect("lanes lie along an axis");
        let before = body.lanes;
        let lanes = Lanes { axis, count };
        body.lanes = Some(lanes);
        body.line(format!("const Index point = {} + {free};", part.free.0));
        body.line(format!("const Index step = {} + {sum};", part.sum.0));
        let there =
            self.there(part, &body.index(part.free.1, &[]).to_string(), &body.index(part.sum.1, &[]).to_string());
        let axes: AxisSet = self.free.iter().chain(&self.sum).copied().collect();
        body.open(axes.without(AxisSet::of(axis)));
        if self.along_sum {
            body.line(format!("const Index pack = step / {count};"));
            decode(body, body.nest, &self.free, "point", None);
            decode(body, body.nest, &self.sum, "pack", Some(lanes));
        } else {
            body.line(format!("const Index pack = point / {count};"));
            decode(body, body.nest, &self.free, "pack", Some(lanes));
            decode(body, body.nest, &self.sum, "step", None);
        }
        body.open_lanes();
        let value = body.value_to_round(self.factor, self.dtype)?;
        body.line(format!("v[l] = {value};"));
        body.close_lanes();
        let head = if there == "true" && inside.is_empty() { String::new() } else { format!("if ({inside}{there})") };
        body.close(&head);
        body.lanes = before;
        Ok(())
    }

    /// Elements computed one by one.
    fn print_single(
        &self,
        body: &mut Body<'_>,
        part: &Part<'_>,
        (free, sum): (&str, &str),
        inside: &str,
        count: i64,
    ) -> Result<()> {
        let before = body.lanes.take();
        let own = |along: bool| if along { " + e" } else { "" };
        let there =
            self.there(part, &body.index(part.free.1, &[]).to_string(), &body.index(part.sum.1, &[]).to_string());
        body.open(AxisSet::EMPTY);
        body.line(format!("const Index point = {} + {free}{};", part.free.0, own(!self.along_sum)));
        body.line(format!("const Index step = {} + {sum}{};", part.sum.0, own(self.along_sum)));
        body.open(self.free.iter().chain(&self.sum).copied().collect());
        decode(body, body.nest, &self.free, "point", None);
        decode(body, body.nest, &self.sum, "step", None);
        let value = body.value_to_round(self.factor, self.dtype)?;
        body.line(format!("v[e] = {value};"));
        let head = if there == "true" && inside.is_empty() { String::new() } else { format!("if ({inside}{there})") };
        body.close(&head);
        body.close(&format!("#pragma unroll\nfor (int e = 0; e < {count}; ++e)"));
        body.lanes = before;
        Ok(())
    }
}

/// Where a factor is nothing but elements of a tensor in the wanted type: where they lie, whether neighbours are steps of the sum, and how
/// many can be copied at once.
fn copied(nest: &Nest<'_>, factor: StepId, dtype: DType, free: &[usize], sum: &[usize]) -> Option<(Access, bool, i64)> {
    let load = plain_load(nest, factor)?;
    let access = nest.load(load);
    let is_plain = access.is_plain();
    if !is_plain || access.tensor.dtype != dtype {
        return None;
    }
    let width = |axes: &[usize]| -> i64 {
        let Some((inner, _)) = axes.split_last() else { return 0 };
        if !slope(&access.offset, *inner).is_some_and(|slope| slope.is(1)) {
            return 0;
        }
        let others = access.offset.substitute(&|symbol| match symbol {
            Symbol::Axis(axis) if usize::from(*axis) == *inner => Some(Dim::int(0)),
            _ => None,
        });
        let mut width = pack_of(dtype);
        while width > 1 && !(is_multiple(&others, width) && is_multiple(&nest.extents[*inner], width)) {
            width /= 2;
        }
        width
    };
    let (along, across) = (width(sum), width(free));
    let least = 4 / element::bytes(dtype);
    let (along_sum, width) = if along >= across { (true, along) } else { (false, across) };
    (width >= least.max(1)).then(|| (access.clone(), along_sum, width))
}

/// The load that a factor is, but for widening.
fn plain_load(nest: &Nest<'_>, factor: StepId) -> Option<StepId> {
    match &nest.kernel.step(factor).op {
        Op::Load { .. } => Some(factor),
        Op::Map { expr, args } => {
            let from = nest.kernel.step(*args.first()?).dtype;
            let is_widened = matches!(expr.nodes(), [(ExprNode::Arg(0), _), (ExprNode::Cast(0), to)]
                if from.is_float() && to.is_float() && from.bits() <= to.bits());
            if is_widened { plain_load(nest, args[0]) } else { None }
        }
        _ => None,
    }
}

/// Bytes of an element that a factor reads side by side along the last of some axes.
fn lies_along(nest: &Nest<'_>, factor: StepId, axes: &[usize]) -> i64 {
    let Some(inner) = axes.last() else { return 0 };
    let mut needed = vec![false; nest.kernel.steps.len()];
    needed[factor.index()] = true;
    let mut bytes = 0;
    for k in (0..=factor.index()).rev().filter(|k| nest.axes[*k].contains(*inner)) {
        if !needed[k] {
            continue;
        }
        let op = &nest.kernel.steps[k].op;
        op.operands().iter().for_each(|operand| needed[operand.index()] = true);
        if matches!(op, Op::Load { .. }) {
            let access = nest.load(StepId(k as u32));
            if slope(&access.offset, *inner).is_some_and(|slope| slope.is(1)) {
                // What varies along everything is read most.
                bytes += element::bytes(access.tensor.dtype) * nest.axes[k].len() as i64;
            }
        }
    }
    bytes
}
