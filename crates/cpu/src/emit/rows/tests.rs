//! Rows: of every length while they are short, by themselves and abreast, between pages that may not be touched.

use fuseline::tensor::{DType, Env, Literal, Symbol};
use fuseline::tile::{Kernel, parse};

use crate::code::{Code, Fault, Isa};
use crate::emit::tests::{check, run};
use crate::emit::{Memory, Target, emit};
use crate::testing::{Guarded, Side};

const SOFTMAX: &str = "axes i0: n, i1: m in x: f32[n, m] out y: f32[n, m] schedule row along=[i1] placement=registers \
    %0 = load x[i0, i1] %1 = reduce.max %0 over [i1] %2 = map(%0, %1) exp(a - b) %3 = reduce.sum %2 over [i1] \
    %4 = map(%2, %3) a / b store y[i0, i1] = %4 }";

const LAYERNORM: &str = "axes i0: n, i1: m in x: f32[n, m], w: f32[m], b: f32[m] out y: f32[n, m] schedule row along=[i1] \
    placement=registers %0 = load x[i0, i1] %1 = reduce.sum %0 over [i1] %2 = map(%0, %1) a - b * 0.03125 %3 = map(%2) a * a \
    %4 = reduce.sum %3 over [i1] %5 = load w[i1] %6 = load b[i1] \
    %7 = map(%2, %4, %5, %6) a / sqrt(b + 0.00001) * c + d store y[i0, i1] = %7 }";

/// What is held comes from two passes, and the last one has some arithmetic of its own.
const BACKWARD: &str = "axes i0: n, i1: m in x: f32[n, m], g: f32[n, m] out y: f32[n, m] schedule row along=[i1] \
    placement=registers %0 = load x[i0, i1] %1 = reduce.max %0 over [i1] %2 = map(%0, %1) exp(a - b) \
    %3 = reduce.sum %2 over [i1] %4 = load g[i0, i1] %5 = map(%2, %3, %4) a / b * (c + 1.0) / (c * c + 2.0) \
    %6 = reduce.sum %5 over [i1] %7 = map(%2, %5, %6) a * (b - c) store y[i0, i1] = %7 }";

const LARGEST: &str = "axes i0: n, i1: m in x: f32[n, m] out y: f32[n] schedule row along=[i1] placement=registers \
    %0 = load x[i0, i1] %1 = reduce.max %0 over [i1] store y[i0] = %1 }";

/// Random words in every row, before and behind a fold.
const DROPPED: &str = "axes i0: n, i1: m in s: i64[], x: f32[n, m] out y: f32[n, m] schedule row along=[i1] placement=registers \
    %0 = load s[] %1 = random %0 stream=1 at [m*i0 + i1] %2 = load x[i0, i1] \
    %3 = map(%1, %2) exp(f32(shr(a, 8)) * 5.9604645e-8 * b) %4 = reduce.sum %3 over [i1] \
    %5 = map(%1, %3, %4) select(lt(shr(a, 8), 8388608), b / c, 0.0) store y[i0, i1] = %5 }";

/// Rows that come alone, two and four at a time, with some left, and so many that they stand in lanes.
const ROWS: [i64; 6] = [1, 6, 8, 19, 64, 67];

fn kernel(text: &str) -> Kernel {
    parse(&format!("kernel {{ {text}")).unwrap()
}

fn sizes(n: i64, m: i64) -> Env {
    [("n", n), ("m", m)].into_iter().map(|(name, n)| (Symbol::name(name), n)).collect()
}

#[test]
fn rows_are_folded() {
    for (n, m) in [(1, 1), (3, 15), (5, 16), (4, 100), (30, 64), (2, 1000)] {
        check(&format!("kernel {{ {SOFTMAX}"), &[("n", n), ("m", m)]);
        let columns = SOFTMAX.replace("x[i0, i1]", "x[i1, i0]").replace("y[i0, i1]", "y[i1, i0]");
        let columns = columns.replace("f32[n, m]", "f32[m, n]");
        check(&format!("kernel {{ {columns}"), &[("n", n), ("m", m)]);
    }
}

