//! What is read: packs of neighbouring elements for all lanes at once, or elements one by one where they do not lie so.
//!
//! A pack begins where lines of memory do; what lies otherwise than the lanes is read across two lines and moved together.

use fuseline::error::Result;
use fuseline::tensor::{Dim, Symbol};
use fuseline::tile::{AxisSet, StepId};

use super::super::code::{Code, Rank};
use super::super::nest::{Access, Nest, is_multiple, slope};
use super::super::{Parameter, element};
use super::{Body, Lanes};

/// How packs are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Reads {
    Plainly,
    /// so that the cache that all processors share keeps them longer than what is written
    Lasting,
    /// so that all caches keep them until they are read again
    ToStay,
    /// for the last time
    ToLeave,
}

impl Body<'_> {
    /// Where an element lies: the tensor and the offset into it. Where the guard fails, nothing is read from there.
    pub fn address(&mut self, access: &Access, guard: Option<&Code>) -> Result<(String, Code)> {
        let reads = access.reads.iter().map(|id| self.value(*id)).collect::<Result<Vec<Code>>>()?;
        let mut offset = self.index(&access.offset, &reads);
        for checked in &access.checked {
            if !self.sites.contains(&checked.message) {
                self.sites.push(checked.message.clone());
            }
            let site = self.sites.iter().position(|site| *site == checked.message).map_or(0, |site| site + 1);
            self.use_parameter(Parameter::Fault);
            let (at, size) = (self.index(&checked.index, &reads), self.index(&checked.size, &[]));
            let site = Code::atom(site.to_string());
            let at = guard.map_or(at.clone(), |guard| Code::choice(guard, &at, &Code::atom("0")));
            let at = Code::call("checked", &[at, size, site, Code::atom("fault")]);
            let axes = access.reads.iter().map(|read| self.nest.axes[read.index()]);
            let axes = axes.chain(access.guards.iter().map(|guard| AxisSet::mentioned(&guard.index)));
            let axes = axes.fold(AxisSet::mentioned(&checked.index), AxisSet::union);
            let at = self.named("c", "Index", axes, &at)?;
            let stride = self.index(&checked.stride, &[]);
            offset = offset.plus(&at.times(&stride));
        }
        self.use_parameter(access.tensor.parameter.clone());
        Ok((access.tensor.parameter.name(), offset))
    }

    /// The condition under which a load reads; none where it always does.
    fn guard(&mut self, access: &Access) -> Result<Option<Code>> {
        let reads = access.reads.iter().map(|id| self.value(*id)).collect::<Result<Vec<Code>>>()?;
        let mut all: Option<Code> = None;
        for guard in &access.guards {
            let (at, bound) = (self.index(&guard.index, &reads), self.index(&guard.bound, &[]));
            // One comparison does for both bounds: what is below 0 is very large.
            let unsigned = if access.reads.is_empty() { "Unsigned" } else { "unsigned long long" };
            let within = Code::infix("<", Rank::Order, &Code::cast(unsigned, &at), &Code::cast(unsigned, &bound));
            all = Some(match all {
                None => within,
                Some(others) => Code::infix("&&", Rank::Both, &others, &within),
            });
        }
        Ok(all)
    }

    pub(super) fn load(&mut self, id: StepId) -> Result<Code> {
        let access = self.nest.load(id).clone();
        let dtype = access.tensor.dtype;
        if let Some(code) = self.load_pack(id, &access)? {
            return Ok(code);
        }
        let guard = self.guard(&access)?;
        let (tensor, offset) = self.address(&access, guard.as_ref())?;
        let value = element::widened(dtype, Code::atom(format!("{tensor}[{offset}]")));
        Ok(match guard {
            None => value,
            Some(guard) => {
                let fill = element::constant(self.nest.kernel.step(id).dtype, access.fill);
                Code::choice(&guard, &value, &fill)
            }
        })
    }

    /// Sees to it that the elements of a load are there for all lanes, as a pack.
    pub fn need_pack(&mut self, id: StepId) -> Result<()> {
        if self.lookup(id).is_none() {
            self.load_pack(id, &self.nest.load(id).clone())?;
        }
        Ok(())
    }

    /// The elements of a load in all lanes, read around them; none where they are read one by one.
    fn load_pack(&mut self, id: StepId, access: &Access) -> Result<Option<Code>> {
        let (Some(lanes), true) = (self.lanes, self.is_in_lanes()) else { return Ok(None) };
        let width = pack_width(self.nest, access, lanes);
        if width.is_none() && !self.is_across(access, lanes) {
            return Ok(None);
        }
        let name = format!("p{}", id.0);
        let code = element::widened_lane(access.tensor.dtype, &name);
        self.around_lanes(|body| {
            match width {
                Some(width) => body.pack(access, body.reads(id), lanes.count, width, &name)?,
                None => body.pack_across(access, lanes, &name)?,
            }
            body.know_in_lanes(id, code.clone());
            Ok(())
        })?;
        Ok(Some(code))
    }

    /// How packs of a load are read.
    fn reads(&self, id: StepId) -> Reads {
        let (reads, sets) = &self.own;
        let axes = self.nest.axes[id.index()];
        if sets.iter().all(|set| !set.common(axes).is_empty()) { *reads } else { Reads::Plainly }
    }

    /// Reads the elements of a load in all lanes into a place for later, on the innermost level.
    pub fn read_ahead(&mut self, id: StepId, lanes: Lanes, to: &str) -> Result<()> {
        let access = self.nest.load(id).clone();
        let Some(width) = pack_width(self.nest, &access, lanes) else { return Ok(()) };
        let widths = if width == lanes.count { width.to_string() } else { format!("{}, {width}", lanes.count) };
        let (tensor, offset) = self.address(&access, None)?;
        self.line(format!("{to} = load<{widths}>({tensor} + {});", Code::atom("0").plus(&offset)));
        Ok(())
    }

    /// Whether packs of a load lie across lines, for these begin where another tensor wants it.
    pub fn is_across(&self, access: &Access, lanes: Lanes) -> bool {
        is_across(self.nest, access, lanes)
    }

    /// Reads a pack of elements across two lines.
    fn pack_across(&mut self, access: &Access, lanes: Lanes, name: &str) -> Result<()> {
        let (ty, count) = (element::stored(access.tensor.dtype)?, lanes.count);
        let (tensor, offset) = self.address(access, None)?;
        let offset = Code::atom("0").plus(&offset);
        let shift = self.shift;
        self.line(format!("const Pack<{ty}, {count}> {name} = load_across<{count}>({tensor} + {offset}, {shift});"));
        Ok(())
    }

    /// Reads a pack of elements.
    fn pack(&mut self, access: &Access, reads: Reads, count: i64, width: i64, name: &str) -> Result<()> {
        let ty = element::stored(access.tensor.dtype)?;
        let guard = self.guard(access)?;
        let (tensor, offset) = self.address(access, guard.as_ref())?;
        let widths = if width == count { format!("{count}") } else { format!("{count}, {width}") };
        let offset = Code::atom("0").plus(&offset);
        let is_whole = width == count && width * element::bytes(access.tensor.dtype) == 16;
        let loaded = match reads {
            Reads::ToStay if is_whole => format!("load_to_stay<{widths}>({tensor} + {offset})"),
            Reads::ToLeave if is_whole => format!("load_to_leave<{widths}>({tensor} + {offset})"),
            Reads::Lasting => format!("load<{widths}>(lasting({tensor}) + {offset})"),
            _ => format!("load<{widths}>({tensor} + {offset})"),
        };
        match guard {
            None => self.line(format!("const Pack<{ty}, {count}> {name} = {loaded};")),
            Some(guard) => {
                let fill = element::constant(access.tensor.dtype, access.fill);
                let fill = element::narrowed(access.tensor.dtype, &fill)?;
                let fill = Code::cast(ty, &fill);
                let fill = if element::is_wrapped(access.tensor.dtype) {
                    element::narrowed(access.tensor.dtype, &element::constant(access.tensor.dtype, access.fill))?
                } else {
                    fill
                };
                self.line(format!("const Pack<{ty}, {count}> {name} = {guard} ? {loaded} : filled<{count}>({fill});"));
            }
        }
        Ok(())
    }
}

