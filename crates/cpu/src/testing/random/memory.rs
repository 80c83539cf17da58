//! Memory: rows of elements, one for every task, with what is read and written close to their ends.

use fuseline::tensor::DType;

use super::Generator;
use crate::testing::Contents;
use crate::vector::{Address, Binary, Compare, Ty, Value};

/// A buffer with a row of elements for every task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    dtype: DType,
    place: u32,
    /// elements of a row
    elements: usize,
}

impl Rows {
    fn size(self) -> usize {
        self.dtype.bits() / 8
    }
}

impl Generator {
    fn lanes(&self) -> usize {
        self.options.lanes as usize
    }

    /// A new buffer, filled.
    fn rows(&mut self, dtype: DType, elements: usize) -> Rows {
        let place = self.buffers.len() as u32;
        let count = elements * self.tasks as usize;
        let bytes = (0..count).flat_map(|_| self.element(dtype)).collect();
        self.buffers.push(Contents { dtype, bytes });
        Rows { dtype, place, elements }
    }

    /// A new buffer with room for a few vectors in a row, seldom a whole number of them.
    fn some_rows(&mut self, dtype: DType) -> Rows {
        let elements = 2 * self.lanes() + self.below(self.lanes() + 3);
        self.rows(dtype, elements)
    }

    /// A buffer that is only read: often one that there is.
    fn input(&mut self, dtype: DType) -> Rows {
        let known: Vec<Rows> = self.inputs.iter().copied().filter(|rows| rows.dtype == dtype).collect();
        if known.is_empty() || self.chance(3) {
            let rows = self.some_rows(dtype);
            self.inputs.push(rows);
            return rows;
        }
        self.one_of(&known)
    }

    /// The bytes of an element.
    fn element(&mut self, dtype: DType) -> Vec<u8> {
        let bits = self.bits();
        let simple = self.chance(2);
        let bits = match dtype {
            DType::Bool => bits & 1,
            DType::F16 if simple => 0x3000 | bits & 0x9fff,
            DType::BF16 if simple => 0x3c00 | bits & 0x87ff,
            DType::F32 if simple => u64::from((bits as i16 as f32 / 256.0).to_bits()),
            DType::F64 if simple => (f64::from(bits as i16) / 256.0).to_bits(),
            DType::F32 if self.chance(8) => bits & 0x807f_ffff,
            _ if simple => bits & 15,
            _ => bits,
        };
        bits.to_le_bytes()[..dtype.bits() / 8].to_vec()
    }

    /// An element type that vectors of this type are loaded from and stored to.
    fn dtype(&mut self, ty: Ty) -> DType {
        let dtypes: Vec<DType> = DType::ALL.iter().copied().filter(|dtype| Ty::of(*dtype) == Some(ty)).collect();
        self.one_of(&dtypes)
    }

    /// The element with this number in the task's row, `index` elements further on.
    fn at(&mut self, rows: Rows, element: i64, index: Option<Value>) -> Address {
        let base = self.b.buffer(rows.place);
        let size = rows.size() as i64;
        let mut terms = vec![(self.task, rows.elements as i64 * size)];
        terms.extend(index.map(|index| (index, size)));
        self.b.address(base, &terms, element * size)
    }

    /// A place where `count` elements are within the row.
    fn within(&mut self, rows: Rows, count: usize) -> Address {
        let places = rows.elements - count + 1;
        if self.chance(2) {
            let element = self.below(places);
            return self.at(rows, element as i64, None);
        }
        // The index, which may be any below n, and the rest as an offset.
        let n = 1 + self.below(places);
        let element = self.below(places - n + 1);
        let index = self.index(n);
        self.at(rows, element as i64, Some(index))
    }

    /// A place and a mask for a vector: all of it within the row, or reaching over an end where the mask does not hold.
    fn vector_place(&mut self, rows: Rows) -> (Address, Option<Value>) {
        let lanes = self.lanes();
        match self.below(5) {
            0 | 1 => (self.within(rows, lanes), None),
            2 => {
                let mask = self.pick(Ty::Mask);
                (self.within(rows, lanes), Some(mask))
            }
            3 => {
                let inside = self.below(lanes + 1);
                let mask = self.b.first(inside as u32);
                let mask = self.sometimes_less(mask);
                (self.at(rows, (rows.elements - inside) as i64, None), Some(mask))
            }
            _ => {
                let outside = self.below(lanes + 1);
                let (mask, all) = (self.b.first(outside as u32), self.b.truth(true));
                let mask = self.b.binary(Binary::AndNot, mask, all);
                let mask = self.sometimes_less(mask);
                (self.at(rows, -(outside as i64), None), Some(mask))
            }
        }
    }

    /// A place for fours of elements, of which so many are within the row, and how far they are apart.
    fn quads_place(&mut self, rows: Rows, count: usize) -> (Address, u32) {
        let further = self.lanes() / 4 - 1;
        let apart = self.below((rows.elements - count) / further.max(1) + 1);
        (self.within(rows, count + further * apart), apart as u32)
    }

    fn sometimes_less(&mut self, mask: Value) -> Value {
        if self.chance(2) {
            return mask;
        }
        let other = self.pick(Ty::Mask);
        self.b.binary(Binary::And, mask, other)
    }

    pub(super) fn read_int(&mut self) -> Value {
        let integers: Vec<DType> =
            DType::ALL.iter().copied().filter(|d| Ty::of(*d).is_some() && !d.is_float()).collect();
        let dtype = self.one_of(&integers);
        let rows = self.input(dtype);
        let at = self.within(rows, 1);
        self.b.read_int(at, dtype)
    }

