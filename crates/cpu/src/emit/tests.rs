//! Kernels emitted and run, on machine code and on the portable executor, give what the interpreter of kernels gives.

use fuseline::compare::{Agreement, Tolerance, compare};
use fuseline::reference::Buffer;
use fuseline::tensor::{DType, Env, Literal, Symbol};
use fuseline::tile::{Kernel, interp, parse};

use super::{Memory, Target, emit};
use crate::code::{Code, Fault, Isa};
use crate::testing::{Guarded, Side};

mod rounding;
mod tiles;

/// Numbers that look random, from −1 to 1, or small indices.
fn literal(dtype: DType, sizes: Vec<usize>, seed: usize) -> Literal {
    let count = sizes.iter().product();
    if dtype.is_float() {
        let value = |k: usize| ((k * 7919 + seed * 104_729).wrapping_mul(2_654_435_761) % 2001) as f64 / 1000.0 - 1.0;
        let values: Vec<f64> = (0..count).map(value).collect();
        return Literal::from_f64s(dtype, sizes, &values).unwrap();
    }
    let values: Vec<i64> = (0..count).map(|k| ((k * 31 + seed) % 3) as i64).collect();
    Literal::from_ints(dtype, sizes, &values).unwrap()
}

/// Runs a kernel that is emitted for so many cores.
pub(super) fn run(kernel: &Kernel, env: &Env, inputs: &[Literal], isa: Isa, cores: usize) -> Vec<Literal> {
    run_for(kernel, env, inputs, &Target::new(isa, cores))
}

fn run_for(kernel: &Kernel, env: &Env, inputs: &[Literal], target: &Target) -> Vec<Literal> {
    let isa = target.isa;
    let emitted = emit(kernel, env, target).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
    // A byte behind the last one ends the test; what is written begins at a multiple of 64.
    let memory = |n: usize, byte: u8| Guarded::new(&vec![byte; n.next_multiple_of(64)], Side::End);
    let mut given: Vec<Guarded> = inputs.iter().map(|x| Guarded::new(&x.bytes(), Side::End)).collect();
    let sizes: Vec<Vec<usize>> = kernel
        .outputs
        .iter()
        .map(|p| p.ty.shape.dims().iter().map(|d| d.eval(env).unwrap() as usize).collect())
        .collect();
    let bytes: Vec<usize> =
        kernel.outputs.iter().zip(&sizes).map(|(p, s)| p.ty.dtype.bytes(s.iter().product()).unwrap()).collect();
    let mut outputs: Vec<Guarded> = bytes.iter().map(|n| memory(*n, 0)).collect();
    let mut scratch: Vec<Guarded> = emitted.scratch.iter().map(|n| memory(*n, 0)).collect();
    let worker = emitted.phases.iter().map(|phase| phase.worker_bytes).max().unwrap_or(0);
    // what nobody has written is no number
    let mut worker = memory(worker, u8::MAX);
    let count = inputs.len() + outputs.len() + 1 + scratch.len();
    let mut table = vec![std::ptr::null_mut(); count];
    let place = |memory: Memory| emitted.place(memory) as usize;
    for (k, x) in given.iter_mut().enumerate() {
        table[place(Memory::Input(k))] = x.start();
    }
    for (k, x) in outputs.iter_mut().enumerate() {
        table[place(Memory::Output(k))] = x.start();
    }
    for (k, x) in scratch.iter_mut().enumerate() {
        table[place(Memory::Scratch(k))] = x.start();
    }
    table[place(Memory::Worker)] = worker.start();
    for phase in &emitted.phases {
        let code = Code::new(&phase.program, isa).unwrap_or_else(|e| panic!("{e}\n{}", phase.program));
        let mut fault = Fault::default();
        let pointers: Vec<*mut u8> = phase.table.iter().map(|place| table[*place as usize]).collect();
        // SAFETY: the table holds memory of the sizes that the kernel has been emitted for.
        unsafe { code.call(&pointers, 0, phase.tasks as i64, &mut fault) };
        assert_eq!(fault, Fault::default());
    }
    let results = kernel.outputs.iter().zip(sizes).zip(outputs.iter().zip(bytes));
    results
        .map(|((param, sizes), (written, bytes))| {
            Literal::new(param.ty.dtype, sizes, written.bytes()[..bytes].to_vec()).unwrap()
        })
        .collect()
}

/// Emits and runs a kernel, and compares with its meaning. `sizes` bind its symbols.
pub(super) fn check(text: &str, sizes: &[(&str, i64)]) {
    check_within(text, sizes, &|dtype| Tolerance::ulps(dtype, 32.0));
}

