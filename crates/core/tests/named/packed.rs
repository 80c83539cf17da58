use crate::call::{f32s, noise, op};
use fuseline::tensor::{DType, Literal};

fn bytes(sizes: &[usize], values: &[i64]) -> Literal {
    Literal::from_ints(DType::U8, sizes.to_vec(), values).unwrap()
}

/// Weights of `bits` bits in blocks of 16: packed low bits first, and as numbers.
fn pack(rows: usize, depth: usize, bits: usize) -> (Vec<i64>, Vec<i64>) {
    let (blocks, per_byte) = (depth.div_ceil(16), 8 / bits);
    let mut packed = vec![0; rows * blocks * 16 / per_byte];
    let mut plain = Vec::new();
    for n in 0..rows {
        for k in 0..depth {
            let value = ((n * 7 + k * 5 + k * k) % (1 << bits)) as i64;
            plain.push(value);
            let place = n * blocks * 16 + k;
            packed[place / per_byte] |= value << (place % per_byte * bits);
        }
    }
    (packed, plain)
}

#[test]
fn packed_weights_are_unpacked_by_block() {
    let (rows, depth) = (3, 40);
    for (bits, groups, zeros) in
        [(4, false, true), (4, true, true), (4, false, false), (8, false, true), (2, false, true)]
    {
        let (packed, plain) = pack(rows, depth, bits);
        let per_byte = 8 / bits;
        let scales: Vec<f64> = (0..rows * 3).map(|k| (k + 1) as f64).collect();
        let zero: Vec<i64> = (0..rows * 3).map(|k| (k % (1 << bits)) as i64).collect();
        let row_bytes = 3usize.div_ceil(per_byte);
        let mut zero_bytes = vec![0; rows * row_bytes];
        for (k, z) in zero.iter().enumerate() {
            zero_bytes[k / 3 * row_bytes + k % 3 / per_byte] |= z << (k % 3 % per_byte * bits);
        }
        let group = |k: usize| if groups { (k * 2) % 3 } else { k / 16 };
        let x = noise(&[2, 2, depth], 9);
        let mut call = op("MatMulNBits")
            .domain("com.microsoft", 1)
            .int("K", depth as i64)
            .int("N", rows as i64)
            .int("bits", bits as i64)
            .int("block_size", 16)
            .arg(x.clone())
            .arg(bytes(&[rows, 3, 16 / per_byte], &packed))
            .arg(f32s(&[rows * 3], &scales));
        call = if zeros { call.arg(bytes(&[rows * row_bytes], &zero_bytes)) } else { call.no_arg() };
        if groups {
            let places: Vec<i64> = (0..depth).map(|k| group(k) as i64).collect();
            call = call.arg(Literal::from_ints(DType::I32, [depth], &places).unwrap());
        }
        let y = call.run().remove(0);
        assert_eq!(y.sizes(), [2, 2, rows]);
        for place in 0..4 {
            for n in 0..rows {
                let weight = |k: usize| {
                    let block = n * 3 + group(k);
                    let zero = if zeros { zero[block] } else { 1 << (bits - 1) };
                    (plain[n * depth + k] - zero) as f64 * scales[block]
                };
                let wanted: f64 = (0..depth).map(|k| x.float(place * depth + k) * weight(k)).sum();
                assert_eq!(y.float(place * rows + n), wanted, "{bits} bits, row {n}");
            }
        }
    }
}

#[test]
fn slices_of_a_packed_table_are_gathered_before_they_are_unpacked() {
    let (rows, depth) = (4, 32);
    for bits in [2, 4, 8] {
        let (packed, plain) = pack(rows, depth, bits);
        let per_byte = 8 / bits;
        let scales: Vec<f64> = (0..rows * 2).map(|k| (k + 1) as f64).collect();
        let zero: Vec<i64> = (0..rows).map(|n| (n % (1 << bits)) as i64).collect();
        // Both zero points of a row lie in one byte where they fit.
        let zeros: Vec<i64> =
            zero.iter().flat_map(|z| if bits < 8 { vec![z | z << bits] } else { vec![*z; 2] }).collect();
        let places = [3, 0, -2];
        let y = op("GatherBlockQuantized")
            .domain("com.microsoft", 1)
            .int("bits", bits as i64)
            .int("block_size", 16)
            .arg(bytes(&[rows, depth / per_byte], &packed))
            .arg(Literal::i64s(&places))
            .arg(f32s(&[rows, 2], &scales))
            .arg(bytes(&[rows, zeros.len() / rows], &zeros))
            .run();
        for (k, place) in places.iter().enumerate() {
            let n = place.rem_euclid(rows as i64) as usize;
            for j in 0..depth {
                let wanted = (plain[n * depth + j] - zero[n]) as f64 * scales[n * 2 + j / 16];
                assert_eq!(y[0].float(k * depth + j), wanted, "{bits} bits, row {n}, element {j}");
            }
        }
    }
}
