//! Random words against their definition.

use fuseline::philox;

use super::super::random::{Wide, word};
use super::super::*;
use super::{call, instructions, lanes};

#[test]
fn words_are_those_of_the_generator() {
    let seed = 0x1234_5678_9abc_def0u64;
    let stream = 0xfeed_0000_0007;
    // Around the places where the low half is full, blocks begin, and numbers are large.
    for (start, step) in
        [(0, 1), (6, 1), (0xffff_fffa, 1), (0x7_ffff_fff9, 3), (1 << 62, 1), (5, 0), (0x1_0000_0003, -5)]
    {
        for isa in instructions() {
            for wide in [false, true] {
                let lanes = lanes(isa, wide);
                let mut b = Builder::new(lanes as u32);
                let out = b.buffer(0);
                let task = b.begin_tasks();
                let seeds = b.number(seed as i64);
                let seeds = Wide::uniform(&mut b, seeds);
                let first = b.times(task, lanes as i64 * step);
                let first = b.plus(first, start);
                let index = if wide {
                    let numbers = b.lane_numbers(Ty::I64);
                    let mut f = Lanes(&mut b);
                    let ahead = f.mul(numbers, step);
                    let first = f.0.splat(Ty::I64, first);
                    let index = f.add(first, ahead);
                    Wide::lanes(&mut b, index)
                } else {
                    Wide::line(&mut b, first, step).unwrap()
                };
                let words = word(&mut b, seeds, stream, index);
                let at = b.address(out, &[(task, 4 * lanes as i64)], 0);
                b.store(at, words, DType::U32, None);
                b.end_loop(&[]);
                let mut memory = [vec![0; 3 * lanes * 4]];
                call(&b.finish(), isa, &mut memory, 3);
                let found: Vec<u32> =
                    memory[0].chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
                let expected: Vec<u32> =
                    (0..3 * lanes as i64).map(|k| philox::word(seed, stream, (start + k * step) as u64)).collect();
                assert_eq!(found, expected, "{start} {step} {isa:?} {wide}");
            }
        }
    }
}