#[test]
fn of_every_length() {
    for m in (1..=34).chain([47, 48, 63, 64, 65, 80, 81]) {
        for n in ROWS {
            check(&format!("kernel {{ {SOFTMAX}"), &[("n", n), ("m", m)]);
            check(&format!("kernel {{ {LAYERNORM}"), &[("n", n), ("m", m)]);
            check(&format!("kernel {{ {DROPPED}"), &[("n", n), ("m", m)]);
        }
    }
}

/// The bytes of the output of a kernel of one phase whose tensors have nothing before or behind them.
fn run_between_pages(kernel: &Kernel, env: &Env, inputs: &[Literal], bytes: usize, isa: Isa, side: Side) -> Vec<u8> {
    let emitted = emit(kernel, env, &Target::new(isa, 2)).unwrap();
    let mut given: Vec<Guarded> = inputs.iter().map(|x| Guarded::new(&x.bytes(), side)).collect();
    let mut output = Guarded::new(&vec![0; bytes], side);
    let [phase] = &emitted.phases[..] else { panic!("{} phases", emitted.phases.len()) };
    let mut worker = vec![u64::MAX; phase.worker_bytes.div_ceil(8) + 8];
    let mut table = vec![std::ptr::null_mut(); emitted.pointers()];
    for (k, x) in given.iter_mut().enumerate() {
        table[emitted.place(Memory::Input(k)) as usize] = x.start();
    }
    table[emitted.place(Memory::Output(0)) as usize] = output.start();
    table[emitted.place(Memory::Worker) as usize] = worker.as_mut_ptr().cast();
    let pointers: Vec<*mut u8> = phase.table.iter().map(|place| table[*place as usize]).collect();
    let (code, mut fault) = (Code::new(&phase.program, isa).unwrap(), Fault::default());
    // SAFETY: the table holds memory of the sizes that the kernel has been emitted for.
    unsafe { code.call(&pointers, 0, phase.tasks as i64, &mut fault) };
    output.bytes().to_vec()
}

/// How many times a word stands in the program of the only phase of a kernel.
fn times(word: &str, text: &str, (n, m): (i64, i64), isa: Isa) -> usize {
    let emitted = emit(&kernel(text), &sizes(n, m), &Target::new(isa, 2)).unwrap();
    let [phase] = &emitted.phases[..] else { panic!("{} phases", emitted.phases.len()) };
    phase.program.to_string().matches(word).count()
}

#[test]
fn short_ones_stand_in_lanes_and_are_turned() {
    for isa in [Isa::Avx512, Isa::Avx2] {
        for m in [4, 6, 13, 17] {
            for word in ["gather", "scatter", "fold."] {
                assert_eq!(times(word, SOFTMAX, (64, m), isa), 0, "{word} of 64×{m}, {isa:?}");
            }
            // Four rows of a square each, of those that are looped over and of the last two, which overlap.
            let squares = i64::from(m % 4 == 0 || m > 8) + 2 * i64::from(m % 4 != 0);
            let squares = squares as usize;
            assert_eq!(times("load_quads", SOFTMAX, (64, m), isa), 4 * squares, "64×{m}, {isa:?}");
            assert_eq!(times("store_quads", SOFTMAX, (64, m), isa), 4 * squares, "64×{m}, {isa:?}");
            assert!(times("gather", SOFTMAX, (323, m), isa) > 0, "what is left of rows is read element by element");
        }
        for m in [5, 6, 7] {
            assert_eq!(
                times(" if ", SOFTMAX, (64, m), isa),
                0,
                "the last four of {m} columns are there as a whole, {isa:?}"
            );
        }
        assert_eq!(times("load_quads", SOFTMAX, (64, 100), isa), 0, "lanes run along long rows, {isa:?}");
        assert_eq!(times("load_quads", SOFTMAX, (3, 5), isa), 0, "there are too few rows, {isa:?}");
    }
}

