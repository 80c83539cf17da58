//! Products of bf16, which processors that have tiles compute by them.

use super::check;

/// Two products of one factor share a block of squares: with 16 or 48 columns the last block that is packed has none.
#[test]
fn blocks_without_columns_are_not_stored() {
    for m in [8, 16, 17, 32, 48, 80] {
        for n in [2, 20, 40] {
            let text = "kernel { axes i0: n, i1: m, i2: 70 in x: bf16[n, 70], v: bf16[70, m], w: bf16[70, m] out y: f32[n, m] \
                 schedule contract dots=(%3, %4) rows=[i0] columns=[i1] sum=[i2] tile=6x64x256 \
                 %0 = load x[i0, i2] %1 = load v[i2, i1] %2 = load w[i2, i1] %3 = dot(%0, %1) over [i2] acc=f32 \
                 %4 = dot(%0, %2) over [i2] acc=f32 %5 = map(%3, %4) f32(a) * f32(b) store y[i0, i1] = %5 }";
            check(text, &[("n", n), ("m", m)]);
        }
    }
}
