//! Reading and writing tensors at points.

use fuseline::error::Result;
use fuseline::ops::Number;
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{Op, StepId};
use smallvec::SmallVec;

use super::bound::{Access, Checked, bytes_of};
use super::emitter::{Emitter, Held};
use super::index::{Index, Sum, Within, index_at, int_of, multiple_of, within};
use super::point::Point;
use super::{Memory, Site};
use crate::vector::{Address, Binary, IntOp, Ty, Value};

/// Where lanes are read or written.
enum Place {
    /// the same element for all lanes
    One(Address),
    /// consecutive elements
    Row(Address),
    /// elements at a base plus these many
    Each(Address, Value),
}

/// Which lanes are read.
#[derive(Clone, Copy, Default)]
struct Guarded {
    /// an Int, 0 or 1: all lanes or none
    all: Option<Value>,
    /// a mask
    lanes: Option<Value>,
}

impl Emitter<'_> {
    /// The value of a load at a point.
    pub fn load(&mut self, id: StepId, point: &Point) -> Result<Value> {
        let bound = self.bound;
        let access = bound.load(id);
        let Op::Load { input, .. } = &bound.kernel.step(id).op else { unreachable!("a load") };
        if access.is_empty {
            self.check_empty(access, point)?;
            return Ok(self.constant(access.dtype, access.fill));
        }
        let memory = Memory::Input(*input);
        let guarded = self.guards(access, point)?;
        let offset = self.offset(access, point, guarded)?;
        let place = self.place(memory, None, &offset, access.dtype, guarded.all);
        self.reads.insert(memory);
        let own = self.lane_mask(point, self.bound.kernel.step(id).axes.iter());
        let mask = self.both(own, guarded.lanes);
        let loaded = match place {
            Place::One(at) if guarded.lanes.is_none() => self.b.load_splat(at, access.dtype),
            Place::One(at) => {
                let zero = self.b.integer(Ty::I32, 0);
                self.b.gather(at, zero, access.dtype, mask)
            }
            Place::Row(at) => {
                let all = guarded.all.map(|all| self.b.splat(Ty::Mask, all));
                let mask = self.both(mask, all);
                self.b.load(at, access.dtype, mask)
            }
            Place::Each(at, index) => {
                let all = guarded.all.map(|all| self.b.splat(Ty::Mask, all));
                let mask = self.both(mask, all);
                self.b.gather(at, index, access.dtype, mask)
            }
        };
        Ok(self.filled(loaded, guarded, access.dtype, access.fill))
    }

    /// Asks for the memory that lies some bytes behind what a load reads at a point.
    pub fn ask_for(&mut self, id: StepId, point: &Point, bytes: i64) {
        let bound = self.bound;
        let access = bound.load(id);
        let Op::Load { input, .. } = &bound.kernel.step(id).op else { unreachable!("a load") };
        let offset = index_at(&mut self.b, &self.multiples, &access.offset, point, &[]);
        if let Place::Row(at) = self.place(Memory::Input(*input), None, &offset, access.dtype, None) {
            let offset = i64::from(at.offset) + bytes;
            if let Ok(offset) = i32::try_from(offset) {
                self.b.prefetch(Address { offset, ..at });
            }
        }
    }

    /// The value of an integer load that is the same in all lanes.
    pub fn load_int(&mut self, id: StepId, point: &Point) -> Result<Value> {
        let bound = self.bound;
        let access = bound.load(id);
        let Op::Load { input, .. } = &bound.kernel.step(id).op else { unreachable!("a load") };
        if access.is_empty {
            self.check_empty(access, point)?;
            return Ok(self.b.number(if let Number::Int(n) = access.fill { n } else { 0 }));
        }
        let memory = Memory::Input(*input);
        let guarded = self.guards(access, point)?;
        let offset = self.offset(access, point, guarded)?;
        let Place::One(at) = self.place(memory, None, &offset, access.dtype, guarded.all) else {
            let value = self.load(id, point)?;
            return Ok(self.b.lane0(value));
        };
        self.reads.insert(memory);
        let loaded = self.b.read_int(at, access.dtype);
        Ok(match guarded.all {
            Some(all) => {
                let fill = self.b.number(if let Number::Int(n) = access.fill { n } else { 0 });
                self.b.choose(all, loaded, fill)
            }
            None => loaded,
        })
    }

    /// A value that lies in memory.
    pub fn load_held(&mut self, held: &Held, point: &Point) -> Value {
        let offset = index_at(&mut self.b, &self.multiples, &held.offset, point, &[]);
        let place = self.place(held.memory, held.base, &offset, held.dtype, None);
        self.reads.insert(held.memory);
        let mask = match &offset {
            Index::Sum(sum) if sum.lane == 0 => None,
            _ => point.mask,
        };
        match (place, held.again) {
            (Place::One(at), false) => self.b.load_splat(at, held.dtype),
            (Place::One(at), true) => self.b.load_splat_again(at, held.dtype),
            (Place::Row(at), false) => self.b.load(at, held.dtype, mask),
            (Place::Row(at), true) => self.b.load_again(at, held.dtype, mask),
            (Place::Each(at, index), false) => self.b.gather(at, index, held.dtype, mask),
            (Place::Each(at, index), true) => self.b.gather_again(at, index, held.dtype, mask),
        }
    }

    /// Where a value lies in memory, as an Int; of lanes the first.
    pub fn address_of(&mut self, held: &Held, point: &Point) -> Value {
        let pointer = held.base.unwrap_or_else(|| self.pointer(held.memory));
        self.reads.insert(held.memory);
        let bytes = bytes_of(held.dtype);
        match index_at(&mut self.b, &self.multiples, &held.offset, point, &[]) {
            Index::Sum(sum) => {
                let element = int_of(&mut self.b, &Sum { lane: 0, ..sum });
                let offset = self.b.times(element, bytes);
                self.b.int(IntOp::Add, pointer, offset)
            }
            Index::Lanes(lanes) => {
                let element = self.b.lane0(lanes);
                let offset = self.b.times(element, bytes);
                self.b.int(IntOp::Add, pointer, offset)
            }
        }
    }

    /// Puts a value into memory.
    pub fn store_held(&mut self, held: &Held, value: Value, point: &Point) {
        if held.dtype == DType::BF16 {
            let offset = index_at(&mut self.b, &self.multiples, &held.offset, point, &[]);
            if let Place::Row(at) = self.place(held.memory, held.base, &offset, held.dtype, None) {
                self.writes.insert(held.memory);
                return self.b.store_factor(at, value, point.mask);
            }
        }
        self.write(held.memory, held.base, &held.offset, held.dtype, value, point, false);
    }

    /// Writes a value to an output. `streaming` is a wish.
    pub fn store(&mut self, store: usize, value: Value, point: &Point, streaming: bool) {
        let bound = self.bound;
        let access = &bound.stores[store];
        let memory = Memory::Output(bound.kernel.stores[store].output);
        self.write(memory, None, &access.offset, access.dtype, value, point, streaming);
    }

    /// Writes some stores at some points.
    pub fn store_all(&mut self, stores: &[usize], points: &[Point]) -> Result<()> {
        let wanted: Vec<StepId> = stores.iter().map(|k| self.bound.kernel.stores[*k].value).collect();
        for (store, values) in stores.iter().zip(self.values(&wanted, points)?) {
            for (point, value) in points.iter().zip(values) {
                self.store(*store, value, point, false);
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "a write is where, what and how")]
    fn write(
        &mut self,
        memory: Memory,
        base: Option<Value>,
        offset: &Dim,
        dtype: DType,
        value: Value,
        point: &Point,
        streaming: bool,
    ) {
        let offset = index_at(&mut self.b, &self.multiples, offset, point, &[]);
        self.writes.insert(memory);
        match self.place(memory, base, &offset, dtype, None) {
            Place::One(at) => self.b.store_lane(at, value, dtype),
            Place::Row(at) => match point.mask {
                None if streaming && base.is_none() && self.is_aligned(&offset, dtype) => {
                    self.b.store_streaming(at, value, dtype)
                }
                mask => self.b.store(at, value, dtype, mask),
            },
            Place::Each(at, index) => self.b.scatter(at, index, value, dtype, point.mask),
        }
    }

    /// Whether a vector at this offset begins at a multiple of its own bytes.
    fn is_aligned(&self, offset: &Index, dtype: DType) -> bool {
        let Index::Sum(sum) = offset else { return false };
        let bytes = bytes_of(dtype);
        let vector = self.lanes() * bytes;
        matches!(vector, 16 | 32 | 64) && dtype.bits() >= 32 && multiple_of(&self.multiples, sum) * bytes % vector == 0
    }

    fn both(&mut self, a: Option<Value>, b: Option<Value>) -> Option<Value> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.b.binary(Binary::And, a, b)),
            (a, b) => a.or(b),
        }
    }

    /// The lanes that are not beyond the end, for what varies over these axes.
    fn lane_mask(&self, point: &Point, mut axes: impl Iterator<Item = usize>) -> Option<Value> {
        let lane = point.lane_axis()?;
        point.mask.filter(|_| axes.any(|axis| axis == lane))
    }

    fn filled(&mut self, loaded: Value, guarded: Guarded, dtype: DType, fill: Number) -> Value {
        let all = guarded.all.map(|all| self.b.splat(Ty::Mask, all));
        match self.both(all, guarded.lanes) {
            Some(mask) => {
                let fill = self.constant(dtype, fill);
                self.b.select(mask, loaded, fill)
            }
            None => loaded,
        }
    }

    fn guards(&mut self, access: &Access, point: &Point) -> Result<Guarded> {
        let reads = access.reads.iter().map(|id| self.coordinate(*id, point)).collect::<Result<Vec<_>>>()?;
        let mut guarded = Guarded::default();
        for (dim, bound) in &access.guards {
            let index = index_at(&mut self.b, &self.multiples, dim, point, &reads);
            match within(&mut self.b, &index, *bound) {
                Within::Uniform(holds) => {
                    guarded.all = Some(match guarded.all {
                        Some(all) => self.b.int(IntOp::And, all, holds),
                        None => holds,
                    });
                }
                Within::Lanes(mask) => guarded.lanes = self.both(guarded.lanes, Some(mask)),
            }
        }
        Ok(guarded)
    }

    /// Of a tensor without elements, nothing is read where guards fail; elsewhere every index lies outside, which is to be told.
    fn check_empty(&mut self, access: &Access, point: &Point) -> Result<()> {
        if !access.checked.is_empty() {
            let guarded = self.guards(access, point)?;
            self.offset(access, point, guarded)?;
        }
        Ok(())
    }

    /// The offset of a load in elements; what nothing proves to be inside is checked: the values that are read where coordinates are inside exactly if
    /// they are, for a coordinate that is made of a large one may not be the number that it should.
    fn offset(&mut self, access: &Access, point: &Point, guarded: Guarded) -> Result<Index> {
        let mut reads = access.reads.iter().map(|id| self.coordinate(*id, point)).collect::<Result<Vec<_>>>()?;
        let mut offset = index_at(&mut self.b, &self.multiples, &access.offset, point, &reads);
        for Checked { index, stride, limit } in &access.checked {
            let site = self.site(Site { place: access.place.to_string(), limit: *limit });
            let inside = match limit.read {
                Some(read) => {
                    reads[read] = self.checked(&reads[read], limit.size, point, guarded, site);
                    index_at(&mut self.b, &self.multiples, index, point, &reads)
                }
                None => {
                    let index = index_at(&mut self.b, &self.multiples, index, point, &reads);
                    self.checked(&index, limit.size, point, guarded, site)
                }
            };
            offset = self.plus_scaled(offset, inside, *stride);
        }
        Ok(offset)
    }

    /// A number that is checked to lie below a bound, where guards hold.
    fn checked(&mut self, index: &Index, size: i64, point: &Point, guarded: Guarded, site: u32) -> Index {
        let mut bound = self.b.number(size);
        match index {
            Index::Sum(sum) if sum.lane == 0 => {
                let mut value = int_of(&mut self.b, sum);
                if let Some(all) = guarded.all {
                    let [zero, more] = [0, size.max(1)].map(|number| self.b.number(number));
                    value = self.b.choose(all, value, zero);
                    bound = self.b.choose(all, bound, more);
                }
                Index::Sum(Sum::value(self.b.check_int(value, bound, site)))
            }
            _ => {
                let value = self.lanes_of(index);
                let all = guarded.all.map(|all| self.b.splat(Ty::Mask, all));
                let mask = self.both(point.mask, guarded.lanes);
                let mask = self.both(mask, all);
                Index::Lanes(self.b.check_lanes(value, bound, mask, site))
            }
        }
    }

    fn plus_scaled(&mut self, offset: Index, more: Index, stride: i64) -> Index {
        match (offset, more) {
            (Index::Sum(mut sum), Index::Sum(more)) => {
                sum.terms.extend(more.terms.iter().map(|(value, factor)| (*value, factor * stride)));
                sum.constant += more.constant * stride;
                sum.lane += more.lane * stride;
                Index::Sum(sum)
            }
            (offset, more) => {
                let (offset, more) = (self.lanes_of(&offset), self.lanes_of(&more));
                let stride = self.b.integer(Ty::I32, stride);
                let more = self.b.binary(Binary::Mul, more, stride);
                Index::Lanes(self.b.binary(Binary::Add, offset, more))
            }
        }
    }

    /// Where the elements at an offset lie; at the first element where the guard of all lanes fails.
    fn place(
        &mut self,
        memory: Memory,
        base: Option<Value>,
        offset: &Index,
        dtype: DType,
        all: Option<Value>,
    ) -> Place {
        let pointer = base.unwrap_or_else(|| self.pointer(memory));
        let bytes = bytes_of(dtype);
        let Index::Sum(sum) = offset else {
            let Index::Lanes(index) = offset else { unreachable!("a sum or lanes") };
            return Place::Each(self.b.address(pointer, &[], 0), *index);
        };
        let at = match all {
            // Lanes that are not read need no valid address, but one element for all is always read.
            Some(all) if sum.lane == 0 => {
                let (element, zero) = (int_of(&mut self.b, sum), self.b.number(0));
                let element = self.b.choose(all, element, zero);
                self.b.address(pointer, &[(element, bytes)], 0)
            }
            _ => {
                let terms: SmallVec<[(Value, i64); 4]> =
                    sum.terms.iter().map(|(value, factor)| (*value, factor * bytes)).collect();
                self.b.address(pointer, &terms, sum.constant * bytes)
            }
        };
        match sum.lane {
            0 => Place::One(at),
            1 => Place::Row(at),
            stride => {
                let numbers = self.b.lane_numbers(Ty::I32);
                let stride = self.b.integer(Ty::I32, stride);
                Place::Each(at, self.b.binary(Binary::Mul, numbers, stride))
            }
        }
    }
}