fn check_within(text: &str, sizes: &[(&str, i64)], tolerance: &dyn Fn(DType) -> Tolerance) {
    let kernel = parse(text).unwrap();
    let env: Env = sizes.iter().map(|(name, n)| (Symbol::name(name), *n)).collect();
    let inputs: Vec<Literal> = kernel
        .inputs
        .iter()
        .enumerate()
        .map(|(k, param)| {
            let sizes = param.ty.shape.dims().iter().map(|d| d.eval(&env).unwrap() as usize).collect();
            literal(param.ty.dtype, sizes, k)
        })
        .collect();
    let buffers: Vec<Buffer> = inputs.iter().map(Buffer::from_literal).collect();
    let expected = interp::run(&kernel, &buffers, &env, &interp::Options::default()).unwrap();
    // A machine with wider vectors has the narrower ones too.
    for isa in Isa::available() {
        let actual = run(&kernel, &env, &inputs, isa, 2);
        for cores in [1, 16] {
            assert!(run(&kernel, &env, &inputs, isa, cores) == actual, "{isa:?}, {cores} cores\n{kernel}");
        }
        for (k, (e, a)) in expected.iter().zip(&actual).enumerate() {
            let agreement = Agreement::Within(tolerance(a.dtype()));
            if let Err(mismatch) = compare(&e.to_literal().unwrap(), a, &agreement) {
                panic!("{isa:?} output {k}: {mismatch}\n{kernel}");
            }
        }
    }
}

#[test]
fn maps_of_any_length() {
    for n in [1, 7, 16, 17, 64, 100, 40_000] {
        check(
            "kernel { axes i0: n in a: f32[n], b: f32[n] out y: f32[n] schedule map %0 = load a[i0] %1 = load b[i0] \
             %2 = map(%0, %1) (a + b) * a store y[i0] = %2 }",
            &[("n", n)],
        );
    }
}

#[test]
fn broadcast_transposed_and_padded_loads() {
    for (n, m) in [(3, 5), (20, 33), (64, 48)] {
        check(
            "kernel { axes i0: n, i1: m in a: f32[m, n], b: f32[m], c: f32[n, m] out y: f32[n, m], z: f32[m, n] schedule map \
             %0 = load a[i1, i0] %1 = load b[i1] %2 = load c[i0 - 1, i1 - 2] where 0 <= i0 - 1 < n, 0 <= i1 - 2 < m else 3.0 \
             %3 = map(%0, %1, %2) a + b * c store y[i0, i1] = %3 store z[i1, i0] = %3 }",
            &[("n", n), ("m", m)],
        );
    }
}

/// How a fold slides along an axis: results, terms, stride, dilation, elements that are missing before the first.
type Sliding = (i64, i64, i64, i64, i64);

/// A fold over windows of a picture with something before, other factors and something after it.
fn windows(rows: Sliding, lanes: Sliding, dtype: &str, is_dot: bool) -> String {
    let seen = |(results, terms, stride, dilation, before): Sliding| {
        (results - 1) * stride + (terms - 1) * dilation + 1 - before
    };
    let at = |result: &str, term: &str, (_, _, stride, dilation, before): Sliding| {
        format!("{stride}*{result} + {dilation}*{term} - {before}")
    };
    let (y, x) = (at("i1", "i3", rows), at("i2", "i4", lanes));
    // One element fewer than is seen: there is an edge behind, too.
    let (height, width) = (seen(rows).max(2) - 1, seen(lanes).max(2) - 1);
    let (folded, schedule) = match is_dot {
        true => (
            "%2 = load w[i0, i3, i4] %3 = dot(%1, %2) over [i3, i4] acc=f32",
            "contract dots=(%3) rows=[i0, i1, i2] columns=[] sum=[i3, i4] tile=1x1x1",
        ),
        false => ("%2 = load w[i0, 0, 0] %3 = reduce.max %1 over [i3, i4]", "column across=[i3, i4] along=[] parts=1"),
    };
    format!(
        "kernel {{ axes i0: 3, i1: {}, i2: {}, i3: {}, i4: {} \
         in x: {dtype}[3, {height}, {width}], w: f32[3, {}, {}], b: f32[3], r: f32[3, {}, {}] out y: f32[3, {}, {}] schedule {schedule} \
         %0 = load x[i0, {y}, {x}] where 0 <= {y} < {height}, 0 <= {x} < {width} else 0.0 \
         %1 = map(%0) select({} <= i1 * {} + i3 * {}, f32(a) * 2.0 + 1.0, -1.0) {folded} \
         %4 = load b[i0] %5 = load r[i0, i1, i2] %6 = map(%3, %4, %5) max(a + b, 0.0) * c store y[i0, i1, i2] = %6 }}",
        rows.0, lanes.0, rows.1, lanes.1, rows.1, lanes.1, rows.0, lanes.0, rows.0, lanes.0, rows.4, rows.2, rows.3
    )
}

#[test]
fn windows_slide() {
    let along = [
        (40, 3, 1, 1, 1),
        (7, 5, 1, 1, 2),
        (33, 3, 2, 1, 1),
        (16, 4, 3, 1, 0),
        (20, 3, 1, 4, 4),
        (5, 17, 1, 1, 8),
        (40, 3, 1, 9, 9),
    ];
    for (k, lanes) in along.into_iter().enumerate() {
        for rows in [along[(k + 1) % along.len()], (9, 3, 1, 1, 1), (1, 1, 1, 1, 0)] {
            for (dtype, is_dot) in [("f32", true), ("f32", false), ("bf16", true)] {
                let text = windows(rows, lanes, dtype, is_dot);
                check(&text, &[]);
                let target = Target::new(Isa::detect(), 2);
                let phases = emit(&parse(&text).unwrap(), &Env::default(), &target).unwrap().phases;
                let slides = phases.iter().any(|phase| phase.name == "slide");
                assert!(slides || rows.1 * lanes.1 <= 2 * rows.2 * lanes.2 + 8, "{text}");
            }
        }
    }
}