/// Rows of few columns, an odd number of them, are as many whole vectors.
#[test]
fn few_columns_are_taken_out_of_whole_vectors() {
    for isa in [Isa::Avx512, Isa::Avx2] {
        for (m, lies_whole) in [(3, true), (5, true), (4, false), (6, false), (7, false)] {
            let columns = if lies_whole { m as usize } else { 0 };
            // Each is put in order once when it is read, and once when it is written.
            assert_eq!(times("pick", SOFTMAX, (640, m), isa), 2 * columns, "{m} columns, {isa:?}");
            assert_eq!(times("load_quads", SOFTMAX, (640, m), isa) == 0, lies_whole, "{m} columns, {isa:?}");
        }
    }
}

/// A vector that is not full costs what masks cost, which are vectors themselves there.
#[test]
fn those_that_need_wide_masks_are_turned_for_longer() {
    for (m, is_turned) in [(31, true), (32, false), (47, true), (100, false)] {
        assert_eq!(times("load_quads", SOFTMAX, (64, m), Isa::Avx2) > 0, is_turned, "{m} columns");
    }
    assert_eq!(times("load_quads", SOFTMAX, (64, 47), Isa::Avx512), 0);
}

/// Columns that lie in a row of another tensor: lanes run along them.
#[test]
fn what_lies_in_columns_is_not_turned() {
    let columns = SOFTMAX.replace("x[i0, i1]", "x[i1, i0]").replace("y[i0, i1]", "y[i1, i0]");
    let columns = columns.replace("f32[n, m]", "f32[m, n]");
    assert_eq!(times("quads", &columns, (64, 17), Isa::Avx512), 0);
}

#[test]
fn nothing_is_touched_beyond_their_ends() {
    for (text, m) in [SOFTMAX, LAYERNORM, DROPPED].into_iter().flat_map(|text| (1..=33).map(move |m| (text, m))) {
        for n in ROWS {
            let (kernel, env) = (kernel(text), sizes(n, m));
            let literal = |sizes: Vec<usize>| {
                let values: Vec<f64> = (0..sizes.iter().product()).map(|k| (k * 7 % 11) as f64 / 4.0).collect();
                Literal::from_f64s(DType::F32, sizes, &values).unwrap()
            };
            let (n, m) = (n as usize, m as usize);
            let all = [literal(vec![n, m]), literal(vec![m]), literal(vec![m])];
            let drawn = [Literal::from_ints(DType::I64, vec![], &[7]).unwrap(), literal(vec![n, m])];
            let inputs = if text == DROPPED { &drawn[..] } else { &all[..kernel.inputs.len()] };
            for isa in Isa::available() {
                let expected = run(&kernel, &env, inputs, isa, 2).remove(0);
                for side in Side::ALL {
                    let actual = run_between_pages(&kernel, &env, inputs, 4 * n * m, isa, side);
                    assert_eq!(actual, expected.bytes().to_vec(), "{isa:?} {side:?} {n}×{m}\n{kernel}");
                }
            }
        }
    }
}

