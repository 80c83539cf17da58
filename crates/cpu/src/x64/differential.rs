//! Random programs: machine code must do what the portable executor does.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fuseline::tensor::DType;

use crate::code::{Code, Isa};
use crate::testing::random::{Options, case};
use crate::testing::{Case, Contents, Side};
use crate::vector::parse;

/// Instruction set, lanes, bytes of the widest vector.
const SHAPES: [(Isa, u32); 5] = [(Isa::Avx512, 16), (Isa::Avx512, 8), (Isa::Avx512, 4), (Isa::Avx2, 8), (Isa::Avx2, 4)];

pub(super) fn has(isa: Isa) -> bool {
    Isa::available().any(|other| other == isa)
}

/// What is different, if anything is.
pub(super) fn difference(case: &Case, isa: Isa) -> Option<String> {
    let code = match Code::new(&case.program, isa) {
        Ok(code) => code,
        Err(error) => return Some(error.to_string()),
    };
    Side::ALL.into_iter().find_map(|side| {
        let expected = case.expected(side, &case.whole());
        let found = case.run(side, &case.whole(), |table, tasks, fault| {
            // SAFETY: the program of a case stays within its memory, or ends at a guarded page
            unsafe { code.call(table, tasks.start, tasks.end, fault) }
        });
        case.difference(&expected, &found)
    })
}

fn check(seeds: std::ops::Range<u64>, size: impl Fn(u64) -> usize) {
    for seed in seeds {
        let (isa, lanes) = SHAPES[seed as usize % SHAPES.len()];
        if !has(isa) {
            continue;
        }
        let case = case(seed, Options { lanes, vector_bytes: isa.vector_bytes(), size: size(seed) });
        let found = catch_unwind(AssertUnwindSafe(|| difference(&case, isa)));
        if !matches!(found, Ok(None)) {
            let small =
                case.reduce(|case| !matches!(catch_unwind(AssertUnwindSafe(|| difference(case, isa))), Ok(None)));
            let what = catch_unwind(AssertUnwindSafe(|| difference(&small, isa)));
            let asm = Code::new(&small.program, isa).map(|code| code.asm()).unwrap_or_default();
            panic!("seed {seed}, {isa:?}, {lanes} lanes: {what:?}\n{}\n{asm}", small.program);
        }
    }
}

/// A program of eight lanes that writes two vectors of i32.
fn check_text(body: &str) {
    let text = format!("vector lanes=8 buffers=1 {{ %0: int = buffer 0 %1: i32 = lanes %2: i32 = const 0x7 {body} }}");
    let buffers = vec![Contents { dtype: DType::I32, bytes: vec![0; 64] }];
    let case = Case { program: parse(&text, &[]).expect("the text of a program"), buffers, tasks: 1 };
    for isa in [Isa::Avx512, Isa::Avx2].into_iter().filter(|isa| has(*isa)) {
        assert_eq!(difference(&case, isa), None, "{isa:?}");
    }
}

/// What an inner loop makes of one parameter becomes another one, while the first gets something else.
#[test]
fn parameters_that_change_places_through_a_loop() {
    check_text(
        "%3: i32 = add %1, %2
        for %4 in 0..3 {
            carry %5: i32 = %1
            carry %6: i32 = %2
            for %7 in 0..2 {
                carry %8: i32 = %5
                carry %9: i32 = %3
                %10: i32 = add %8, %2
                next %10 -> %11
                next %9 -> %12
            }
            next %12 -> %13
            next %11 -> %14
        }
        store i32 [%0] = %13
        store i32 [%0 + 32] = %14",
    );
}

/// A parameter that no trip reads, of a loop that has no trip.
#[test]
fn parameters_that_are_only_handed_on() {
    check_text(
        "%3: int = begin
        %4: i32 = add %1, %2
        %5: i32 = mul %1, %2
        for %6 in 0..%3 {
            carry %7: i32 = %4
            carry %8: i32 = %5
            for %9 in 0..2 {
                carry %10: i32 = %8
                next %10 -> %11
            }
            next %11 -> %12
            next %2 -> %13
        }
        store i32 [%0] = %12
        store i32 [%0 + 32] = %13",
    );
}