#[test]
fn large_unsigned_numbers_are_no_negative_indices() {
    // Of so many words some are 2^31 and more, which lanes of 32 bits cannot tell from numbers below zero.
    for stream in 0..8 {
        let text = format!(
            "kernel {{ axes i0: n in s: i64[], x: f32[n, m] out y: f32[n] schedule map %0 = load s[] \
             %1 = random %0 stream={stream} at [0] %2 = map(%1) mod(i64(a), size(m)) \
             %3 = load x[i0, @0] reading (%2) store y[i0] = %3 }}"
        );
        check(&text, &[("n", 7), ("m", 3)]);
    }
}

/// Roundings of numbers that are all the same go one way: one after the other they would come to thousands of units in the last place.
#[test]
fn long_running_sums_err_by_little() {
    for (exclusive, n) in [("", 20_000), (" exclusive", 20_000), ("", 19_999)] {
        let text = format!(
            "kernel {{ axes i0: n in x: f32[n] out y: f32[n] schedule row along=[i0] placement=registers \
             %0 = load x[i0] %1 = prefix.sum %0 along i0{exclusive} store y[i0] = %1 }}"
        );
        let (kernel, env) = (parse(&text).unwrap(), [(Symbol::name("n"), n as i64)].into_iter().collect());
        let x = Literal::from_f64s(DType::F32, [n], &vec![0.1; n]).unwrap();
        for isa in Isa::available() {
            let sums = run(&kernel, &env, std::slice::from_ref(&x), isa, 2).swap_remove(0).to_f64s();
            for (k, sum) in sums.into_iter().enumerate() {
                let exact = f64::from(0.1f32) * (k + usize::from(exclusive.is_empty())) as f64;
                let ulps = (sum - exact).abs() / (exact * f64::from(f32::EPSILON)).max(f64::MIN_POSITIVE);
                assert!(ulps < 150.0, "{isa:?}{exclusive}: {sum} at {k}, not {exact}");
            }
        }
    }
}

#[test]
fn running_folds_are_no_windows() {
    for exclusive in ["", " exclusive"] {
        for monoid in ["sum", "max", "prod"] {
            let text = |axes: &str, ty: &str, at: &str, along: &str| {
                format!(
                    "kernel {{ axes {axes} in x: f32{ty} out y: f32{ty} schedule row along=[{along}] placement=registers \
                     %0 = load x{at} %1 = prefix.{monoid} %0 along {along}{exclusive} store y{at} = %1 }}"
                )
            };
            for n in [1, 2, 4, 17, 100] {
                check(&text("i0: n", "[n]", "[i0]", "i0"), &[("n", n)]);
                for along in ["i0", "i1"] {
                    check(&text("i0: n, i1: m", "[n, m]", "[i0, i1]", along), &[("n", n), ("m", 20)]);
                }
            }
        }
    }
}

#[test]
fn contractions_with_what_comes_after() {
    for (n, m, k) in [
        (1, 64, 8),
        (30, 8, 20),
        (20, 3, 9),
        (6, 64, 4),
        (7, 65, 9),
        (128, 96, 33),
        (197, 65, 33),
        (515, 30, 7),
        (13, 30, 5),
        (40, 200, 64),
        (9, 70, 2100),
        (13, 70, 2050),
        (1, 1000, 70),
        (2, 333, 1500),
        (5, 47, 3),
    ] {
        let sizes = [("n", n), ("m", m), ("k", k)];
        check(
            "kernel { axes i0: n, i1: m, i2: k in x: f32[n, k], w: f32[k, m], b: f32[m] out y: f32[n, m] \
             schedule contract dots=(%2) rows=[i0] columns=[i1] sum=[i2] tile=6x64x256 \
             %0 = load x[i0, i2] %1 = load w[i2, i1] %2 = dot(%0, %1) over [i2] acc=f32 %3 = load b[i1] \
             %4 = map(%2, %3) max(a + b, 0.0) store y[i0, i1] = %4 }",
            &sizes,
        );
        check(
            "kernel { axes i0: n, i1: m, i2: k in x: f32[n, k], w: f32[k, m], b: f32[n, m] out y: f32[n, m] \
             schedule contract dots=(%2) rows=[i0] columns=[i1] sum=[i2] tile=6x64x256 \
             %0 = load x[i0, i2] %1 = load w[i2, i1] %2 = dot(%0, %1) over [i2] acc=f32 %3 = load b[i0, i1] \
             %4 = map(%2, %3) a + b store y[i0, i1] = %4 }",
            &sizes,
        );
        check(
            "kernel { axes i0: n, i1: m, i2: k in x: f32[n, k], w: f32[k, m], v: f32[m, k] out y: f32[n, m] \
             schedule contract dots=(%2, %4) rows=[i0] columns=[i1] sum=[i2] tile=6x64x256 \
             %0 = load x[i0, i2] %1 = load w[i2, i1] %2 = dot(%0, %1) over [i2] acc=f32 %3 = load v[i1, i2] \
             %4 = dot(%0, %3) over [i2] acc=f32 %5 = map(%2, %4) a * b store y[i0, i1] = %5 }",
            &sizes,
        );
        check(
            "kernel { axes i0: n, i1: m, i2: k in x: f32[n, k], w: f32[k, m], b: f32[n, m] out y: f32[n, m], z: f32[n, m] \
             schedule contract dots=(%2) rows=[i0] columns=[i1] sum=[i2] tile=6x64x256 whole_rows \
             %0 = load x[i0, i2] %1 = load w[i2, i1] %2 = dot(%0, %1) over [i2] acc=f32 %3 = load b[i0, i1] \
             %4 = map(%2, %3) a + b %5 = map(%4) a * a %6 = reduce.sum %5 over [i1] \
             %7 = map(%4, %6) a / sqrt(b + 1.0) store y[i0, i1] = %7 store z[i0, i1] = %4 }",
            &sizes,
        );
    }
}

