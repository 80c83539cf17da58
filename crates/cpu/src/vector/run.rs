//! The portable executor: vector programs on any processor, step by step.
//!
//! What this does is what a program means: machine code is compared with it. All that is unsafe here is reading and writing the
//! memory that the program's addresses name.

use fuseline::error::{Error, Result};
use fuseline::tensor::DType;
use smallvec::SmallVec;

use super::flatten::{Elements, Place, Reg, Step, flatten};
use super::lane::{self, Float, Lane, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, map, truncate};
use super::registers::Files;
use super::tile::{Tiles, flushed};
use super::{Convert, Program, Ty, Unary, verify};
use crate::code::Fault;

/// A program made ready for any processor.
#[derive(Debug)]
pub struct Portable {
    buffers: usize,
    body: Body,
}

/// The steps and the registers at the beginning of a call, by the number of lanes.
#[derive(Debug)]
enum Body {
    Four(Vec<Step>, Files<4>),
    Eight(Vec<Step>, Files<8>),
    Sixteen(Vec<Step>, Files<16>),
}

impl Portable {
    /// Makes a program ready. An invalid one is our bug, and the error says what is wrong.
    pub fn new(program: &Program) -> Result<Portable> {
        verify(program)?;
        let flat = flatten(program);
        let body = match program.lanes {
            4 => Body::Four(flat.steps.clone(), Files::new(&flat)),
            8 => Body::Eight(flat.steps.clone(), Files::new(&flat)),
            16 => Body::Sixteen(flat.steps.clone(), Files::new(&flat)),
            lanes => return Err(Error::bug(format!("a program with vectors of {lanes} lanes"))),
        };
        Ok(Portable { buffers: program.buffers as usize, body })
    }

    /// Works through the tasks `begin..end`. `fault` keeps the first check that fails.
    ///
    /// # Safety
    ///
    /// What the program reads and writes relative to the pointers of `table` must be memory that may be read and written, and
    /// that nobody else writes (or, where the program writes, reads) at the same time.
    ///
    /// # Panics
    ///
    /// If the table has fewer pointers than the program asks for.
    pub unsafe fn call(&self, table: &[*mut u8], begin: i64, end: i64, fault: &mut Fault) {
        assert!(table.len() >= self.buffers, "{} pointers for {} buffers", table.len(), self.buffers);
        let tiles = Tiles::default();
        // SAFETY: what the caller promises.
        unsafe {
            match &self.body {
                Body::Four(steps, files) => {
                    Machine { files: files.clone(), table, begin, end, fault, tiles }.run(steps)
                }
                Body::Eight(steps, files) => {
                    Machine { files: files.clone(), table, begin, end, fault, tiles }.run(steps)
                }
                Body::Sixteen(steps, files) => {
                    Machine { files: files.clone(), table, begin, end, fault, tiles }.run(steps)
                }
            }
        }
    }
}

/// A call.
struct Machine<'c, const L: usize> {
    files: Files<L>,
    table: &'c [*mut u8],
    begin: i64,
    end: i64,
    fault: &'c mut Fault,
    tiles: Tiles,
}

/// The same for every type of vectors: `$what`, where `$file` is the type's registers.
macro_rules! on_vectors {
    ($files:expr, $ty:expr, |$file:ident| $what:expr) => {
        match $ty {
            Ty::F32 | Ty::F64 => on_floats!($files, $ty, |$file| $what),
            Ty::I32 => on!(&mut $files.i32, |$file| $what),
            Ty::I64 => on!(&mut $files.i64, |$file| $what),
            Ty::Int | Ty::Mask => unreachable!("{:?} is no vector of numbers", $ty),
        }
    };
}

macro_rules! on_floats {
    ($files:expr, $ty:expr, |$file:ident| $what:expr) => {
        match $ty {
            Ty::F32 => on!(&mut $files.f32, |$file| $what),
            Ty::F64 => on!(&mut $files.f64, |$file| $what),
            _ => unreachable!("{:?} is no vector of floats", $ty),
        }
    };
}