/// A multiply-add that only a choice between it and 0 reads leaves out lanes itself; one that something else reads too does not.
#[test]
fn multiply_adds_in_some_lanes() {
    let program = |stored: &str| {
        let text = format!(
            "vector lanes=8 buffers=1 {{ %0: int = buffer 0 %1: f32 = load f32 [%0] %2: f32 = load f32 [%0 + 32] \
             %3: f32 = const 0 %4: mask = compare.lt %1, %2 %5: f32 = fma.add %1, %2, %1 %6: f32 = select %4, %5, %3 \
             store f32 [%0 + 64] = %6 store f32 [%0 + 96] = {stored} }}"
        );
        parse(&text, &[]).unwrap_or_else(|e| panic!("{e}"))
    };
    let numbers = [1.5f32, f32::NAN, -2.0, f32::INFINITY, 0.0, 3.0, -0.0, 1e38];
    let bytes = numbers.iter().chain(numbers.iter().rev()).flat_map(|x| x.to_le_bytes()).chain([0; 64]).collect();
    let buffers = vec![Contents { dtype: DType::F32, bytes }];
    for (stored, blends) in [("%6", 0), ("%5", 1)] {
        let case = Case { program: program(stored), buffers: buffers.clone(), tasks: 1 };
        for isa in [Isa::Avx512, Isa::Avx2].into_iter().filter(|isa| has(*isa)) {
            assert_eq!(difference(&case, isa), None, "{isa:?}");
            let asm = Code::new(&case.program, isa).unwrap().asm();
            assert!(isa == Isa::Avx2 || asm.matches("vblend").count() == blends, "{stored}\n{asm}");
        }
    }
}

#[test]
fn small_programs() {
    check(0..400, |_| 8);
}

#[test]
fn middling_programs() {
    check(1000..1300, |seed| 20 + seed as usize % 40);
}

#[test]
fn large_programs() {
    check(2000..2040, |seed| 200 + seed as usize % 200);
}

/// What tiles make of bf16: the same bits, of numbers of all sizes, subnormal ones too.
#[test]
fn products_of_tiles() {
    if !has(Isa::Amx) {
        eprintln!("skipped: tiles of bf16 (this machine has {:?})", Isa::detect());
        return;
    }
    let text = "vector lanes=16 buffers=3 { %0: int = buffer 0 %1: int = buffer 1 %2: int = buffer 2 %3: int = number 1 \
                tile_zero 1 tile_load 4 = [%0] by 128 tile_load 6 = [%1 + %3*8 - 8] by 64 tile_products 1 += 4 * 6 \
                tile_load 5 = [%0 + 64] by 128 tile_products 1 += 5 * 6 tile_store [%2] by 64 = 1 }";
    let program = parse(text, &[]).expect("the text of a program");
    for (seed, exponents) in [(1u32, 8u32), (2, 40), (3, 255)] {
        let mut state = seed;
        let mut factor = |count: usize| {
            let numbers = (0..count).flat_map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let exponent = (127 + (state >> 8) % exponents).saturating_sub(exponents / 2).min(254);
                let bits = (state >> 31 << 15) | exponent << 7 | (state >> 20 & 127);
                (bits as u16).to_le_bytes()
            });
            Contents { dtype: DType::BF16, bytes: numbers.collect() }
        };
        let sums = Contents { dtype: DType::F32, bytes: vec![0; 1024] };
        let case = Case { program: program.clone(), buffers: vec![factor(1024), factor(512), sums], tasks: 1 };
        assert_eq!(difference(&case, Isa::Amx), None, "exponents {exponents}");
    }
}

/// What is written for tiles: numbers of all kinds, every pattern of the lower half that decides how the upper one is rounded, in vectors of either length, masked and not.
#[test]
fn factors_of_tiles() {
    if !has(Isa::Amx) {
        eprintln!("skipped: tiles of bf16 (this machine has {:?})", Isa::detect());
        return;
    }
    let uppers = [0u32, 1, 0x7f, 0x80, 0x3f80, 0x3f81, 0x7f7f, 0x7f80, 0x7fc0, 0x8000, 0x8001, 0x807f, 0xbf80, 0xff7f];
    let lowers = [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
    let all = uppers.into_iter().flat_map(|upper| lowers.map(|lower| upper << 16 | lower));
    let numbers: Vec<u32> = all.chain([0x7f80_0001, 0x7fff_ffff, 0xffff_ffff, 0x0040_0000]).collect();
    for lanes in [8usize, 16] {
        let text = format!(
            "vector lanes={lanes} buffers=2 {{ %0: int = buffer 0 %1: int = buffer 1 %2: f32 = load f32 [%0] \
             %3: mask = compare.lt %2, %2 store_factor bf16 [%1] = %2 store_factor bf16 [%1 + 64] = %2 if %3 \
             %4: i32 = lanes %5: i32 = const 5 %6: mask = compare.lt %4, %5 store_factor bf16 [%1 + 128] = %2 if %6 }}"
        );
        let program = parse(&text, &[]).unwrap_or_else(|e| panic!("{e}"));
        for some in numbers.chunks(lanes).filter(|some| some.len() == lanes) {
            let bytes = some.iter().flat_map(|bits| bits.to_le_bytes()).collect();
            let given = Contents { dtype: DType::F32, bytes };
            let written = Contents { dtype: DType::BF16, bytes: vec![0; 192] };
            let case = Case { program: program.clone(), buffers: vec![given, written], tasks: 1 };
            assert_eq!(difference(&case, Isa::Amx), None, "{some:x?}");
        }
    }
}