    pub(super) fn load(&mut self, ty: Ty) -> Value {
        let dtype = self.dtype(ty);
        let rows = self.input(dtype);
        if self.chance(4) {
            let at = self.within(rows, 1);
            return self.b.load_splat(at, dtype);
        }
        if matches!(dtype, DType::F32 | DType::I32 | DType::U32) && self.chance(4) {
            let (at, apart) = self.quads_place(rows, 4);
            return self.b.load_quads(at, apart, dtype);
        }
        let (at, mask) = self.vector_place(rows);
        self.b.load(at, dtype, mask)
    }

    pub(super) fn gather(&mut self, ty: Ty) -> Value {
        let dtype = self.dtype(ty);
        let rows = self.input(dtype);
        let (at, index, mask) = self.gather_place(rows);
        self.b.gather(at, index, dtype, mask)
    }

    /// A place, indices from there, and a mask without lanes that lead out of the row.
    fn gather_place(&mut self, rows: Rows) -> (Address, Value, Option<Value>) {
        let middle = self.below(rows.elements);
        if self.chance(2) {
            let index = self.indices(rows.elements);
            let back = self.b.integer(self.b.ty(index), middle as i64);
            let index = self.b.binary(Binary::Sub, index, back);
            let mask = if self.chance(2) { Some(self.pick(Ty::Mask)) } else { None };
            return (self.at(rows, middle as i64, None), index, mask);
        }
        let ty = if self.wide() && self.chance(2) { Ty::I64 } else { Ty::I32 };
        let (index, end) = (self.pick(ty), self.b.integer(ty, rows.elements as i64));
        let mask = self.b.compare(Compare::LtUnsigned, index, end);
        let mask = self.sometimes_less(mask);
        (self.at(rows, 0, None), index, Some(mask))
    }

    /// Writes a value somewhere.
    pub(super) fn store(&mut self) {
        let ty = self.any_ty();
        let ty = if ty == Ty::Int { Ty::F32 } else { ty };
        let (dtype, value) = (self.dtype(ty), self.pick(ty));
        match self.below(8) {
            0 => {
                let rows = self.rows(dtype, 2 * self.lanes());
                let element = self.below(2) * self.lanes();
                let at = self.at(rows, element as i64, None);
                self.b.store_streaming(at, value, dtype);
            }
            1 => {
                let rows = self.some_rows(dtype);
                let at = self.within(rows, 1);
                self.b.store_lane(at, value, dtype);
                self.b.prefetch(at);
            }
            2 => {
                let rows = self.some_rows(dtype);
                self.scatter(rows, value);
            }
            3 if matches!(dtype, DType::F32 | DType::I32 | DType::U32) => self.store_quads(dtype, value),
            _ => {
                let rows = self.some_rows(dtype);
                let (at, mask) = self.vector_place(rows);
                self.b.store(at, value, dtype, mask);
            }
        }
    }

    /// Writes fours, or the first few of every four: in memory of their own, so that none is written twice.
    fn store_quads(&mut self, dtype: DType, value: Value) {
        let (lanes, count) = (self.lanes(), 1 + self.below(4));
        let apart = count + self.below(3);
        let rows = self.rows(dtype, (lanes / 4 - 1) * apart + count);
        let mask = if count < 4 { Some(self.b.first(count as u32)) } else { None };
        let at = self.at(rows, 0, None);
        self.b.store_quads(at, apart as u32, value, dtype, mask);
    }

    fn scatter(&mut self, rows: Rows, value: Value) {
        let ty = if self.wide() && self.chance(2) { Ty::I64 } else { Ty::I32 };
        let lanes = self.b.lane_numbers(ty);
        let swap = self.below(self.lanes());
        let swap = self.b.integer(ty, swap as i64);
        let order = self.b.binary(Binary::Xor, lanes, swap);
        let forwards = self.chance(2);
        let (index, first) = if forwards {
            let two = self.b.integer(ty, 2);
            (self.b.binary(Binary::Mul, order, two), 0)
        } else {
            let zero = self.b.integer(ty, 0);
            (self.b.binary(Binary::Sub, zero, order), self.lanes() - 1)
        };
        let mask = if self.chance(2) { Some(self.pick(Ty::Mask)) } else { None };
        // Where the mask does not hold, the index may be anything.
        let index = match mask {
            Some(mask) if self.chance(2) => {
                let any = self.pick(ty);
                self.b.select(mask, index, any)
            }
            _ => index,
        };
        let at = self.at(rows, first as i64, None);
        self.b.scatter(at, index, value, rows.dtype, mask);
    }

    /// Writes to memory that is read again, or reads from it.
    pub(super) fn scratch(&mut self) {
        if self.scratch.len() < 3 {
            let ty = self.any_ty();
            let dtype = self.dtype(if ty == Ty::Int { Ty::F32 } else { ty });
            let rows = self.some_rows(dtype);
            self.scratch.push(rows);
        }
        let rows = self.one_of(&self.scratch.clone());
        let ty = Ty::of(rows.dtype).expect("scratch memory is of a type that registers hold");
        let value = match self.below(6) {
            0..=2 => {
                let value = self.pick(ty);
                let (at, mask) = self.vector_place(rows);
                return self.b.store(at, value, rows.dtype, mask);
            }
            3 => {
                let at = self.within(rows, 1);
                self.b.load_splat_again(at, rows.dtype)
            }
            4 => {
                let (at, index, mask) = self.gather_place(rows);
                self.b.gather_again(at, index, rows.dtype, mask)
            }
            _ => {
                let (at, mask) = self.vector_place(rows);
                self.b.load_again(at, rows.dtype, mask)
            }
        };
        self.pool.push(value);
    }
}