macro_rules! on {
    ($value:expr, |$file:ident| $what:expr) => {{
        let $file = $value;
        $what
    }};
}

impl<const L: usize> Machine<'_, L> {
    /// Runs the steps from the first to behind the last.
    ///
    /// # Safety
    ///
    /// As for [`Portable::call`].
    unsafe fn run(mut self, steps: &[Step]) {
        let mut at = 0;
        while let Some(step) = steps.get(at) {
            at += 1;
            match step {
                Step::Leave { var, to, target } => {
                    if self.files.int(*var) >= self.files.int(*to) {
                        at = *target;
                    }
                }
                Step::Repeat { var, by, to, target } => {
                    // A counter that overflows has passed every end.
                    let next = self.files.int(*var).checked_add(*by);
                    if let Some(next) = next.filter(|next| *next < self.files.int(*to)) {
                        self.files.int[*var as usize] = next;
                        at = *target;
                    }
                }
                Step::Load { to, at, elements, memory, mask } => {
                    let (at, elements, mask) = (self.pointer(at), self.elements(elements), self.files.mask(*mask));
                    // SAFETY: what the caller promises.
                    unsafe { self.load(*to, at, &elements, *memory, mask.as_ref()) }
                }
                Step::Store { at, elements, value, memory, mask, flushes } => {
                    let mut mask = self.files.mask(*mask);
                    if let (Elements::Quads(_), Some(mask)) = (elements, &mut mask) {
                        *mask = std::array::from_fn(|lane| mask[lane % 4]);
                    }
                    let (at, elements) = (self.pointer(at), self.elements(elements));
                    // SAFETY: what the caller promises.
                    match flushes {
                        true => unsafe { self.store_factor(*value, at, &elements, mask.as_ref()) },
                        false => unsafe { self.store(*value, at, &elements, *memory, mask.as_ref()) },
                    }
                }
                Step::ReadInt { to, at, memory } => {
                    // SAFETY: what the caller promises.
                    self.files.int[*to as usize] = unsafe { read_int(self.pointer(at), *memory) };
                }
                Step::Tile { op, at } => {
                    let at = at.as_ref().map_or(std::ptr::null_mut(), |at| self.pointer(at));
                    // SAFETY: what the caller promises.
                    unsafe { self.tiles.run(op, at) }
                }
                step => self.compute(step),
            }
        }
    }

    /// A step that touches no memory.
    fn compute(&mut self, step: &Step) {
        let files = &mut self.files;
        match *step {
            Step::Begin { to } => files.int[to as usize] = self.begin,
            Step::End { to } => files.int[to as usize] = self.end,
            Step::Buffer { to, place } => files.int[to as usize] = self.table[place].expose_provenance() as i64,
            Step::Int { op, to, a, b } => files.int[to as usize] = op.apply(files.int(a), files.int(b)),
            Step::Choose { to, which, a, b } => {
                files.int[to as usize] = files.int(if files.int(which) != 0 { a } else { b });
            }
            Step::CheckInt { to, value, bound, site } => {
                let (value, bound) = (files.int(value), files.int(bound));
                files.int[to as usize] = if (0..bound).contains(&value) { value } else { 0 };
                if !(0..bound).contains(&value) {
                    self.fail(site, value);
                }
            }
            Step::Splat { ty, to, value } => {
                let value = files.int(value) as u64;
                let word = if ty == Ty::Mask { u64::from(value != 0) } else { value };
                files.set_words(ty, to, &[word; L]);
            }
            Step::Lane0 { ty: Ty::Mask, to, a } => files.int[to as usize] = i64::from(files.mask[a as usize][0]),
            Step::Lane0 { ty, to, a } => files.int[to as usize] = files.integers(ty, a)[0],
            Step::Unary { op: Unary::Swap, to, a, .. } => files.i32[to as usize] = lane::swap(&files.i32[a as usize]),
            Step::Unary { op, ty, to, a } => {
                on_floats!(files, ty, |file| file[to as usize] = Float::unary(op, &file[a as usize]));
            }
            Step::Binary { op, ty: Ty::Mask, to, a, b } => {
                files.mask[to as usize] = lane::logic(op, &files.mask[a as usize], &files.mask[b as usize]);
            }
            Step::Binary { op, ty, to, a, b } => {
                on_vectors!(files, ty, |file| {
                    file[to as usize] = Lane::binary(op, &file[a as usize], &file[b as usize]);
                });
            }
            Step::Fma { op, ty, to, a, b, c } => {
                on_floats!(files, ty, |file| {
                    file[to as usize] = Float::fma(op, &file[a as usize], &file[b as usize], &file[c as usize]);
                });
            }
            Step::Compare { op, ty, to, a, b } => {
                files.mask[to as usize] =
                    on_vectors!(files, ty, |file| Lane::compare(op, &file[a as usize], &file[b as usize]));
            }
            Step::Select { ty: Ty::Mask, to, mask, a, b } => {
                let file = &mut files.mask;
                file[to as usize] = lane::select(&file[mask as usize], &file[a as usize], &file[b as usize]);
            }
            Step::Select { ty, to, mask, a, b } => {
                let mask = &files.mask[mask as usize];
                on_vectors!(files, ty, |file| {
                    file[to as usize] = lane::select(mask, &file[a as usize], &file[b as usize]);
                });
            }
            Step::Pick { ty: Ty::F32, to, from, lanes } => {
                files.f32[to as usize] = lane::pick(&files.f32[from as usize], &files.i32[lanes as usize]);
            }
            Step::Pick { to, from, lanes, .. } => {
                files.i32[to as usize] = lane::pick(&files.i32[from as usize], &files.i32[lanes as usize]);
            }
            Step::Convert { how, from, ty, to, a } => self.convert(how, from, ty, to as usize, a as usize),
            Step::Fold { op: _, ty: Ty::Mask, to, a } => {
                let any = files.mask[a as usize].contains(&true);
                files.mask[to as usize] = [any; L];
            }
            Step::Fold { op, ty, to, a } => {
                on_vectors!(files, ty, |file| file[to as usize] = lane::fold(op, &file[a as usize]));
            }
            Step::CheckLanes { ty, to, value, bound, mask, site } => self.check(ty, to, value, bound, mask, site),
            Step::Call { ty, to, ref routine, ref args, only } => {
                let words = std::array::from_fn(|lane| match only {
                    Some((mask, otherwise)) if !files.mask[mask as usize][lane] => files.word(ty, otherwise, lane),
                    _ => {
                        let args = args.iter().map(|(ty, arg)| files.word(*ty, *arg, lane));
                        (routine.call)(&args.collect::<SmallVec<[u64; 4]>>())
                    }
                });
                files.set_words(ty, to, &words);
            }
            Step::Copy { ty: Ty::Int, to, from } => files.int[to as usize] = files.int(from),
            Step::Copy { ty: Ty::Mask, to, from } => files.mask[to as usize] = files.mask[from as usize],
            Step::Copy { ty, to, from } => on_vectors!(files, ty, |file| file[to as usize] = file[from as usize]),
            Step::Load { .. }
            | Step::Store { .. }
            | Step::ReadInt { .. }
            | Step::Tile { .. }
            | Step::Leave { .. }
            | Step::Repeat { .. } => {
                unreachable!("memory and jumps are looked at before")
            }
        }
    }

    fn convert(&mut self, how: Convert, from: Ty, ty: Ty, to: usize, a: usize) {
        let Files { f32: f, f64: d, i32: i, i64: l, .. } = &mut self.files;
        match (how, from, ty) {
            (Convert::Float, Ty::I32, Ty::F32) => f[to] = map(&i[a], |x| x as f32),
            (Convert::Float, Ty::I64, Ty::F32) => f[to] = map(&l[a], |x| x as f32),
            (Convert::Float, Ty::F64, Ty::F32) => f[to] = map(&d[a], |x| x as f32),
            (Convert::Float, Ty::F32, Ty::F32) => f[to] = f[a],
            (Convert::Float, Ty::I32, Ty::F64) => d[to] = map(&i[a], f64::from),
            (Convert::Float, Ty::I64, Ty::F64) => d[to] = map(&l[a], |x| x as f64),
            (Convert::Float, Ty::F32, Ty::F64) => d[to] = map(&f[a], f64::from),
            (Convert::Float, Ty::F64, Ty::F64) => d[to] = d[a],
            (Convert::FloatUnsigned, Ty::I32, Ty::F32) => f[to] = map(&i[a], |x| x as u32 as f32),
            (Convert::FloatUnsigned, Ty::I64, Ty::F32) => f[to] = map(&l[a], |x| x as u64 as f32),
            (Convert::FloatUnsigned, Ty::I32, Ty::F64) => d[to] = map(&i[a], |x| f64::from(x as u32)),
            (Convert::FloatUnsigned, Ty::I64, Ty::F64) => d[to] = map(&l[a], |x| x as u64 as f64),
            (Convert::Truncate, Ty::F32, Ty::I32) => i[to] = map(&f[a], truncate::f32_to_i32),
            (Convert::Truncate, Ty::F32, Ty::I64) => l[to] = map(&f[a], truncate::f32_to_i64),
            (Convert::Truncate, Ty::F64, Ty::I32) => i[to] = map(&d[a], truncate::f64_to_i32),
            (Convert::Truncate, Ty::F64, Ty::I64) => l[to] = map(&d[a], truncate::f64_to_i64),
            (Convert::ExtendSigned, Ty::I32, Ty::I64) => l[to] = map(&i[a], i64::from),
            (Convert::ExtendUnsigned, Ty::I32, Ty::I64) => l[to] = map(&i[a], |x| i64::from(x as u32)),
            (Convert::Low, Ty::I64, Ty::I32) => i[to] = map(&l[a], |x| x as i32),
            (Convert::Bits, Ty::F32, Ty::I32) => i[to] = map(&f[a], |x| x.to_bits() as i32),
            (Convert::Bits, Ty::F64, Ty::I64) => l[to] = map(&d[a], |x| x.to_bits() as i64),
            (Convert::Bits, Ty::I32, Ty::F32) => f[to] = map(&i[a], |x| f32::from_bits(x as u32)),
            (Convert::Bits, Ty::I64, Ty::F64) => d[to] = map(&l[a], |x| f64::from_bits(x as u64)),
            _ => unreachable!("{how:?} from {from:?} to {ty:?}"),
        }
    }

    fn check(&mut self, ty: Ty, to: Reg, value: Reg, bound: Reg, mask: Option<Reg>, site: u32) {
        let (values, bound) = (self.files.integers(ty, value), self.files.int(bound));
        let mask = self.files.mask(mask).unwrap_or([true; L]);
        let within = map(&values, |value| (0..bound).contains(&value));
        self.files.set_words(ty, to, &std::array::from_fn(|k| if within[k] { values[k] as u64 } else { 0 }));
        if let Some(k) = (0..L).find(|k| mask[*k] && !within[*k]) {
            self.fail(site, values[k]);
        }
    }

    fn fail(&mut self, site: u32, value: i64) {
        if self.fault.site == 0 {
            *self.fault = Fault { site: u64::from(site) + 1, value };
        }
    }

    fn pointer(&self, at: &Place) -> *mut u8 {
        let index = self.files.int(at.index).wrapping_mul(at.scale);
        let address = self.files.int(at.base).wrapping_add(index).wrapping_add(at.offset);
        std::ptr::with_exposed_provenance_mut(address as usize)
    }

    fn elements(&self, elements: &Elements) -> Lanes<L> {
        match elements {
            Elements::Consecutive => Lanes::Consecutive,
            Elements::First => Lanes::First,
            Elements::Quads(apart) => {
                Lanes::At(std::array::from_fn(|lane| (lane / 4) as i64 * i64::from(*apart) + (lane % 4) as i64))
            }
            Elements::At(ty, index) => Lanes::At(self.files.integers(*ty, *index)),
        }
    }

    /// Elements of memory, widened.
    ///
    /// # Safety
    ///
    /// The elements that belong to lanes of the mask may be read.
    unsafe fn load(&mut self, to: Reg, at: *mut u8, lanes: &Lanes<L>, memory: DType, mask: Option<&[bool; L]>) {
        let (files, to) = (&mut self.files, to as usize);
        // SAFETY: what the caller promises.
        unsafe {
            match memory {
                DType::F32 => files.f32[to] = read(at, lanes, mask, |x: f32| x),
                DType::F16 => files.f32[to] = read(at, lanes, mask, f16_to_f32),
                DType::BF16 => files.f32[to] = read(at, lanes, mask, bf16_to_f32),
                DType::F64 => files.f64[to] = read(at, lanes, mask, |x: f64| x),
                DType::I8 => files.i32[to] = read(at, lanes, mask, |x: i8| i32::from(x)),
                DType::U8 => files.i32[to] = read(at, lanes, mask, |x: u8| i32::from(x)),
                DType::I16 => files.i32[to] = read(at, lanes, mask, |x: i16| i32::from(x)),
                DType::U16 => files.i32[to] = read(at, lanes, mask, |x: u16| i32::from(x)),
                DType::I32 | DType::U32 => files.i32[to] = read(at, lanes, mask, |x: i32| x),
                DType::I64 | DType::U64 => files.i64[to] = read(at, lanes, mask, |x: i64| x),
                DType::Bool => files.mask[to] = read(at, lanes, mask, |x: u8| x != 0),
                _ => unreachable!("registers hold no {memory}"),
            }
        }
    }

    /// Writes lanes, narrowed.
    ///
    /// # Safety
    ///
    /// The elements that belong to lanes of the mask may be written.
    unsafe fn store_factor(&self, value: Reg, at: *mut u8, lanes: &Lanes<L>, mask: Option<&[bool; L]>) {
        let narrow = |x| f32_to_bf16(flushed(x));
        // SAFETY: what the caller promises.
        unsafe { write(at, lanes, mask, &map(&self.files.f32[value as usize], narrow)) }
    }

    unsafe fn store(&self, value: Reg, at: *mut u8, lanes: &Lanes<L>, memory: DType, mask: Option<&[bool; L]>) {
        let (files, value) = (&self.files, value as usize);
        // SAFETY: what the caller promises.
        unsafe {
            match memory {
                DType::F32 => write(at, lanes, mask, &files.f32[value]),
                DType::F16 => write(at, lanes, mask, &map(&files.f32[value], f32_to_f16)),
                DType::BF16 => write(at, lanes, mask, &map(&files.f32[value], f32_to_bf16)),
                DType::F64 => write(at, lanes, mask, &files.f64[value]),
                DType::I8 | DType::U8 => write(at, lanes, mask, &map(&files.i32[value], |x| x as u8)),
                DType::I16 | DType::U16 => write(at, lanes, mask, &map(&files.i32[value], |x| x as u16)),
                DType::I32 | DType::U32 => write(at, lanes, mask, &files.i32[value]),
                DType::I64 | DType::U64 => write(at, lanes, mask, &files.i64[value]),
                DType::Bool => write(at, lanes, mask, &map(&files.mask[value], u8::from)),
                _ => unreachable!("registers hold no {memory}"),
            }
        }
    }
}