/// Blocks and what is left of them; tasks of several rows, the last of fewer, of one, and all of one.
#[test]
fn rows_that_overlap() {
    for text in [SOFTMAX, BACKWARD, DROPPED] {
        for isa in [Isa::Avx512, Isa::Avx2] {
            assert_eq!(times(" once", text, (1024, 1024), isa), 1, "{isa:?}");
            assert_eq!(times(" once", text, (1024, 1001), isa), 2, "{isa:?}: some columns are left");
            assert_eq!(times(" once", text, (767, 1024), isa), 0, "{isa:?}: results stay in the caches");
            assert_eq!(times(" once", text, (4, 200_000), isa), 0, "{isa:?}: a task has one row");
        }
        for (n, m) in [(769, 1024), (801, 1001), (31, 26_040)] {
            check(&format!("kernel {{ {text}"), &[("n", n), ("m", m)]);
        }
    }
    assert_eq!(times(" once", SOFTMAX, (1024, 1040), Isa::Avx512), 0, "one vector that is left divides");
    assert_eq!(times(" once", LAYERNORM, (1024, 1024), Isa::Avx512), 0, "the last pass has nothing to wait beside");
    let loaded = SOFTMAX
        .replace(" out y", ", w: f32[n] out y")
        .replace("a / b store", "a / b %5 = load w[i0] %6 = map(%4, %5) a / b store");
    let loaded = loaded.replace("= %4 }", "= %6 }");
    assert_eq!(times(" once", &loaded, (1024, 1024), Isa::Avx512), 0, "it loads what the row knows");
}

/// Bit by bit what few of them give, which do not overlap, and nothing beyond their ends.
#[test]
fn those_that_overlap_are_the_same_as_others() {
    for (text, (n, m)) in [(SOFTMAX, (801, 1001)), (BACKWARD, (769, 1024))] {
        let kernel = kernel(text);
        let value = |k: usize| match k % 70_001 {
            5 => f64::NAN,
            6 => f64::INFINITY,
            rest if (k / m).is_multiple_of(3) && rest % 2 == 0 => f64::NEG_INFINITY,
            rest => (rest % 1999) as f64 / 100.0 - 10.0,
        };
        let values: Vec<f64> = (0..n * m).map(value).collect();
        let inputs = |rows: std::ops::Range<usize>| {
            let x = Literal::from_f64s(DType::F32, vec![rows.len(), m], &values[rows.start * m..rows.end * m]).unwrap();
            vec![x; kernel.inputs.len()]
        };
        for isa in Isa::available() {
            let some = (0..n).step_by(100).map(|row| row..(row + 100).min(n));
            let expected: Vec<u8> = some
                .flat_map(|rows| {
                    let env = sizes(rows.len() as i64, m as i64);
                    run(&kernel, &env, &inputs(rows), isa, 2).remove(0).bytes().to_vec()
                })
                .collect();
            let env = sizes(n as i64, m as i64);
            for side in Side::ALL {
                let actual = run_between_pages(&kernel, &env, &inputs(0..n), 4 * n * m, isa, side);
                assert!(actual == expected, "{isa:?} {side:?} {n}×{m}\n{kernel}");
            }
        }
    }
}

#[test]
fn one_that_is_no_number_is_the_largest_of_its_row_alone() {
    let kernel = kernel(LARGEST);
    for (n, m) in [
        (8, 1),
        (8, 3),
        (68, 3),
        (68, 5),
        (64, 17),
        (68, 19),
        (8, 13),
        (8, 16),
        (8, 17),
        (7, 31),
        (8, 32),
        (8, 40),
        (4, 64),
        (3, 200),
    ] {
        for at in [0, m / 2, m - 1] {
            let mut values: Vec<f64> =
                (0..n * m).map(|k| if k % 3 == 0 { f64::NEG_INFINITY } else { k as f64 }).collect();
            values[2 * m + at] = f64::NAN;
            let x = Literal::from_f64s(DType::F32, vec![n, m], &values).unwrap();
            let largest = |row: usize| values[row * m..(row + 1) * m].iter().copied().fold(f64::NEG_INFINITY, f64::max);
            for isa in Isa::available() {
                let y = run(&kernel, &sizes(n as i64, m as i64), std::slice::from_ref(&x), isa, 2).remove(0).to_f64s();
                for (row, y) in y.iter().enumerate() {
                    let expected = if row == 2 { f64::NAN } else { largest(row) };
                    assert!(*y == expected || y.is_nan() && expected.is_nan(), "{isa:?} {n}×{m} row {row}: {y}");
                }
            }
        }
    }
}
