//! Inputs for the rows: the same for all siblings, by the name of the input alone.

use std::sync::Arc;

use fuseline::graph::Graph;
use fuseline::tensor::{DType, Env, Literal, Symbol};
use rustc_hash::FxHashMap;

/// Sizes for the symbols that rows use, no two equal.
pub fn bindings() -> Env {
    [("n", 2), ("s", 5), ("t", 7), ("p", 3)].into_iter().map(|(name, size)| (Symbol::name(name), size)).collect()
}

/// Values for the inputs of a row. What a name asks for: a `mask` hides some elements but never the first of a row,
/// `hiding` has rows of −∞ only, `some` rows of nothing, `padding` ends in zeros, `positions` stay below 8,
/// `lengths` below 5, a `step` is positive.
pub fn inputs(graph: &Graph) -> FxHashMap<Arc<str>, Literal> {
    let env = bindings();
    let one = |value: &fuseline::graph::Value| {
        let (name, ty) = (graph.input_name(*value), graph.ty(*value));
        let sizes = ty.shape.eval(&env).expect("rows use the symbols that are bound here");
        let row = sizes.last().copied().unwrap_or(1);
        let mut number = generator(name);
        let mut element = |k: usize| {
            let noise = number();
            match name.as_ref() {
                "mask" if ty.dtype == DType::Bool => f64::from(u8::from(k.is_multiple_of(row) || noise > 0.4)),
                "mask" => {
                    if k.is_multiple_of(row) || noise > 0.4 {
                        noise
                    } else {
                        -1e4
                    }
                }
                "hiding" => {
                    if k / row % 2 == 1 || noise < 0.3 {
                        f64::NEG_INFINITY
                    } else {
                        noise
                    }
                }
                "some" => f64::from(u8::from((k / row).is_multiple_of(2) && noise > 0.3)),
                "padding" => f64::from(u8::from(k % row < row - k / row % 2 - 1)),
                "lengths" => (noise * 3.0).floor() + 2.0,
                "positions" => (noise * 8.0).floor(),
                "step" => (noise + 0.5) / 32.0,
                _ if ty.dtype.is_float() => noise * 4.0 - 2.0,
                _ => (noise * 200.0).floor() - if ty.dtype == DType::U8 { 0.0 } else { 100.0 },
            }
        };
        let values: Vec<f64> = (0..sizes.iter().product()).map(&mut element).collect();
        (name.clone(), Literal::from_f64s(ty.dtype, sizes, &values).expect("as many values as the sizes say"))
    };
    graph.inputs().iter().map(one).collect()
}

/// Numbers in [0, 1) that follow from a name.
fn generator(name: &str) -> impl FnMut() -> f64 {
    let mut state =
        name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    }
}