/// The offset at the first lane, but for where the lanes begin, which is a multiple of their number.
pub(in super::super) fn start_of(dim: &Dim, axis: usize) -> Dim {
    dim.substitute(&|symbol| match symbol {
        Symbol::Axis(a) if usize::from(*a) == axis => Some(Dim::int(0)),
        _ => None,
    })
}

/// Whether packs of an access lie across lines, for these begin where another tensor wants it.
pub(in super::super) fn is_across(nest: &Nest<'_>, access: &Access, lanes: Lanes) -> bool {
    let is_plain = access.is_plain();
    let is_in_line = slope(&access.offset, lanes.axis).is_some_and(|slope| slope.is(1));
    let bytes = element::bytes(access.tensor.dtype);
    let is_line = bytes * lanes.count == 16 && matches!(bytes, 2 | 4);
    let begins = is_multiple(&start_of(&access.offset, lanes.axis), lanes.count);
    nest.lines.is_some() && is_plain && is_in_line && is_line && begins
}

/// How many elements of an access lie side by side and can be moved at once; none where lanes are moved one by one.
pub(in super::super) fn pack_width(nest: &Nest<'_>, access: &Access, lanes: Lanes) -> Option<i64> {
    let varies = |dim: &Dim| AxisSet::mentioned(dim).contains(lanes.axis);
    let others = access.checked.iter().map(|c| &c.index).chain(access.guards.iter().map(|g| &g.index));
    let reads_vary = access.reads.iter().any(|read| nest.axes[read.index()].contains(lanes.axis));
    if !slope(&access.offset, lanes.axis)?.is(1) || others.into_iter().any(varies) || reads_vary {
        return None;
    }
    let mut starts = vec![nest.behind_packs(start_of(&access.offset, lanes.axis), lanes.axis)];
    starts.extend(access.checked.iter().map(|checked| checked.stride.clone()));
    let mut width = lanes.count;
    while width > 1 && !starts.iter().all(|start| is_multiple(start, width)) {
        width /= 2;
    }
    (width > 1).then_some(width)
}
