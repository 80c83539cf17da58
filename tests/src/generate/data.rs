//! Numbers for inputs and constants: small, so that long chains of arithmetic stay finite, and repeated, so that ties occur.

use fuseline::tensor::{Env, Literal, TensorType};

/// Pseudo-random data of a type under a binding of its symbols.
pub(super) fn literal(ty: &TensorType, env: &Env, seed: u64) -> Literal {
    let sizes = ty.shape.eval(env).expect("the sizes of generated inputs are bound");
    let mut state = seed;
    let mut number = |count: u64| {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % count) as i64
    };
    let count = sizes.iter().product();
    if ty.dtype.is_float() {
        let values: Vec<f64> = (0..count).map(|_| (number(33) - 16) as f64 * 0.25).collect();
        Literal::from_f64s(ty.dtype, sizes, &values).expect("the sizes fit the values")
    } else {
        let values: Vec<i64> = (0..count).map(|_| number(9) - 3).collect();
        Literal::from_ints(ty.dtype, sizes, &values).expect("the sizes fit the values")
    }
}
