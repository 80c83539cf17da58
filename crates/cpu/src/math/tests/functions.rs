//! Every function on every type against the table, and how far the fast ones are off.

use fuseline::ops::prim::Monoid;
use fuseline::ops::{Scalar, Signature};

use super::super::*;
use super::{Isa, float_of, float_word, held_bytes, instructions, int_of, int_word, lanes, random, run, run_on};

/// Numbers of a float type at which something happens, and others.
fn floats(dtype: DType) -> Vec<f64> {
    let max = dtype.max_float().unwrap();
    let mut xs = vec![
        0.0,
        1.0,
        0.5,
        2.5,
        3.5,
        1e-3,
        0.75,
        2.0,
        100.0,
        127.5,
        1e-45,
        1e-40,
        1e-38,
        3e38,
        300.7,
        65535.5,
        16777217.0,
        2147483648.0,
        4294967295.0,
        4294967296.5,
        8589934591.0,
        9.3e18,
        1.9e19,
        1e30,
        2.3e38,
        max,
        f64::INFINITY,
        f64::NAN,
    ];
    xs.extend(random(3).take(20).map(|w| (f64::from(w) / 4294967296.0 - 0.5) * 16.0));
    let mut all: Vec<f64> = xs.iter().flat_map(|x| [dtype.round(*x), dtype.round(-x)]).collect();
    all.dedup_by(|a, b| a.to_bits() == b.to_bits());
    all
}

fn integers(dtype: DType) -> Vec<i128> {
    let (low, high) = dtype.int_range().unwrap_or_default();
    let mut xs =
        vec![0, 1, 2, 3, 5, 7, 8, 31, 32, 33, 40, 63, 64, 100, -1, -2, -7, -8, -100, low, low + 1, high, high - 1];
    xs.extend(random(4).take(12).map(|w| dtype.wrap(i128::from(w) * 0x1_2345_6789)));
    xs.iter().map(|x| dtype.wrap(*x)).collect()
}

fn table_types() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|d| Ty::of(*d).is_some() || !d.is_float())
}

/// All combinations of one, two or three elements, as words by argument.
fn combinations(words: &[u64], conditions: &[u64], def_arity: usize, select: bool) -> Vec<Vec<u64>> {
    let mut columns = vec![Vec::new(); def_arity];
    let pairs = words.iter().flat_map(|a| words.iter().map(move |b| (*a, *b)));
    match (def_arity, select) {
        (1, _) => columns[0] = words.to_vec(),
        (2, _) => pairs.for_each(|(a, b)| {
            columns[0].push(a);
            columns[1].push(b);
        }),
        _ => pairs.flat_map(|(a, b)| conditions.iter().map(move |c| (*c, a, b))).for_each(|(c, a, b)| {
            columns[0].push(c);
            columns[1].push(a);
            columns[2].push(b);
        }),
    }
    columns
}

#[test]
fn every_function_on_every_type_is_as_the_table_says() {
    for (op, dtype) in Scalar::ALL.iter().flat_map(|op| table_types().map(move |d| (*op, d))) {
        if !op.is_defined_on(dtype) {
            continue;
        }
        let def = op.def();
        let words: Vec<u64> = match dtype.class() {
            Class::Float => floats(dtype).iter().map(|x| float_word(dtype, *x)).collect(),
            Class::Bool => vec![0, 1],
            _ => integers(dtype).iter().map(|x| int_word(dtype, *x)).collect(),
        };
        let select = def.signature == Signature::Select;
        let columns = combinations(&words, &[0, 1], def.arity, select);
        let to = if def.signature == Signature::Compare { DType::Bool } else { dtype };
        let types = (0..def.arity).map(|k| if select && k == 0 { DType::Bool } else { dtype });
        let inputs: Vec<(DType, Vec<u64>)> = types.zip(columns).collect();
        let out = run(&inputs, to, |b, args| apply(b, op, dtype, args));
        for (k, y) in out.into_iter().enumerate() {
            let args: Vec<u64> = inputs.iter().map(|(_, words)| words[k]).collect();
            check_element(op, dtype, to, &inputs, &args, y);
        }
    }
}

