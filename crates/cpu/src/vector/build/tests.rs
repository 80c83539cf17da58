use fuseline::tensor::DType;

use super::{Binary, Builder, Op, Ty};

/// What a program reads only if is not read before it is known whether.
#[test]
fn what_reads_memory_stays_inside() {
    let mut b = Builder::new(8);
    let (memory, holds) = (b.buffer(0), b.pure(Ty::Int, Op::Begin));
    let outside = b.address(memory, &[], 0);
    let known = b.load(outside, DType::F32, None);
    b.begin_when(holds, &[]);
    let address = b.address(memory, &[], 32);
    let (again, inside) = (b.load(outside, DType::F32, None), b.load(address, DType::F32, None));
    let sum = b.binary(Binary::Add, again, inside);
    let double = b.binary(Binary::Add, known, known);
    b.end_when(&[]);
    assert_eq!((again, b.depth(double)), (known, 0));
    assert_eq!((b.depth(inside), b.depth(sum)), (1, 1));
    let behind = b.load(address, DType::F32, None);
    assert_eq!(b.depth(behind), 0);
}