/// Which elements, counted from an address, belong to the lanes.
enum Lanes<const L: usize> {
    Consecutive,
    /// for loads, the first element to all lanes; for stores, lane 0 to the first element
    First,
    At([i64; L]),
}

/// Elements of memory, widened; 0 in lanes outside of the mask.
///
/// # Safety
///
/// The elements that belong to lanes of the mask may be read.
unsafe fn read<T: Copy, R: Copy + Default, const L: usize>(
    at: *mut u8,
    lanes: &Lanes<L>,
    mask: Option<&[bool; L]>,
    widen: impl Fn(T) -> R,
) -> [R; L] {
    let at = at.cast::<T>();
    // SAFETY: only elements of lanes in the mask are touched; no alignment is asked for.
    unsafe {
        match (lanes, mask) {
            (Lanes::Consecutive, None) => map(&at.cast::<[T; L]>().read_unaligned(), widen),
            (Lanes::First, _) => [widen(at.read_unaligned()); L],
            (_, mask) => {
                let mut out = [R::default(); L];
                for k in 0..L {
                    if mask.is_none_or(|mask| mask[k]) {
                        out[k] = widen(element(at, lanes, k).read_unaligned());
                    }
                }
                out
            }
        }
    }
}

/// Writes lanes of the mask.
///
/// # Safety
///
/// The elements that belong to lanes of the mask may be written.
unsafe fn write<T: Copy, const L: usize>(at: *mut u8, lanes: &Lanes<L>, mask: Option<&[bool; L]>, value: &[T; L]) {
    let at = at.cast::<T>();
    // SAFETY: only elements of lanes in the mask are touched; no alignment is asked for.
    unsafe {
        match (lanes, mask) {
            (Lanes::Consecutive, None) => at.cast::<[T; L]>().write_unaligned(*value),
            (Lanes::First, _) => at.write_unaligned(value[0]),
            (_, mask) => {
                for (k, value) in value.iter().enumerate() {
                    if mask.is_none_or(|mask| mask[k]) {
                        element(at, lanes, k).write_unaligned(*value);
                    }
                }
            }
        }
    }
}

