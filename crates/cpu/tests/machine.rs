//! Machine code against expected values: the micro-kernel of matrix products, counted.

use fuseline::tensor::DType;
use fuseline_cpu::code::{Code, Fault, Isa};
use fuseline_cpu::vector::{Address, Bound, Builder, FmaOp, Program, Ty, Value};

fn at(base: Value, offset: i32) -> Address {
    Address { base, index: None, offset }
}

/// `rows` × `4·lanes` of c += a·b over `depth`; a lies row by row, b packed in panels of 4 vectors.
fn micro_kernel(lanes: u32, rows: usize, columns: usize, depth: i64) -> Program {
    let mut b = Builder::new(lanes);
    let bytes = 4 * lanes as i32;
    let (pa, pb, pc) = (b.buffer(0), b.buffer(1), b.buffer(2));
    let zero = b.float(Ty::F32, 0.0);
    let mut inits = vec![pa, pb];
    inits.extend(std::iter::repeat_n(zero, rows * columns));
    let (_, params) = b.begin_loop(Bound::Number(0), Bound::Number(depth), 1, &inits);
    let (pa, pb) = (params[0], params[1]);
    let vectors: Vec<Value> = (0..columns).map(|j| b.load(at(pb, j as i32 * bytes), DType::F32, None)).collect();
    let mut nexts = vec![b.plus(pa, 4), b.plus(pb, i64::from(bytes) * columns as i64)];
    for row in 0..rows {
        let splat = b.load_splat(at(pa, row as i32 * 4 * depth as i32), DType::F32);
        for column in 0..columns {
            nexts.push(b.fma(FmaOp::Add, splat, vectors[column], params[2 + row * columns + column]));
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

/// The instructions of the innermost loop: from the aim of the last jump back to it.
fn innermost(asm: &str) -> Vec<&str> {
    let lines: Vec<(u64, &str)> = asm
        .lines()
        .filter_map(|line| {
            let (at, text) = line.trim_start().split_once(' ')?;
            Some((at.parse().ok()?, text))
        })
        .collect();
    let entry = lines.iter().position(|(_, text)| text.starts_with("jg") || text.starts_with("jl")).unwrap();
    let aim = lines[entry].1.rsplit(' ').next().unwrap();
    let aim = u64::from_str_radix(aim.trim_end_matches('h'), 16).unwrap();
    let first = lines.iter().position(|(at, _)| *at == aim).unwrap();
    lines[first..=entry].iter().map(|(_, text)| *text).collect()
}

#[test]
fn micro_kernel_is_only_what_it_must_be() {
    let depth = 64;
    let program = micro_kernel(16, 6, 4, depth);
    let code = Code::new(&program, Isa::Avx512).unwrap();
    let asm = code.asm();
    println!("{asm}");
    let inner = innermost(&asm);
    let count = |name: &str| inner.iter().filter(|text| text.starts_with(name)).count();
    assert_eq!(count("vfmadd231ps"), 24, "{inner:#?}");
    assert_eq!(count("vmovups"), 4, "the vectors of b: {inner:#?}");
    assert_eq!(count("vbroadcastss"), 6, "the numbers of a: {inner:#?}");
    assert_eq!(inner.len(), 24 + 4 + 6 + 4, "and two pointers, a count, a jump: {inner:#?}");
    assert!(!asm.contains("rsp"), "nothing on the stack");
}

#[test]
fn micro_kernel_multiplies() {
    if Isa::detect() != Isa::Avx512 {
        return;
    }
    let (rows, columns, depth) = (6, 4, 37);
    for (isa, lanes) in [(Isa::Avx512, 16), (Isa::Avx512, 8), (Isa::Avx512, 4), (Isa::Avx2, 8), (Isa::Avx2, 4)] {
        let program = micro_kernel(lanes, rows, columns, depth as i64);
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