#[test]
fn phases_that_do_the_same_are_one_program() {
    let text = "kernel { axes i0: 20, i1: 70, i2: 40 in x: f32[20, 40], w: f32[40, 70], b: f32[70], v: f32[40, 70], c: f32[70] \
                out y: f32[20, 70], z: f32[20, 70] schedule contract dots=(%2, %6) rows=[i0] columns=[i1] sum=[i2] tile=6x64x256 \
                %0 = load x[i0, i2] %1 = load w[i2, i1] %2 = dot(%0, %1) over [i2] acc=f32 %3 = load b[i1] %4 = map(%2, %3) a + b \
                %5 = load v[i2, i1] %6 = dot(%0, %5) over [i2] acc=f32 %7 = load c[i1] %8 = map(%6, %7) a + b \
                store y[i0, i1] = %4 store z[i0, i1] = %8 }";
    check(text, &[]);
    let phases = emit(&parse(text).unwrap(), &Env::new(), &Target::new(Isa::detect(), 2)).unwrap().phases;
    assert_eq!(phases.iter().map(|phase| phase.name).collect::<Vec<_>>(), ["pack", "multiply", "pack", "multiply"]);
    for (one, other) in [(0, 2), (1, 3)] {
        assert_eq!(phases[one].program, phases[other].program);
        assert_ne!(phases[one].table, phases[other].table);
    }
}

#[test]
fn an_axis_with_one_point_costs_nothing() {
    let text = "kernel { axes i0: b, i1: n, i2: 70, i3: 40 in x: f32[b, n, 40], w: f32[40, 70] out y: f32[b, n, 70] \
                schedule contract dots=(%2) rows=[i0, i1] columns=[i2] sum=[i3] tile=6x64x256 \
                %0 = load x[i0, i1, i3] %1 = load w[i3, i2] %2 = dot(%0, %1) over [i3] acc=f32 store y[i0, i1, i2] = %2 }";
    let kernel = parse(text).unwrap();
    let emitted = [(1, 13), (3, 13), (3, 1), (1, 1)].map(|(b, n)| {
        check(text, &[("b", b), ("n", n)]);
        let env: Env = [("b", b), ("n", n)].into_iter().map(|(name, n)| (Symbol::name(name), n)).collect();
        // With few rows, what is not constant would be read as it lies.
        let target = Target { constant: vec![false, true], ..Target::new(Isa::detect(), 2) };
        emit(&kernel, &env, &target).unwrap()
    });
    for each in &emitted {
        // No copy of x, and so the very same packing of w.
        assert_eq!(each.phases.iter().map(|phase| phase.name).collect::<Vec<_>>(), ["pack", "multiply"]);
        assert_eq!(each.phases[0].program, emitted[0].phases[0].program);
    }
}

#[test]
fn what_is_read_once_is_not_packed() {
    let text = "kernel { axes i0: n, i1: 4096, i2: 100 in x: f32[n, 100], w: f32[100, 4096] out y: f32[n, 4096] \
                schedule contract dots=(%2) rows=[i0] columns=[i1] sum=[i2] tile=6x64x256 \
                %0 = load x[i0, i2] %1 = load w[i2, i1] %2 = dot(%0, %1) over [i2] acc=f32 store y[i0, i1] = %2 }";
    let kernel = parse(text).unwrap();
    for (n, constant, packs) in [(1, false, false), (6, false, false), (7, false, true), (1, true, true)] {
        let env: Env = std::iter::once((Symbol::name("n"), n)).collect();
        let target = Target { constant: vec![false, constant], ..Target::new(Isa::detect(), 2) };
        let phases = emit(&kernel, &env, &target).unwrap().phases;
        assert_eq!(phases.iter().any(|phase| phase.name == "pack"), packs, "{n} rows, {constant}");
    }
    let turned =
        parse(&text.replace("w: f32[100, 4096]", "w: f32[4096, 100]").replace("w[i2, i1]", "w[i1, i2]")).unwrap();
    for n in [1, 3] {
        let env: Env = std::iter::once((Symbol::name("n"), n)).collect();
        let phases = emit(&turned, &env, &Target::new(Isa::detect(), 2)).unwrap().phases;
        assert_eq!(phases.iter().map(|phase| phase.name).collect::<Vec<_>>(), ["dot", "map"], "{n} rows");
    }
}