fn check_element(op: Scalar, dtype: DType, to: DType, inputs: &[(DType, Vec<u64>)], args: &[u64], y: u64) {
    let def = op.def();
    if dtype.is_float() {
        let numbers: Vec<f64> = inputs
            .iter()
            .zip(args)
            .map(|((d, _), w)| if d.is_float() { float_of(*d, *w) } else { *w as f64 })
            .collect();
        let expected = (def.float.unwrap())(&numbers);
        let told = || format!("{op:?} of {dtype} {numbers:?}: {expected}");
        if to == DType::Bool {
            assert_eq!(y as f64, expected, "{}", told());
            return;
        }
        let actual = float_of(to, y);
        let nearest = if to == DType::F64 { expected } else { DType::F32.round(expected) };
        let same = actual == nearest && actual.is_sign_negative() == nearest.is_sign_negative();
        let exact = same || (actual.is_nan() && nearest.is_nan());
        let close = def.ulp > 0 && to != DType::F64 && errs(actual, expected) <= f64::from(def.ulp) + 0.5;
        assert!(exact || close, "{} is not {actual}", told());
        assert!(exact || expected != 0.0, "{} is not {actual}", told());
    } else {
        let numbers: Vec<i128> = inputs.iter().zip(args).map(|((d, _), w)| int_of(*d, *w)).collect();
        let expected = match dtype {
            DType::Bool => {
                let truths: Vec<bool> = numbers.iter().map(|n| *n != 0).collect();
                i128::from((def.bool.unwrap())(&truths))
            }
            _ => to.wrap((def.int.unwrap())(&numbers)),
        };
        assert_eq!(int_of(to, y), expected, "{op:?} of {dtype} {numbers:?}");
    }
}

/// How far a result is off, in the unit in which `compare` and the table count: 2^−23 of the magnitude.
fn errs(actual: f64, expected: f64) -> f64 {
    if actual == expected || (expected.abs() > f64::from(f32::MAX) && actual.is_infinite()) {
        return 0.0;
    }
    (actual - expected).abs() / (expected.abs().max(f64::from(f32::MIN_POSITIVE)) * DType::F32.epsilon())
}

/// Points for a function of f32: uniform in bits over all floats, and uniform between bounds.
fn points(count: usize, low: f32, high: f32) -> Vec<u64> {
    let mut words = random(11);
    let mut xs: Vec<u64> = words.by_ref().take(count / 2).map(u64::from).collect();
    let within = |w: u32| low + (f64::from(w) / 4294967296.0 * f64::from(high - low)) as f32;
    xs.extend(words.take(count / 2).map(|w| u64::from(within(w).to_bits())));
    xs
}

#[test]
fn fast_functions_err_by_what_the_table_allows() {
    let ranges = [
        (Scalar::Exp, -104.0, 89.0),
        (Scalar::Exp2, -150.0, 128.5),
        (Scalar::Expm1, -18.0, 10.0),
        (Scalar::Sigmoid, -104.0, 20.0),
        (Scalar::Tanh, -9.5, 9.5),
        (Scalar::Erf, -4.1, 4.1),
        (Scalar::Log, 0.0, 4.0),
        (Scalar::Log2, 0.0, 4.0),
        (Scalar::Log1p, -1.0, 3.0),
        (Scalar::Sin, -50.0, 50.0),
        (Scalar::Cos, -50.0, 50.0),
    ];
    for (op, low, high) in ranges {
        let few = [(DType::F32, points(10_000, low, high))];
        run(&few, DType::F32, |b, args| apply(b, op, DType::F32, args));
        let inputs = [(DType::F32, points(1 << 20, low, high))];
        let isa = Isa::detect();
        let body = |b: &mut Builder, args: &[Value]| apply(b, op, DType::F32, args);
        let out = run_on(isa, &inputs, DType::F32, lanes(isa, false), &body);
        let mut worst = (0.0, 0.0, 0.0);
        for (x, y) in inputs[0].1.iter().zip(&out) {
            let (x, y) = (float_of(DType::F32, *x), float_of(DType::F32, *y));
            let expected = (op.def().float.unwrap())(&[x]);
            assert_eq!(y.is_nan(), expected.is_nan(), "{op:?} {x}: {y}");
            let bounded = matches!(op, Scalar::Tanh | Scalar::Erf | Scalar::Sigmoid | Scalar::Sin | Scalar::Cos);
            assert!(!bounded || y.is_nan() || y.abs() <= 1.0, "{op:?} {x}: {y}");
            let error = errs(y, expected);
            if error > worst.0 {
                worst = (error, x, y);
            }
        }
        let (error, x, y) = worst;
        assert!(error <= f64::from(op.def().ulp) + 0.5, "{op:?} {x} = {y} is off by {error}");
    }
}

