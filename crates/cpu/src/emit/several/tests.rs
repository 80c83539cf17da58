//! Several rows as one: of every length, with what is the same for all rows, random words, and rows that are left.

use fuseline::tensor::{DType, Env, Literal, Symbol};
use fuseline::tile::parse;

use crate::code::Isa;
use crate::emit::tests::{check, run};
use crate::emit::{Target, emit};

/// A bias, what is computed of it, random words, and something beside that is read in another order where `other` says so.
fn dropped(other: &str) -> String {
    format!(
        "kernel {{ axes i0: n, i1: m in s: i64[], x: f32[n, m], w: f32[m], b: f32[n, m] out y: f32[n, m] schedule map \
         %0 = load s[] %1 = random %0 stream=3 at [m*i0 + i1] %2 = load x[i0, i1] %3 = load w[i1] %4 = map(%3) exp(a) \
         %5 = load b[{other}] %6 = map(%1, %2, %3, %4, %5) select(lt(shr(a, 8), 8388608), b * d + c, e) store y[i0, i1] = %6 }}"
    )
}

/// Bytes in which a worker keeps what is the same for all rows.
fn kept(text: &str, n: i64, m: i64) -> usize {
    let env: Env = [("n", n), ("m", m)].into_iter().map(|(name, n)| (Symbol::name(name), n)).collect();
    let emitted = emit(&parse(text).unwrap(), &env, &Target::new(Isa::Avx512, 2)).unwrap();
    emitted.phases.iter().map(|phase| phase.worker_bytes).sum()
}

#[test]
fn of_every_length() {
    for m in (1..=34).chain([47, 48, 63, 64, 65]) {
        for n in [1, 5, 64, 256, 300, 515] {
            check(&dropped("i0, i1"), &[("n", n), ("m", m)]);
        }
    }
}

#[test]
fn rows_that_are_told_apart_stay_rows() {
    // From row to row backwards, or one number for a row: elements of several rows lie in no row.
    for other in ["n - 1 - i0, i1", "i0, 0"] {
        check(&dropped(other), &[("n", 300), ("m", 17)]);
        assert!(kept(&dropped(other), 300, 17) < 2 * 64 * 17 * 4, "{other}");
    }
    assert!(kept(&dropped("i0, i1"), 300, 17) >= 2 * 64 * 17 * 4, "64 rows of the scale and of its exponential");
    assert!(kept(&dropped("i0, i1"), 30, 17) < 2 * 64 * 17 * 4, "there are too few rows");
    assert!(kept(&dropped("i0, i1"), 300, 64) < 2 * 64 * 64 * 4, "rows are long enough");
}

#[test]
fn axes_beside_rows() {
    let text = "kernel { axes i0: b, i1: n, i2: m in x: f32[b, n, m], w: f32[m], v: f32[b] out y: f32[b, n, m] schedule map \
        %0 = load x[i0, i1, i2] %1 = load w[i2] %2 = load v[i0] %3 = map(%0, %1, %2) a * b + c store y[i0, i1, i2] = %3 }";
    for (b, n, m) in [(2, 64, 17), (3, 130, 5), (2, 300, 31), (5, 3, 7)] {
        check(text, &[("b", b), ("n", n), ("m", m)]);
    }
}

#[test]
fn words_are_those_of_elements_for_any_number_of_cores() {
    let (kernel, n, m) = (parse(&dropped("i0, i1")).unwrap(), 700usize, 13usize);
    let env: Env = [("n", n as i64), ("m", m as i64)].into_iter().map(|(name, n)| (Symbol::name(name), n)).collect();
    let matrix = |sizes: Vec<usize>| {
        let values: Vec<f64> = (0..sizes.iter().product()).map(|k| (k * 7 % 11) as f64 / 4.0).collect();
        Literal::from_f64s(DType::F32, sizes, &values).unwrap()
    };
    let seed = Literal::from_ints(DType::I64, vec![], &[42]).unwrap();
    let inputs = [seed, matrix(vec![n, m]), matrix(vec![m]), matrix(vec![n, m])];
    let all: Vec<Vec<u8>> =
        [1, 2, 7].map(|cores| run(&kernel, &env, &inputs, Isa::detect(), cores).remove(0).bytes().to_vec()).into();
    assert!(all.windows(2).all(|two| two[0] == two[1]));
}