#[test]
fn few_rows_read_several_panels_at_a_time() {
    let text = "kernel { axes i0: n, i1: m, i2: 1030 in x: f32[n, 1030], w: f32[m, 1030], v: f32[m, 1030], b: f32[n, m] \
                out y: f32[n, m], z: f32[n, m] schedule contract dots=(%2, %5) rows=[i0] columns=[i1] sum=[i2] tile=6x64x256 \
                %0 = load x[i0, i2] %1 = load w[i1, i2] %2 = dot(%0, %1) over [i2] acc=f32 %3 = load b[i0, i1] \
                %4 = load v[i1, i2] %5 = dot(%0, %4) over [i2] acc=f32 %6 = map(%2, %5, %3) a * b + c \
                store y[i0, i1] = %6 %7 = map(%2) a * 0.5 store z[i0, i1] = %7 }";
    let one = "kernel { axes i0: n, i1: m, i2: 1030 in x: f32[n, 1030], w: f32[m, 1030], b: f32[n, m] out y: f32[n, m], z: f32[n, m] \
               schedule contract dots=(%2) rows=[i0] columns=[i1] sum=[i2] tile=6x64x256 whole_rows \
               %0 = load x[i0, i2] %1 = load w[i1, i2] %2 = dot(%0, %1) over [i2] acc=f32 %3 = load b[i0, i1] \
               %4 = map(%2, %3) a + b %5 = map(%4) a * a %6 = reduce.sum %5 over [i1] \
               %7 = map(%4, %6) a / sqrt(b + 1.0) store y[i0, i1] = %7 store z[i0, i1] = %4 }";
    for text in [text, one] {
        let kernel = parse(text).unwrap();
        // A multiple of four panels but for three columns, of two panels, of three, and a number that is none.
        for (n, m) in [(1, 509), (2, 256), (3, 128), (1, 192), (2, 190), (1, 320), (4, 256), (1, 30)] {
            let env: Env = [("n", n), ("m", m)].into_iter().map(|(name, n)| (Symbol::name(name), n)).collect();
            let inputs: Vec<Literal> = (0..kernel.inputs.len())
                .map(|k| {
                    let dims = kernel.inputs[k].ty.shape.dims();
                    literal(DType::F32, dims.iter().map(|d| d.eval(&env).unwrap() as usize).collect(), k)
                })
                .collect();
            let buffers: Vec<Buffer> = inputs.iter().map(Buffer::from_literal).collect();
            let expected = interp::run(&kernel, &buffers, &env, &interp::Options::default()).unwrap();
            for (isa, cores) in Isa::available().flat_map(|isa| [(isa, 1), (isa, 2), (isa, 16)]) {
                let constant = (0..kernel.inputs.len()).map(|k| k > 0 && k + 1 < kernel.inputs.len()).collect();
                let target = Target { constant, ..Target::new(isa, cores) };
                let actual = run_for(&kernel, &env, &inputs, &target);
                for (k, (e, a)) in expected.iter().zip(&actual).enumerate() {
                    let agreement = Agreement::Within(Tolerance::ulps(DType::F32, 32.0));
                    if let Err(mismatch) = compare(&e.to_literal().unwrap(), a, &agreement) {
                        panic!("{target:?}, {n} rows, {m} columns, output {k}: {mismatch}");
                    }
                }
            }
        }
    }
}

/// Tells which instructions for bf16 the machine lacks, so that a test says what it skips.
fn tell_skipped() {
    if Isa::detect() != Isa::Amx {
        eprintln!("skipped: tiles of bf16 (this machine has {:?})", Isa::detect());
    }
}

#[test]
fn contractions_of_bf16() {
    tell_skipped();
    for (n, m, k) in [
        (1, 64, 8),
        (16, 32, 32),
        (30, 8, 20),
        (33, 3, 9),
        (7, 65, 33),
        (64, 40, 131),
        (48, 30, 64),
        (100, 33, 129),
        (9, 70, 300),
    ] {
        let sizes = [("n", n), ("m", m), ("k", k)];
        check(
            "kernel { axes i0: n, i1: m, i2: k in x: f32[n, k], w: bf16[k, m], b: f32[m] out y: f32[n, m] \
             schedule contract dots=(%4) rows=[i0] columns=[i1] sum=[i2] tile=32x32x32 \
             %0 = load x[i0, i2] %1 = map(%0) f32(bf16(a)) %2 = load w[i2, i1] %3 = map(%2) f32(a) \
             %4 = dot(%1, %3) over [i2] acc=f32 %5 = load b[i1] \
             %6 = map(%4, %5) max(a + b, 0.0) store y[i0, i1] = %6 }",
            &sizes,
        );
        check(
            "kernel { axes i0: n, i1: m, i2: k in x: bf16[n, k], w: f32[k, m], v: bf16[m, k] out y: f32[n, m] \
             schedule contract dots=(%4, %7) rows=[i0] columns=[i1] sum=[i2] tile=32x32x32 \
             %0 = load x[i0, i2] %1 = map(%0) f32(a) %2 = load w[i2, i1] %3 = map(%2) f32(bf16(a)) \
             %4 = dot(%1, %3) over [i2] acc=f32 %5 = load v[i1, i2] %6 = map(%5) f32(a) \
             %7 = dot(%1, %6) over [i2] acc=f32 %8 = map(%4, %7) a * b store y[i0, i1] = %8 }",
            &sizes,
        );
        check(
            "kernel { axes i0: n, i1: m, i2: k in x: bf16[n, k], w: bf16[k, m], b: f32[n, m] out y: f32[n, m], z: f32[n, m] \
             schedule contract dots=(%4) rows=[i0] columns=[i1] sum=[i2] tile=32x32x32 whole_rows \
             %0 = load x[i0, i2] %1 = map(%0) f32(a) %2 = load w[i2, i1] %3 = map(%2) f32(a) \
             %4 = dot(%1, %3) over [i2] acc=f32 %5 = load b[i0, i1] \
             %6 = map(%4, %5) a + b %7 = map(%6) a * a %8 = reduce.sum %7 over [i1] \
             %9 = map(%6, %8) a / sqrt(b + 1.0) store y[i0, i1] = %9 store z[i0, i1] = %6 }",
            &sizes,
        );
        check(
            "kernel { axes i0: h, i1: n, i2: m, i3: k in x: f32[n, h, k], w: f32[h, m, k] out y: bf16[h, n, m] \
             schedule contract dots=(%4) rows=[i0, i1] columns=[i2] sum=[i3] tile=32x32x32 \
             %0 = load x[i1, i0, i3] %1 = map(%0) f32(bf16(a)) %2 = load w[i0, i2, i3] %3 = map(%2) f32(bf16(a)) \
             %4 = dot(%1, %3) over [i3] acc=f32 %5 = map(%4) bf16(a) store y[i0, i1, i2] = %5 }",
            &[sizes[0], sizes[1], sizes[2], ("h", 3)],
        );
    }
}