/// Vectors of 16 lanes need no bounds for what an exponential is scaled by; the numbers are those of others.
#[test]
fn exponentials_are_the_same_in_vectors_of_all_lengths() {
    let mut xs = points(1 << 14, -110.0, 95.0);
    let ends = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, -f32::NAN, f32::MIN, f32::MAX, -103.98, -104.0, -104.00001];
    xs.extend(ends.into_iter().chain([-150.0, -150.00002, -0.0]).map(|x| u64::from(x.to_bits())));
    let inputs = [(DType::F32, xs)];
    for op in [Scalar::Exp, Scalar::Exp2, Scalar::Sigmoid] {
        let body = |b: &mut Builder, args: &[Value]| apply(b, op, DType::F32, args);
        let on = |isa: Isa, lanes: usize| run_on(isa, &inputs, DType::F32, lanes, &body);
        let expected = on(Isa::Portable, 8);
        for isa in Isa::available() {
            for lanes in [4, 8, lanes(isa, false)] {
                assert!(on(isa, lanes) == expected, "{op:?} on {isa:?}, {lanes} lanes");
            }
        }
    }
}

#[test]
fn powers_err_by_what_the_table_allows() {
    // Any bits; powers that are numbers; numbers next to 1 with large exponents; small integers.
    let mut words = random(12);
    let mut between = |low: f64, high: f64| low + f64::from(words.next().unwrap()) / 4294967296.0 * (high - low);
    let mut pairs = Vec::new();
    for _ in 0..1 << 17 {
        let any = |word: f64| f64::from(f32::from_bits(word as u32));
        pairs.push((any(between(0.0, 4294967296.0)), any(between(0.0, 4294967296.0))));
        let x = f64::from(between(-126.0, 126.0).exp2() as f32);
        pairs.push((x, between(-150.0, 128.5) / x.log2()));
        let near = f64::from((1.0 + between(-0.1, 0.1) * between(0.0, 1.0).powi(8)) as f32);
        pairs.push((near, between(-150.0, 128.5) / near.log2()));
        pairs.push((between(-40.0, 40.0), between(-20.0, 20.0).round()));
    }
    let words = |number: fn(&(f64, f64)) -> f64| pairs.iter().map(|p| float_word(DType::F32, number(p))).collect();
    let inputs = [(DType::F32, words(|p| p.0)), (DType::F32, words(|p| p.1))];
    let out = run(&inputs, DType::F32, |b, args| apply(b, Scalar::Pow, DType::F32, args));
    let mut worst = (0.0, 0.0, 0.0, 0.0);
    for ((x, y), z) in inputs[0].1.iter().zip(&inputs[1].1).zip(&out) {
        let [x, y, z] = [x, y, z].map(|word| float_of(DType::F32, *word));
        let expected = x.powf(y);
        assert_eq!(z.is_nan(), expected.is_nan(), "{x} to the power of {y}: {z}");
        let error = errs(z, expected);
        if error > worst.0 {
            worst = (error, x, y, z);
        }
    }
    let (error, x, y, z) = worst;
    assert!(error <= 2.0, "{x} to the power of {y} = {z} is off by {error}");
}

#[test]
fn casts_are_those_of_the_reference() {
    let all: Vec<DType> = DType::ALL.to_vec();
    for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to))) {
        let words: Vec<u64> = match from.class() {
            Class::Float => floats(from).iter().map(|x| float_word(from, *x)).collect(),
            Class::Bool => vec![0, 1],
            _ => integers(from).iter().map(|x| int_word(from, *x)).collect(),
        };
        let inputs = [(from, words)];
        let out = run(&inputs, to, |b, args| cast(b, from, to, args[0]));
        for (x, y) in inputs[0].1.iter().zip(&out) {
            if from.is_float() {
                let x = float_of(from, *x);
                let expected = match to.class() {
                    Class::Float => {
                        let (expected, y) = (to.round(x), float_of(to, *y));
                        assert!(
                            expected.to_bits() == y.to_bits() || (expected.is_nan() && y.is_nan()),
                            "{x} {from}→{to}: {y}"
                        );
                        continue;
                    }
                    Class::Bool => i128::from(x != 0.0),
                    _ => to.wrap(x as i128),
                };
                assert_eq!(int_of(to, *y), expected, "{x} {from}→{to}");
            } else {
                let x = int_of(from, *x);
                if to.is_float() {
                    let (expected, y) = (to.round(x as f64), float_of(to, *y));
                    assert!(expected == y || (expected.is_nan() && y.is_nan()), "{x} {from}→{to}: {y}, not {expected}");
                } else {
                    assert_eq!(int_of(to, *y), to.wrap(x), "{x} {from}→{to}");
                }
            }
        }
    }
}

