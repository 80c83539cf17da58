//! Programs of functions and expressions, run on everything that this processor can run.

mod expressions;
mod functions;
mod words;

use super::*;
use crate::code::{Code, Fault, Isa};
use crate::vector::{Builder, Program, Value};

/// What programs can be run on here.
fn instructions() -> Vec<Isa> {
    Isa::available().filter(|isa| *isa != Isa::Amx).collect()
}

/// Lanes of a vector, with or without numbers of 64 bits.
fn lanes(isa: Isa, wide: bool) -> usize {
    isa.vector_bytes() / if wide { 8 } else { 4 }
}

/// Calls a program on buffers for tasks `0..tasks`.
fn call(program: &Program, isa: Isa, buffers: &mut [Vec<u8>], tasks: usize) {
    let table: Vec<*mut u8> = buffers.iter_mut().map(Vec::as_mut_ptr).collect();
    let code = Code::new(program, isa).unwrap();
    // SAFETY: the processor has the instructions, and the programs of these tests stay within their buffers.
    unsafe { code.call(&table, 0, tasks as i64, &mut Fault::default()) };
}

/// Runs vector code on elements of the given types, by the bits of the lanes that hold them; all instructions must agree.
fn run(inputs: &[(DType, Vec<u64>)], to: DType, body: impl Fn(&mut Builder, &[Value]) -> Value) -> Vec<u64> {
    let wide = inputs.iter().map(|(dtype, _)| *dtype).chain([to]).any(|dtype| held_bytes(dtype) == 8);
    let mut results = instructions().into_iter().map(|isa| run_on(isa, inputs, to, lanes(isa, wide), &body));
    let first = results.next().expect("there is the portable executor");
    let is_nan = |word: u64| to.is_float() && float_of(to, word).is_nan();
    for other in results {
        let same = |(a, b): (&u64, &u64)| a == b || (is_nan(*a) && is_nan(*b));
        let different = first.iter().zip(&other).position(|pair| !same(pair));
        assert_eq!(different.map(|k| (k, first[k], other[k])), None, "of {:x?}", inputs.iter().map(|(_, w)| w.len()));
    }
    first
}

fn run_on(
    isa: Isa,
    inputs: &[(DType, Vec<u64>)],
    to: DType,
    lanes: usize,
    body: &impl Fn(&mut Builder, &[Value]) -> Value,
) -> Vec<u64> {
    let count = inputs[0].1.len();
    let padded = count.next_multiple_of(lanes);
    let mut b = Builder::new(lanes as u32);
    let bases: Vec<Value> = (0..=inputs.len() as u32).map(|k| b.buffer(k)).collect();
    let task = b.begin_tasks();
    let mut args = Vec::new();
    for ((dtype, _), base) in inputs.iter().zip(&bases) {
        let at = b.address(*base, &[(task, (lanes * held_bytes(*dtype)) as i64)], 0);
        args.push(b.load(at, held(*dtype), None));
    }
    let y = body(&mut b, &args);
    let at = b.address(bases[inputs.len()], &[(task, (lanes * held_bytes(to)) as i64)], 0);
    b.store(at, y, held(to), None);
    b.end_loop(&[]);
    let mut buffers: Vec<Vec<u8>> = inputs
        .iter()
        .map(|(dtype, words)| {
            let padding = std::iter::repeat_n(&words[0], padded - count);
            words.iter().chain(padding).flat_map(|w| w.to_le_bytes()[..held_bytes(*dtype)].to_vec()).collect()
        })
        .collect();
    buffers.push(vec![0; padded * held_bytes(to)]);
    call(&b.finish(), isa, &mut buffers, padded / lanes);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    buffers.last().unwrap().chunks_exact(held_bytes(to)).take(count).map(word).collect()
}

/// A type of memory whose elements are the lanes that hold `dtype`.
fn held(dtype: DType) -> DType {
    match register(dtype) {
        Ty::F32 => DType::F32,
        Ty::F64 => DType::F64,
        Ty::I32 => DType::I32,
        Ty::I64 => DType::I64,
        _ => DType::Bool,
    }
}

fn held_bytes(dtype: DType) -> usize {
    held(dtype).bits() / 8
}

/// The bits of lanes that hold a float of the type.
fn float_word(dtype: DType, x: f64) -> u64 {
    if dtype == DType::F64 { x.to_bits() } else { u64::from((x as f32).to_bits()) }
}

fn float_of(dtype: DType, word: u64) -> f64 {
    if dtype == DType::F64 { f64::from_bits(word) } else { f64::from(f32::from_bits(word as u32)) }
}

fn int_word(dtype: DType, x: i128) -> u64 {
    if held_bytes(dtype) == 8 { x as u64 } else { u64::from(x as u32) }
}

fn int_of(dtype: DType, word: u64) -> i128 {
    match held(dtype) {
        DType::Bool => i128::from(word),
        _ if integer::is_wide_unsigned(dtype) => i128::from(word),
        DType::I32 => i128::from(word as u32 as i32),
        _ => i128::from(word as i64),
    }
}

fn random(seed: u64) -> impl Iterator<Item = u32> {
    fuseline::philox::words(seed, 0, 0)
}