#[test]
fn convolutions_of_bf16() {
    tell_skipped();
    for (c, o, s) in [(3, 20, 9), (8, 40, 14)] {
        check(
            "kernel { axes i0: o, i1: s, i2: s, i3: c, i4: 3, i5: 3 in x: f32[c, s, s], w: f32[o, c, 3, 3] out y: f32[o, s, s] \
             schedule contract dots=(%4) rows=[i0] columns=[i1, i2] sum=[i3, i4, i5] tile=32x32x32 \
             %0 = load x[i3, i1 + i4 - 1, i2 + i5 - 1] where 0 <= i1 + i4 - 1 < s, 0 <= i2 + i5 - 1 < s else 0.0 \
             %1 = map(%0) f32(bf16(a)) %2 = load w[i0, i3, i4, i5] %3 = map(%2) f32(bf16(a)) \
             %4 = dot(%3, %1) over [i3, i4, i5] acc=f32 store y[i0, i1, i2] = %4 }",
            &[("c", c), ("o", o), ("s", s)],
        );
    }
}

/// Attention over heads that lie beside each other in a row, as exporters write it.
pub(super) fn attention(score: &str) -> String {
    format!(
        "kernel {{ axes i0: n, i1: h, i2: c, i3: m, i4: d in x0: f32[n, m], x1: f32[n, h*d], x2: f32[m, h*d], x3: f32[m, h*c] \
         out y0: f32[n, h, c] schedule attention first=%3 second=%10 rows=[i0, i1] stream=[i3] inner=[i4] columns=[i2] \
         tile=64x256x64 %0 = load x0[i0, i3] %1 = load x1[i0, d*i1 + i4] %2 = load x2[i3, d*i1 + i4] \
         %3 = dot(%1, %2) over [i4] acc=f32 %4 = map(%0, %3) {score} %5 = reduce.max %4 over [i3] \
         %6 = map(%5) select(abs(a) < inf, a, 0.0) %7 = map(%4, %6) exp(a - b) %8 = reduce.sum %7 over [i3] \
         %9 = load x3[i3, c*i1 + i2] %10 = dot(%7, %9) over [i3] acc=f32 %11 = map(%8, %5, %10) c / (a + b * 0.0) \
         store y0[i0, i1, i2] = %11 correct %8 on %5 by select(a == b, 1.0, exp(a - b)) \
         correct %10 on %5 by select(a == b, 1.0, exp(a - b)) }}"
    )
}

#[test]
fn attention_of_any_size() {
    let sizes = [(5, 1, 64, 20, 8), (50, 2, 64, 300, 16), (1, 3, 16, 40, 8), (7, 1, 20, 70, 5), (60, 1, 100, 520, 4)];
    for (n, h, c, m, d) in sizes.into_iter().chain([(13, 2, 32, 50, 8), (9, 1, 80, 33, 4), (8, 2, 96, 40, 4)]) {
        let sizes = [("n", n), ("h", h), ("c", c), ("m", m), ("d", d)];
        // Values that lie the other way are packed.
        let turned = attention("a + b * 0.125").replace("x3: f32[m, h*c]", "x3: f32[h*c, m]");
        check(&turned.replace("x3[i3, c*i1 + i2]", "x3[c*i1 + i2, i3]"), &sizes);
        check(&attention("a + b * 0.125"), &sizes);
        check(&attention("select(i3 <= i0 + 3, b * 0.125 + a, -inf)"), &sizes);
    }
}