#[test]
fn bits_are_read_as_other_types() {
    let all: Vec<DType> = DType::ALL.to_vec();
    for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to))) {
        if from.bits() != to.bits() || to == DType::Bool {
            continue;
        }
        let words: Vec<u64> = match from.class() {
            Class::Float => floats(from).iter().map(|x| float_word(from, *x)).collect(),
            Class::Bool => vec![0, 1],
            _ => integers(from).iter().map(|x| int_word(from, *x)).collect(),
        };
        let inputs = [(from, words)];
        let out = run(&inputs, to, |b, args| reinterpret(b, from, to, args[0]));
        for (x, y) in inputs[0].1.iter().zip(&out) {
            let low = u64::MAX >> (64 - from.bits());
            let bits = if from.is_float() { from.to_bits(float_of(from, *x)) } else { int_of(from, *x) as u64 & low };
            if to.is_float() {
                let (expected, y) = (to.from_bits(bits), float_of(to, *y));
                assert!(
                    expected.to_bits() == y.to_bits() || (expected.is_nan() && y.is_nan()),
                    "{from}→{to} {bits:#x}"
                );
            } else if !(from.is_float() && float_of(from, *x).is_nan()) {
                assert_eq!(int_of(to, *y), to.wrap(i128::from(bits)), "{from}→{to} {bits:#x}");
            }
        }
    }
}

#[test]
fn lanes_are_folded_as_their_elements_are() {
    let special = [1.0, -0.0, 0.0, f64::NAN, -3.5, f64::INFINITY, f64::NEG_INFINITY, 2.0];
    let monoids = [Monoid::Sum, Monoid::Prod, Monoid::Max, Monoid::Min];
    let types = DType::ALL.iter().copied().filter(|d| d.is_int() || [DType::F32, DType::F64, DType::F16].contains(d));
    for (dtype, monoid) in types.flat_map(|d| monoids.map(|m| (d, m))) {
        for isa in instructions() {
            let lanes = lanes(isa, held_bytes(dtype) == 8);
            for seed in 0..30 {
                let draws = random(seed).take(lanes);
                let elements: Vec<f64> = draws.map(|w| special[(w >> 16) as usize % (2 + w as usize % 7)]).collect();
                let integers: Vec<i128> = integers(dtype).into_iter().skip(seed as usize % 20).take(lanes).collect();
                let words = if dtype.is_float() {
                    elements.iter().map(|x| float_word(dtype, *x)).collect()
                } else {
                    integers.iter().map(|x| int_word(dtype, *x)).collect()
                };
                let out = run_on(isa, &[(dtype, words)], dtype, lanes, &|b, args| {
                    let none = monoid::neutral(b, monoid, dtype);
                    let folded = monoid::fold_lanes(b, monoid, dtype, args[0]);
                    monoid::combine(b, monoid, dtype, none, folded)
                });
                for y in out {
                    if dtype.is_float() {
                        check_float_fold(monoid, dtype, &elements, float_of(dtype, y));
                    } else {
                        let expected = integer_fold(monoid, dtype, &integers);
                        assert_eq!(int_of(dtype, y), expected, "{} of {dtype} {integers:?}", monoid.name());
                    }
                }
            }
        }
    }
}

fn check_float_fold(monoid: Monoid, dtype: DType, elements: &[f64], y: f64) {
    let scalar = match monoid {
        Monoid::Sum => Scalar::Add,
        Monoid::Prod => Scalar::Mul,
        Monoid::Max => Scalar::Max,
        _ => Scalar::Min,
    };
    let fold = scalar.def().float.unwrap();
    let start = monoid.neutral(dtype).to_f64();
    let expected = elements.iter().fold(start, |a, x| fold(&[a, *x]));
    let zeros = matches!(monoid, Monoid::Sum | Monoid::Prod) && y == 0.0 && expected == 0.0;
    let close = matches!(monoid, Monoid::Prod) && (y / expected - 1.0).abs() < 1e-6;
    let same = y.to_bits() == expected.to_bits() || (y.is_nan() && expected.is_nan());
    assert!(same || zeros || close, "{} of {elements:?} is {expected}, not {y}", monoid.name());
}

fn integer_fold(monoid: Monoid, dtype: DType, elements: &[i128]) -> i128 {
    match monoid {
        Monoid::Sum => elements.iter().fold(0i128, |a, x| dtype.wrap(a.wrapping_add(*x))),
        Monoid::Prod => elements.iter().fold(1i128, |a, x| dtype.wrap(a.wrapping_mul(*x))),
        Monoid::Max => *elements.iter().max().unwrap(),
        _ => *elements.iter().min().unwrap(),
    }
}
