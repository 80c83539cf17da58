//! Machine code against expected values: the micro-kernel of matrix products, counted.

use fuseline::tensor::DType;
use fuseline_cpu::code::{Code, Fault, Isa};
use fuseline_cpu::vector::{Address, Bound, Builder, FmaOp, Program, Ty, Value};

fn at(base: Value, offset: i32) -> Address {
    Address { base, index: None, offset }
}

/// `rows` × `columns` vectors of c = a·b over `depth`, `steps` at a time; a lies row by row, b packed in panels of `columns` vectors.
fn micro_kernel(lanes: u32, rows: usize, columns: usize, depth: i64, steps: i64) -> Program {
    let mut b = Builder::new(lanes);
    let bytes = 4 * lanes as i32;
    let (pa, pb, pc) = (b.buffer(0), b.buffer(1), b.buffer(2));
    let zero = b.float(Ty::F32, 0.0);
    let mut inits = vec![pa, pb];
    inits.extend(std::iter::repeat_n(zero, rows * columns));
    let (_, params) = b.begin_loop(Bound::Number(0), Bound::Number(depth), steps, &inits);
    let (pa, pb) = (params[0], params[1]);
    let panel = bytes * columns as i32;
    let mut nexts = vec![b.plus(pa, 4 * steps), b.plus(pb, i64::from(panel) * steps)];
    nexts.extend(&params[2..]);
    for step in 0..steps as i32 {
        let at_vector = |column: usize| at(pb, panel * step + column as i32 * bytes);
        let vectors: Vec<Value> = (0..columns).map(|column| b.load(at_vector(column), DType::F32, None)).collect();
        for row in 0..rows {
            let splat = b.load_splat(at(pa, 4 * (row as i32 * depth as i32 + step)), DType::F32);
            for (column, vector) in vectors.iter().enumerate() {
                let sum = &mut nexts[2 + row * columns + column];
                *sum = b.fma(FmaOp::Add, splat, *vector, *sum);
            }
        }
    }
    let results = b.end_loop(&nexts);
    for row in 0..rows {
        for column in 0..columns {
            let offset = (row * columns + column) as i32 * bytes;
            b.store(at(pc, offset), results[2 + row * columns + column], DType::F32, None);
        }
    }
    b.finish()
}

/// An address in hexadecimal.
fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_suffix('h')?, 16).ok()
}

/// The instructions of the innermost loop: from the aim of the last jump back to it.
fn innermost(asm: &str) -> Vec<&str> {
    let lines: Vec<(u64, &str)> = asm
        .lines()
        .filter_map(|line| {
            let (at, text) = line.trim_start().split_once(' ')?;
            Some((address(at)?, text))
        })
        .collect();
    let entry = lines.iter().position(|(_, text)| text.starts_with("jg") || text.starts_with("jl")).unwrap();
    let aim = lines[entry].1.rsplit(' ').next().unwrap();
    let aim = address(aim).unwrap();
    let first = lines.iter().position(|(at, _)| *at == aim).unwrap();
    lines[first..=entry].iter().map(|(_, text)| *text).collect()
}

#[test]
fn micro_kernel_is_only_what_it_must_be() {
    let shapes = [(Isa::Avx512, 16, 6, 4), (Isa::Avx512, 16, 9, 3), (Isa::Avx512, 16, 14, 2), (Isa::Avx2, 8, 6, 2)];
    for (isa, lanes, rows, columns) in shapes {
        for steps in [1, 2, 4] {
            let program = micro_kernel(lanes, rows, columns, 64, steps);
            let asm = Code::new(&program, isa).unwrap().asm();
            let (inner, steps) = (innermost(&asm), steps as usize);
            let count = |name: &str| inner.iter().filter(|text| text.starts_with(name)).count();
            assert_eq!(count("vfmadd231ps"), rows * columns * steps, "{inner:#?}");
            assert_eq!(count("vmovups"), columns * steps, "the vectors of b: {inner:#?}");
            assert_eq!(count("vbroadcastss"), rows * steps, "the numbers of a: {inner:#?}");
            let rest = inner.len() - (rows * columns + columns + rows) * steps;
            assert_eq!(rest, 4, "two pointers, a count, a jump: {inner:#?}");
            assert!(!asm.contains("rsp"), "nothing lies on the stack: {asm}");
        }
    }
}

#[test]
fn constants_are_told_where_they_are_read() {
    for (isa, lanes) in [(Isa::Avx512, 16), (Isa::Avx2, 8)] {
        let mut b = Builder::new(lanes);
        let (from, to) = (b.buffer(0), b.buffer(1));
        let x = b.load(at(from, 0), DType::F32, None);
        let (factor, term) = (b.float(Ty::F32, 2.5), b.float(Ty::F32, -0.75));
        let y = b.fma(FmaOp::Add, x, factor, term);
        b.store(at(to, 0), y, DType::F32, None);
        let asm = Code::new(&b.finish(), isa).unwrap().asm();
        for told in ["; 2.5 (40200000h)", "; -0.75 (BF400000h)"] {
            assert_eq!(asm.lines().filter(|line| line.ends_with(told)).count(), 1, "{told}: {asm}");
        }
        assert!(asm.starts_with("   40h "), "addresses are written as instructions have them: {asm}");
        assert!(!asm.contains("[0FFFFFFFF"), "constants lie before the code, at addresses of their own: {asm}");
    }
}

#[test]
fn micro_kernel_multiplies() {
    if Isa::detect() > Isa::Avx512 {
        return;
    }
    let (rows, columns) = (6, 4);
    let sets = [(Isa::Avx512, 16), (Isa::Avx512, 8), (Isa::Avx512, 4), (Isa::Avx2, 8), (Isa::Avx2, 4)];
    for ((isa, lanes), depth) in sets.into_iter().flat_map(|set| [(set, 37), (set, 38)]) {
        let program = micro_kernel(lanes, rows, columns, depth as i64, if depth % 2 == 0 { 2 } else { 1 });
        let width = columns * lanes as usize;
        let mut a: Vec<f32> = (0..rows * depth).map(|k| (k % 7) as f32 - 3.0).collect();
        let mut b: Vec<f32> = (0..depth * width).map(|k| (k % 5) as f32 - 2.0).collect();
        let mut c = vec![0.0f32; rows * width];
        let table = [a.as_mut_ptr().cast::<u8>(), b.as_mut_ptr().cast(), c.as_mut_ptr().cast()];
        let code = Code::new(&program, isa).unwrap();
        let mut fault = Fault::default();
        // SAFETY: the table points to all that the program reads and writes
        unsafe { code.call(&table, 0, 1, &mut fault) };
        for row in 0..rows {
            for column in 0..width {
                let want: f32 = (0..depth).map(|k| a[row * depth + k] * b[k * width + column]).sum();
                assert_eq!(c[row * width + column], want, "{isa:?}, {lanes} lanes, row {row}, column {column}");
            }
        }
    }
}