/// Weights take the place of scores, which folds behind another fold still read.
#[test]
fn attention_whose_weights_are_there_before_its_folds() {
    let text = "kernel { axes i0: n, i1: c, i2: m, i3: d in x0: f32[n, d], x1: f32[m, d], x2: f32[m, c] \
        out y0: f32[n, c], y1: f32[n] schedule attention first=%2 second=%5 rows=[i0] stream=[i2] inner=[i3] columns=[i1] \
        tile=64x256x64 %0 = load x0[i0, i3] %1 = load x1[i2, i3] %2 = dot(%0, %1) over [i3] acc=f32 %3 = map(%2) max(a, 0.0) \
        %4 = load x2[i2, i1] %5 = dot(%3, %4) over [i2] acc=f32 %6 = reduce.max %2 over [i2] \
        %7 = map(%6) select(abs(a) < inf, a, 0.0) %8 = map(%2, %7) exp(a - b) %9 = reduce.sum %8 over [i2] \
        %10 = map(%9, %7) log(a) + b store y0[i0, i1] = %5 store y1[i0] = %10 \
        correct %9 on %6 by select(a == b, 1.0, exp(a - b)) }";
    for (n, c, m, d) in [(5, 3, 2, 4), (9, 20, 300, 16), (40, 64, 33, 8), (7, 5, 1, 3)] {
        check(text, &[("n", n), ("c", c), ("m", m), ("d", d)]);
    }
}

/// The same with the factors of both products in bf16. Weights are rounded when they are what the keys so far make of them, or, by the interpreter, all keys:
/// each may differ by a last place, and with values up to 1 so may what they weigh.
fn check_attention_of_bf16(text: &str, sizes: &[(&str, i64)]) {
    let text = text
        .replace("%3 = dot(%1, %2)", "%21 = map(%1) f32(bf16(a)) %22 = map(%2) f32(bf16(a)) %3 = dot(%21, %22)")
        .replace("%10 = dot(%7, %9)", "%23 = map(%7) f32(bf16(a)) %24 = map(%9) f32(bf16(a)) %10 = dot(%23, %24)");
    check_within(&text, sizes, &|_| Tolerance { relative: 1e-5, absolute: DType::BF16.epsilon() });
    if Isa::detect() == Isa::Amx {
        let env: Env = sizes.iter().map(|(name, n)| (Symbol::name(name), *n)).collect();
        let emitted = emit(&parse(&text).unwrap(), &env, &Target::new(Isa::Amx, 2)).unwrap();
        assert!(emitted.phases.last().unwrap().program.to_string().contains("tile_products"), "{text}");
    }
}

#[test]
fn attention_of_bf16() {
    tell_skipped();
    for (n, h, c, m, d) in [
        (16, 1, 64, 20, 8),
        (50, 2, 64, 300, 64),
        (33, 1, 20, 31, 5),
        (60, 1, 100, 520, 33),
        (17, 3, 32, 1, 16),
        (96, 1, 80, 257, 80),
    ] {
        let sizes = [("n", n), ("h", h), ("c", c), ("m", m), ("d", d)];
        for score in ["a + b * 0.125", "b * 0.25", "b", "select(i3 <= i0 + 3, b * 0.125 + a, -inf)"] {
            check_attention_of_bf16(&attention(score), &sizes);
        }
        let shared = shared_keys("a + b * 0.125");
        check_attention_of_bf16(&shared, &[("n", n), ("h", 2), ("c", c), ("m", m), ("d", d)]);
    }
}

#[test]
fn attention_with_masks_of_64_bits() {
    for (n, keys, mask, at) in
        [(5, 40, "i64[k]", "m[i3]"), (20, 100, "i64[n, k]", "m[i0, i3]"), (7, 16, "f64[3]", "m[i1]")]
    {
        let text = format!(
            "kernel {{ axes i0: n, i1: 3, i2: 20, i3: k, i4: 8 \
             in q: f32[n, 3, 8], c: f32[k, 3, 8], v: f32[k, 3, 20], m: {mask} out y: f32[n, 3, 20] \
             schedule attention first=%2 second=%8 rows=[i0, i1] stream=[i3] inner=[i4] columns=[i2] tile=64x256x64 \
             %0 = load q[i0, i1, i4] %1 = load c[i3, i1, i4] %2 = dot(%0, %1) over [i4] acc=f32 %3 = load {at} \
             %4 = map(%3, %2) select(bool(a), f32(0.0), f32(-3.0)) + b * 0.125 %5 = reduce.max %4 over [i3] \
             %6 = map(%4, %5) exp(a - b) %7 = load v[i3, i1, i2] %8 = dot(%6, %7) over [i3] acc=f32 \
             %9 = reduce.sum %6 over [i3] %10 = map(%8, %9) a / b store y[i0, i1, i2] = %10 \
             correct %8 on %5 by select(a == b, 1.0, exp(a - b)) correct %9 on %5 by select(a == b, 1.0, exp(a - b)) }}"
        );
        check(&text, &[("n", n), ("k", keys)]);
    }
}

