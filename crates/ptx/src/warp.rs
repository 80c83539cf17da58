//! What the lanes of a warp do together.

use crate::instruction::{Instruction, Shuffle, Together, Type};
use crate::machine::Thread;
use crate::memory::Shared;
use crate::scalar::float;
use crate::step::{read, set, vector, write_vector};

pub const LANES: usize = 32;

pub fn together(
    what: Together,
    instruction: &Instruction,
    lanes: &mut [Thread],
    shared: &Shared<'_>,
) -> Result<(), String> {
    match what {
        Together::Shuffle(how) => shuffle(how, instruction, lanes),
        Together::Multiply(ty) => multiply(ty, instruction, lanes),
        Together::Matrices { count, turned } => matrices(count, turned, instruction, lanes, shared),
    }
}

fn shuffle(how: Shuffle, instruction: &Instruction, lanes: &mut [Thread]) -> Result<(), String> {
    // The result, perhaps whether the other lane is there, the number, the lane, the bounds, and who takes part.
    let operands = &instruction.operands;
    let has_predicate = operands.len() == 6;
    let [number, by, bounds] = [1, 2, 3].map(|k| &operands[k + usize::from(has_predicate)]);
    let numbers: Vec<u64> = lanes.iter().map(|lane| read(lane, number)).collect();
    for (k, lane) in lanes.iter_mut().enumerate() {
        let (by, bounds) = (read(lane, by) as usize & 31, read(lane, bounds) as usize);
        let (clamp, segments) = (bounds & 31, bounds >> 8 & 31);
        let (first, last) = (k & segments, k & segments | clamp & !segments);
        let from = match how {
            Shuffle::Across => k ^ by,
            Shuffle::Up => k.wrapping_sub(by),
            Shuffle::Down => k + by,
            Shuffle::From => first | by & !segments,
        };
        let is_there = match how {
            Shuffle::Up => from >= last.min(k) || (from <= k && from >= first),
            _ => from <= last,
        };
        let own = if is_there { from } else { k };
        let value = *numbers.get(own).ok_or("a lane that is not there is asked")?;
        set(lane, &operands[0], value & 0xffff_ffff)?;
        if has_predicate {
            set(lane, &operands[1], is_there.into())?;
        }
    }
    Ok(())
}

/// Sums of a product of 16 × 16 and 16 × 8 elements: a lane has two neighbours of every eight rows or columns.
fn multiply(ty: Type, instruction: &Instruction, lanes: &mut [Thread]) -> Result<(), String> {
    let [to, left, right, sums] = instruction.operands.as_slice() else {
        return Err("four operands".into());
    };
    let half = |word: u64, high: usize| float(ty, word >> (16 * high));
    let (mut a, mut b) = ([[0.0; 16]; 16], [[0.0; 8]; 16]);
    for (lane, thread) in lanes.iter().enumerate() {
        let (group, own) = (lane / 4, lane % 4 * 2);
        for (k, word) in vector(thread, left).into_iter().enumerate() {
            let (row, column) = (group + k % 2 * 8, own + k / 2 * 8);
            (a[row][column], a[row][column + 1]) = (half(word, 0), half(word, 1));
        }
        for (k, word) in vector(thread, right).into_iter().enumerate() {
            (b[own + 8 * k][group], b[own + 8 * k + 1][group]) = (half(word, 0), half(word, 1));
        }
    }
    for (lane, thread) in lanes.iter_mut().enumerate() {
        let sums = vector(thread, sums);
        let results = sums.iter().enumerate().map(|(k, sum)| {
            let (row, column) = (lane / 4 + k / 2 * 8, lane % 4 * 2 + k % 2);
            let products: f64 = (0..16).map(|k| a[row][k] * b[k][column]).sum();
            u64::from(((float(Type::Float(4), *sum) + products) as f32).to_bits())
        });
        write_vector(thread, to, &results.collect::<Vec<u64>>())?;
    }
    Ok(())
}

/// Matrices of 8 × 8 elements: lanes say where rows lie, eight a matrix, and get two neighbours of one row, or of one column.
fn matrices(
    count: usize,
    turned: bool,
    instruction: &Instruction,
    lanes: &mut [Thread],
    shared: &Shared<'_>,
) -> Result<(), String> {
    let [to, from] = instruction.operands.as_slice() else {
        return Err("two operands".into());
    };
    let mut all = vec![[[0u64; 8]; 8]; count];
    for (k, row) in all.iter_mut().flatten().enumerate() {
        let at = shared.place(lanes[k].block, read(&lanes[k], from));
        let bytes = shared.read_shared(at, 16)?;
        for (element, two) in row.iter_mut().zip(bytes.chunks_exact(2)) {
            *element = u64::from(two[0]) | u64::from(two[1]) << 8;
        }
    }
    for (lane, thread) in lanes.iter_mut().enumerate() {
        let (row, column) = (lane / 4, lane % 4 * 2);
        let words = all.iter().map(|matrix| match turned {
            false => matrix[row][column] | matrix[row][column + 1] << 16,
            true => matrix[column][row] | matrix[column + 1][row] << 16,
        });
        write_vector(thread, to, &words.collect::<Vec<u64>>())?;
    }
    Ok(())
}