/// The element that belongs to a lane.
fn element<T, const L: usize>(at: *mut T, lanes: &Lanes<L>, lane: usize) -> *mut T {
    match lanes {
        Lanes::Consecutive => at.wrapping_add(lane),
        Lanes::First => at,
        Lanes::At(indices) => at.wrapping_offset(indices[lane] as isize),
    }
}

/// An integer in memory.
///
/// # Safety
///
/// It may be read.
unsafe fn read_int(at: *const u8, memory: DType) -> i64 {
    // SAFETY: what the caller promises; no alignment is asked for.
    unsafe {
        match memory {
            DType::Bool | DType::U8 => i64::from(at.read()),
            DType::I8 => i64::from(at.cast::<i8>().read()),
            DType::U16 => i64::from(at.cast::<u16>().read_unaligned()),
            DType::I16 => i64::from(at.cast::<i16>().read_unaligned()),
            DType::U32 => i64::from(at.cast::<u32>().read_unaligned()),
            DType::I32 => i64::from(at.cast::<i32>().read_unaligned()),
            DType::U64 | DType::I64 => at.cast::<i64>().read_unaligned(),
            _ => unreachable!("{memory} is no integer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Address, Binary, Bound, Builder, Compare, Convert, FmaOp, FoldOp, IntOp, Routine, Unary, Value,
    };
    use super::*;

    /// Calls a program on buffers of its own.
    fn call(program: &Program, buffers: &mut [Vec<u8>], tasks: std::ops::Range<i64>) -> Fault {
        let table: Vec<*mut u8> = buffers.iter_mut().map(Vec::as_mut_ptr).collect();
        let mut fault = Fault::default();
        let portable = Portable::new(program).unwrap();
        // SAFETY: the programs of these tests stay within their buffers.
        unsafe { portable.call(&table, tasks.start, tasks.end, &mut fault) };
        fault
    }

    fn at(base: Value, offset: i32) -> Address {
        Address { base, index: None, offset }
    }

    fn bytes<T: Copy, const N: usize>(values: &[T], to: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        values.iter().flat_map(|x| to(*x)).collect()
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    /// o = a·x + 1 over rows of 11, eight lanes at a time, the rest by a mask.
    #[test]
    fn rows_with_a_rest() {
        let mut b = Builder::new(8);
        let (x, o) = (b.buffer(0), b.buffer(1));
        let row = b.begin_tasks();
        let scale = b.splat(Ty::I32, row);
        let scale = b.convert(Convert::Float, Ty::F32, scale);
        let one = b.float(Ty::F32, 1.0);
        let rest = b.first(3);
        for (offset, mask) in [(0, None), (32, Some(rest))] {
            let from = b.address(x, &[(row, 44)], offset);
            let v = b.load(from, DType::F32, mask);
            let v = b.fma(FmaOp::Add, v, scale, one);
            let to = b.address(o, &[(row, 44)], offset);
            b.store(to, v, DType::F32, mask);
        }
        b.end_loop(&[]);
        let input: Vec<f32> = (0..44).map(|k| k as f32).collect();
        let mut buffers = [bytes(&input, f32::to_le_bytes), vec![0; 44 * 4]];
        assert_eq!(call(&b.finish(), &mut buffers, 1..3), Fault::default());
        let expected = |k: usize| if (11..33).contains(&k) { (k * (k / 11)) as f32 + 1.0 } else { 0.0 };
        assert_eq!(floats(&buffers[1]), (0..44).map(expected).collect::<Vec<_>>());
    }

    /// Parameters that change places, a loop without trips, and a loop in a loop.
    #[test]
    fn loops_hand_on_all_at_once() {
        let mut b = Builder::new(4);
        let o = b.buffer(0);
        let (zero, one) = (b.integer(Ty::I64, 0), b.integer(Ty::I64, 1));
        let n = b.number(10);
        let (_, p) = b.begin_loop(Bound::Number(0), Bound::Value(n), 1, &[zero, one]);
        let sum = b.binary(Binary::Add, p[0], p[1]);
        let fibonacci = b.end_loop(&[p[1], sum]);
        let (_, p) = b.begin_loop(Bound::Number(3), Bound::Number(3), 1, &[one]);
        let none = b.end_loop(&p);
        let zero_int = b.number(0);
        let (i, p) = b.begin_loop(Bound::Number(1), Bound::Number(8), 3, &[zero_int]);
        let (_, q) = b.begin_loop(Bound::Number(0), Bound::Value(i), 1, &[p[0]]);
        let next = b.int(IntOp::Add, q[0], i);
        let inner = b.end_loop(&[next]);
        let squares = b.end_loop(&inner);
        let squares = b.splat(Ty::I64, squares[0]);
        for (k, v) in [fibonacci[0], fibonacci[1], none[0], squares].into_iter().enumerate() {
            b.store_lane(at(o, 8 * k as i32), v, DType::I64);
        }
        let mut buffers = [vec![0; 32]];
        call(&b.finish(), &mut buffers, 0..0);
        assert_eq!(buffers[0], bytes(&[55i64, 89, 1, 1 + 16 + 49], i64::to_le_bytes));
    }

    /// Every element type that registers hold survives a load and a store, lane by lane, at places, and as one.
    #[test]
    fn elements_of_memory() {
        for dtype in DType::ALL.iter().copied().filter(|dtype| Ty::of(*dtype).is_some()) {
            let size = dtype.bits() / 8;
            let mut b = Builder::new(8);
            let (x, o) = (b.buffer(0), b.buffer(1));
            let v = b.load(at(x, 0), dtype, None);
            b.store(at(o, 0), v, dtype, None);
            let odd = b.lane_numbers(Ty::I32);
            let one = b.integer(Ty::I32, 1);
            let odd = b.binary(Binary::And, odd, one);
            let odd = b.compare(Compare::Eq, odd, one);
            let (last, lanes) = (b.integer(Ty::I64, -1), b.lane_numbers(Ty::I64));
            let backwards = b.binary(Binary::Sub, last, lanes);
            let w = b.gather(at(x, 8 * size as i32), backwards, dtype, Some(odd));
            b.scatter(at(o, 16 * size as i32), backwards, w, dtype, Some(odd));
            let s = b.load_splat(at(x, 3 * size as i32), dtype);
            b.store_lane(at(o, 16 * size as i32), s, dtype);
            let element = |k: usize| match dtype {
                DType::Bool => vec![u8::from(k % 3 == 1)],
                DType::F16 => (0x3c01 + k as u16).to_le_bytes().to_vec(),
                _ => (0..size).map(|byte| (0x41 + 16 * (k % 4) + byte) as u8).collect(),
            };
            let input: Vec<u8> = (0..8).flat_map(element).collect();
            let mut buffers = [input, vec![0; 17 * size]];
            call(&b.finish(), &mut buffers, 0..0);
            let zero = vec![0; size];
            let expected: Vec<u8> = (0..8)
                .map(element)
                .chain((0..8).map(|k| if k % 2 == 0 { element(k) } else { zero.clone() }))
                .chain([element(3)])
                .flatten()
                .collect();
            assert_eq!(buffers[1], expected, "{dtype}");
        }
    }

    #[test]
    fn narrow_integers_keep_their_signs() {
        let mut b = Builder::new(4);
        let (x, o) = (b.buffer(0), b.buffer(1));
        for (k, dtype) in [DType::I8, DType::U8, DType::I16, DType::U16].into_iter().enumerate() {
            let int = b.read_int(at(x, 0), dtype);
            let int = b.splat(Ty::I32, int);
            let lane = b.load_splat(at(x, 0), dtype);
            b.store_lane(at(o, 8 * k as i32), int, DType::I32);
            b.store_lane(at(o, 8 * k as i32 + 4), lane, DType::I32);
        }
        let mut buffers = [vec![0xff, 0xff], vec![0; 32]];
        call(&b.finish(), &mut buffers, 0..0);
        assert_eq!(buffers[1], bytes(&[-1, -1, 255, 255, -1, -1, 65535, 65535], i32::to_le_bytes));
    }

    #[test]
    fn the_first_check_that_fails_is_kept() {
        let mut b = Builder::new(4);
        let o = b.buffer(0);
        let (lanes, bound) = (b.lane_numbers(Ty::I32), b.number(2));
        let rest = b.first(3);
        let some = b.first(1);
        let fine = b.check_lanes(lanes, bound, Some(some), 4);
        let failed = b.check_lanes(lanes, bound, Some(rest), 5);
        let minus = b.number(-7);
        let later = b.check_int(minus, bound, 6);
        let later = b.splat(Ty::I32, later);
        for (k, v) in [fine, failed, later].into_iter().enumerate() {
            b.store(at(o, 16 * k as i32), v, DType::I32, None);
        }
        let mut buffers = [vec![0; 48]];
        let fault = call(&b.finish(), &mut buffers, 0..0);
        assert_eq!(fault, Fault { site: 6, value: 2 });
        assert_eq!(buffers[0], bytes(&[0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], i32::to_le_bytes));
    }

    #[test]
    fn routines_folds_and_choices() {
        let routine = Routine {
            call: |args| u64::from((f32::from_bits(args[0] as u32) + args[1] as u32 as f32).to_bits()),
            name: "plus",
        };
        let mut b = Builder::new(16);
        let o = b.buffer(0);
        let lanes = b.lane_numbers(Ty::I32);
        let half = b.float(Ty::F32, 0.5);
        let v = b.call(Ty::F32, routine, &[half, lanes]);
        let none = b.first(15);
        let v = b.call_where(none, routine, &[v, lanes], v);
        let v = b.unary(Unary::Ceil, v);
        let v = b.fold(FoldOp::By(Binary::Max), v);
        let (begin, end) = (b.begin_tasks(), b.number(5));
        let even = b.number(1);
        let even = b.int(IntOp::And, begin, even);
        let chosen = b.choose(even, begin, end);
        let mask = b.splat(Ty::Mask, even);
        let w = b.select(mask, half, v);
        let to = b.address(o, &[(chosen, 4)], 0);
        b.store_lane(to, w, DType::F32);
        b.end_loop(&[]);
        let mut buffers = [vec![0; 24]];
        call(&b.finish(), &mut buffers, 1..5);
        assert_eq!(floats(&buffers[0]), [0.0, 0.5, 0.0, 0.5, 0.0, 29.0]);
    }
}