/// Truths of folds in 64 bits wait for these.
#[test]
fn attention_with_truths_of_folds_of_64_bits() {
    for (dtype, mask) in [("f64", "f64"), ("f32", "f64"), ("f32", "i64")] {
        let text = format!(
            "kernel {{ axes i0: n, i1: c, i2: m, i3: d in x0: {dtype}[n, d], x1: {dtype}[m, d], x2: {dtype}[m, c], x3: {mask}[n, m] \
             out y0: {dtype}[n, c], y1: bool[n], y2: bool[n] \
             schedule attention first=%2 second=%7 rows=[i0] stream=[i2] inner=[i3] columns=[i1] tile=64x256x64 \
             %0 = load x0[i0, i3] %1 = load x1[i2, i3] %2 = dot(%0, %1) over [i3] acc={dtype} %3 = reduce.max %2 over [i2] \
             %4 = map(%3) select(abs(a) < inf, a, 0.0) %5 = map(%2, %4) exp(a - b) %6 = load x2[i2, i1] \
             %7 = dot(%5, %6) over [i2] acc={dtype} %8 = reduce.sum %5 over [i2] %9 = map(%3) a < 0.5 %10 = load x3[i0, i2] \
             %11 = reduce.max %10 over [i2] %12 = map(%11) bool(a) %13 = map(%7, %8) a / b \
             store y0[i0, i1] = %13 store y1[i0] = %9 store y2[i0] = %12 \
             correct %7 on %3 by select(a == b, 1.0, exp(a - b)) correct %8 on %3 by select(a == b, 1.0, exp(a - b)) }}"
        );
        for (n, c, m, d) in [(4, 4, 4, 4), (20, 8, 40, 8), (64, 64, 128, 64), (5, 16, 65, 17)] {
            check(&text, &[("n", n), ("c", c), ("m", m), ("d", d)]);
        }
    }
}

/// Attention of six heads, three of which share keys.
fn shared_keys(score: &str) -> String {
    let text = attention(score).replace("i1: h", "i1: 6").replace("h*d], x2", "6*d], x2");
    let text = text.replace("f32[n, h, c]", "f32[n, 6, c]").replace("x2[i3, d*i1 + i4]", "x2[i3, d*(i1 // 3) + i4]");
    text.replace("x3[i3, c*i1 + i2]", "x3[i3, c*(i1 // 3) + i2]")
}

#[test]
fn heads_that_share_keys() {
    for score in ["a + b * 0.125", "select(i3 <= i0 + 3, b * 0.125 + a, -inf)"] {
        let text = shared_keys(score);
        assert!(matches!(super::group::grouped(&parse(&text).unwrap()), std::borrow::Cow::Owned(_)), "{text}");
        for (n, c, m, d) in [(1, 64, 70, 8), (50, 64, 300, 16), (7, 20, 70, 5)] {
            check(&text, &[("n", n), ("h", 2), ("c", c), ("m", m), ("d", d)]);
        }
    }
}

/// A word is that of its element, however lanes lie to it: rows that begin inside of a block too, and what is read column by column.
#[test]
fn random_words_of_rows_that_begin_anywhere() {
    for (n, m) in [(3, 64), (2, 256), (5, 77), (3, 130), (7, 3), (1, 1000), (70, 5)] {
        for index in ["m*i0 + i1", "m*i0 + i1 + 2", "n*i1 + i0", "2*m*i0 + 2*i1"] {
            check(
                &format!(
                    "kernel {{ axes i0: n, i1: m in s: i64[], a: f32[n, m] out y: f32[n, m] schedule map %0 = load s[] \
                     %1 = random %0 stream=7 at [{index}] %2 = load a[i0, i1] \
                     %3 = map(%1, %2) f32(shr(a, 8)) * b store y[i0, i1] = %3 }}"
                ),
                &[("n", n), ("m", m)],
            );
        }
    }
}

/// Words are drawn while the worker's memory holds what passes leave to each other.
#[test]
fn random_words_beside_what_a_row_keeps() {
    for (n, m) in [(3, 64), (5, 77), (2, 300)] {
        check(
            "kernel { axes i0: n, i1: m in s: i64[], a: f32[n, m] out y: f32[n, m] schedule row along=[i1] placement=registers \
             %0 = load s[] %1 = random %0 stream=1 at [m*i0 + i1] %2 = load a[i0, i1] \
             %3 = map(%1, %2) exp(f32(shr(a, 8)) * 5.9604645e-8 * b) %4 = reduce.sum %3 over [i1] %5 = map(%3, %4) a / b \
             store y[i0, i1] = %5 }",
            &[("n", n), ("m", m)],
        );
    }
}

/// Long folds with few results have many tasks, and give the same for any number of cores.
#[test]
fn long_folds_are_cut_into_parts() {
    for (n, m) in [(1, 140_001), (2, 131_072)] {
        for monoid in ["sum", "max"] {
            let text = format!(
                "kernel {{ axes i0: n, i1: m in x: f32[n, m] out y: f32[n] schedule row along=[i1] placement=registers \
                 %0 = load x[i0, i1] %1 = map(%0) a * a - a %2 = reduce.{monoid} %1 over [i1] %3 = map(%2) a + 1.0 \
                 store y[i0] = %3 }}"
            );
            check(&text, &[("n", n), ("m", m)]);
            let env: Env = [(Symbol::name("n"), n), (Symbol::name("m"), m)].into_iter().collect();
            let emitted = emit(&parse(&text).unwrap(), &env, &Target::new(Isa::detect(), 2)).unwrap();
            assert!(emitted.phases[0].tasks >= 8, "{n} {m}: {} tasks", emitted.phases[0].tasks);
        }
    }
    // Over several axes, and down columns.
    for index in ["i0, i1", "i1, i0"] {
        check(
            &format!(
                "kernel {{ axes i0: n, i1: n in x: f32[n, n] out y: f32[] schedule row along=[i0, i1] placement=registers \
                 %0 = load x[{index}] %1 = map(%0) a * a %2 = reduce.sum %1 over [i0, i1] %3 = map(%2) a * 2.0 \
                 store y[] = %3 }}"
            ),
            &[("n", 401)],
        );
    }
}
