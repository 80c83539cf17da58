//! Large cases: sizes at which kernels are divided as they are where it takes long.

use fuseline::error::Result;
use fuseline::tensor::{Env, Literal, Symbol};
use fuseline_tests::generate::Inputs;

/// Graphs of the gallery, and sizes.
pub const LARGE: &[(&str, &str)] = &[
    ("linear_bias_gelu", "m=600,k=2048,n=520"),
    ("gemm_relu", "m=512,k=640,n=768"),
    ("rmsnorm_linear", "m=576,k=512,n=640"),
    ("layernorm", "rows=37,columns=2048"),
    ("softmax", "rows=600,columns=1500"),
    ("softmax", "rows=7,columns=20000"),
    ("layernorm", "rows=40,columns=4095"),
    ("layernorm", "rows=17,columns=4092"),
    ("layernorm", "rows=19,columns=1025"),
    ("layernorm", "rows=11,columns=257"),
    ("layernorm_gelu", "rows=21,columns=1027"),
    ("layernorm_quantize_int8", "rows=17,columns=4095"),
    ("layernorm_quantize_int8", "rows=9,columns=1025"),
    ("bias_gelu", "rows=33,columns=513"),
    ("swiglu", "rows=7,columns=1027"),
    ("bias_dropout_residual", "rows=19,columns=515"),
    ("gelu_dropout_residual", "rows=5,columns=2049"),
    ("add_gelu", "n=100003"),
    ("layernorm_dropout_residual", "rows=33,columns=2047"),
    ("rmsnorm", "rows=64,columns=4096"),
    ("rmsnorm", "rows=21,columns=4094"),
    ("rmsnorm", "rows=21,columns=8193"),
    ("softmax", "rows=50,columns=4099"),
    ("softmax", "rows=9,columns=50257"),
    ("softmax_dropout", "rows=33,columns=4095"),
    ("softmax_backward", "rows=40,columns=4095"),
    ("layernorm", "rows=5,columns=32768"),
    ("rmsnorm", "rows=3,columns=100000"),
    ("rmsnorm", "rows=300,columns=32768"),
    ("rmsnorm", "rows=7,columns=16384"),
    ("layernorm", "rows=300,columns=16384"),
    ("softmax", "rows=301,columns=16384"),
    ("layernorm_gelu", "rows=9,columns=16384"),
    ("softmax", "rows=3,columns=70001"),
    ("softmax", "rows=300,columns=32768"),
    ("softmax", "rows=5,columns=65536"),
    ("softmax", "rows=4,columns=100000"),
    ("softmax_dropout", "rows=70,columns=4096"),
    ("layernorm_gelu", "rows=4,columns=40000"),
    ("column_sum", "rows=3000,columns=515"),
    ("column_sum", "rows=2049,columns=96"),
    ("column_sum", "rows=70001,columns=257"),
    ("column_sum", "rows=999,columns=4097"),
    ("column_sum", "rows=4096,columns=1030"),
    ("layernorm_gelu_backward", "rows=300,columns=513"),
    ("layernorm_gelu_backward", "rows=1100,columns=1025"),
    ("layernorm_gelu_backward", "rows=300,columns=4097"),
    ("layernorm_gelu_backward", "rows=5,columns=1027"),
    ("layernorm_gelu_backward", "rows=600,columns=2050"),
    ("layernorm_gelu_backward", "rows=65,columns=8191"),
    ("rmsnorm_backward", "rows=5000,columns=513"),
    ("rmsnorm_backward", "rows=301,columns=4095"),
    ("rmsnorm_backward", "rows=3,columns=1025"),
    ("rmsnorm_backward", "rows=900,columns=259"),
    ("rmsnorm_backward", "rows=70,columns=16385"),
    ("layernorm", "rows=700,columns=513"),
    ("layernorm_gelu", "rows=3000,columns=1025"),
    ("layernorm_gelu", "rows=5001,columns=259"),
    ("rmsnorm", "rows=1500,columns=4097"),
    ("add_layernorm", "rows=600,columns=2049"),
    ("layernorm_gelu", "rows=22001,columns=257"),
    ("layernorm_gelu", "rows=6501,columns=1025"),
    ("layernorm_quantize_int8", "rows=20001,columns=259"),
    ("layernorm_quantize_int8", "rows=8501,columns=1025"),
    ("layernorm_quantize_int8", "rows=2301,columns=4097"),
    ("layernorm", "rows=9,columns=20000"),
    ("layernorm", "rows=9,columns=24584"),
    ("layernorm_gelu", "rows=9,columns=24576"),
    ("layernorm_gelu", "rows=9,columns=32768"),
    ("layernorm_quantize_int8", "rows=9,columns=16384"),
    ("layernorm_quantize_int8", "rows=9,columns=20000"),
    ("layernorm_quantize_int8", "rows=3,columns=32768"),
    ("layernorm_dropout_residual", "rows=9,columns=20000"),
    ("layernorm_dropout_residual", "rows=3,columns=32767"),
    ("add_rmsnorm", "rows=9,columns=20001"),
    ("add_rmsnorm", "rows=7,columns=4105"),
    ("layernorm", "rows=9,columns=20001"),
    ("layernorm", "rows=9,columns=16393"),
    ("layernorm", "rows=7,columns=4105"),
    ("layernorm_gelu", "rows=9,columns=20001"),
    ("layernorm_quantize_int8", "rows=9,columns=20001"),
    ("layernorm_dropout_residual", "rows=9,columns=20001"),
    ("softmax", "rows=9,columns=20001"),
    ("softmax", "rows=9,columns=30003"),
    ("softmax_backward", "rows=9,columns=20001"),
    ("softmax_backward", "rows=9,columns=12289"),
    ("softmax_backward", "rows=9,columns=24577"),
    ("softmax_backward", "rows=9,columns=32769"),
    ("softmax_backward", "rows=300,columns=32768"),
    ("layernorm", "rows=9,columns=32769"),
    ("layernorm_gelu", "rows=9,columns=32769"),
    ("layernorm_gelu", "rows=9,columns=12289"),
    ("softmax", "rows=9,columns=24577"),
    ("add_rmsnorm", "rows=9,columns=24577"),
    ("add_rmsnorm", "rows=9,columns=32769"),
    ("layernorm_dropout_residual", "rows=70,columns=513"),
    ("softmax", "rows=9,columns=12289"),
    ("softmax", "rows=9,columns=20000"),
    ("softmax_backward", "rows=9,columns=12288"),
    ("softmax_backward", "rows=9,columns=24576"),
    ("layernorm", "rows=9,columns=24577"),
    ("layernorm_gelu", "rows=9,columns=20000"),
    ("layernorm_quantize_int8", "rows=9,columns=32769"),
    ("rmsnorm", "rows=9,columns=20000"),
    ("rmsnorm", "rows=9,columns=32769"),
    ("add_rmsnorm", "rows=9,columns=32768"),
    ("softmax_dropout", "rows=9,columns=12288"),
    ("softmax_dropout", "rows=9,columns=24576"),
    ("softmax_dropout", "rows=70,columns=1025"),
    ("softmax_dropout", "rows=71,columns=515"),
    ("softmax_dropout", "rows=3,columns=32768"),
    ("softmax_backward", "rows=9,columns=16384"),
    ("softmax_backward", "rows=9,columns=20000"),
    ("softmax_backward", "rows=3,columns=32768"),
    ("layernorm", "rows=2,columns=100000"),
    ("softmax_dropout", "rows=9,columns=32769"),
    ("layernorm_dropout_residual", "rows=5,columns=32769"),
    ("softmax_dropout", "rows=9,columns=12289"),
    ("softmax_backward", "rows=9,columns=15001"),
    // One block has a multiprocessor, and a row comes in pieces, the last of which may be empty.
    ("layernorm", "rows=9,columns=50257"),
    ("layernorm", "rows=9,columns=49161"),
    ("softmax", "rows=9,columns=49161"),
    ("softmax_dropout", "rows=9,columns=50257"),
    ("softmax_dropout", "rows=2201,columns=771"),
    ("layernorm_dropout_residual", "rows=1201,columns=643"),
    ("layernorm_quantize_int8", "rows=1601,columns=5001"),
    // So many and so short that two which begin alike share a warp, some of which are alone there.
    ("layernorm", "rows=1201,columns=513"),
    ("layernorm", "rows=1130,columns=386"),
    ("layernorm_dropout_residual", "rows=1203,columns=519"),
    ("layernorm_dropout_residual", "rows=1101,columns=274"),
    // So many that blocks walk along several.
    ("layernorm", "rows=301,columns=9217"),
    ("layernorm", "rows=301,columns=12288"),
    ("layernorm", "rows=257,columns=24577"),
    ("layernorm_gelu", "rows=301,columns=10000"),
    ("layernorm_gelu", "rows=301,columns=16385"),
    ("layernorm_gelu", "rows=257,columns=30720"),
    ("layernorm_quantize_int8", "rows=301,columns=12289"),
    ("layernorm_quantize_int8", "rows=257,columns=24576"),
    ("layernorm_quantize_int8", "rows=257,columns=30003"),
    ("layernorm_dropout_residual", "rows=257,columns=24577"),
    ("add_layernorm", "rows=257,columns=23009"),
    ("layernorm", "rows=31,columns=40000"),
    ("softmax", "rows=1,columns=33333"),
    ("layernorm_gelu_backward", "rows=4501,columns=257"),
    ("layernorm_gelu_backward", "rows=3,columns=259"),
    ("layernorm_gelu_backward", "rows=1001,columns=256"),
    ("layernorm_gelu_backward", "rows=1,columns=1024"),
    ("rmsnorm_backward", "rows=1,columns=768"),
    ("layernorm_gelu_backward", "rows=777,columns=1024"),
    ("layernorm_gelu_backward", "rows=300,columns=4096"),
    ("layernorm_gelu_backward", "rows=40,columns=8192"),
    ("layernorm_gelu_backward", "rows=301,columns=8192"),
    ("layernorm_gelu_backward", "rows=70,columns=9000"),
    ("rmsnorm_backward", "rows=1000,columns=96"),
    ("rmsnorm_backward", "rows=1999,columns=768"),
    ("rmsnorm_backward", "rows=40,columns=16384"),
    ("rmsnorm_backward", "rows=40,columns=20000"),
    ("softmax_backward", "rows=600,columns=1500"),
    ("linear_bias_gelu", "m=1100,k=264,n=1000"),
    ("linear_bias_gelu", "m=4100,k=136,n=2600"),
    ("gemm_relu", "m=4100,k=200,n=2056"),
    ("linear_bias_gelu", "m=1300,k=1032,n=1000"),
    ("causal_attention", "batch=6,heads=12,tokens=256,size=64"),
    ("attention", "batch=8,heads=20,queries=120,keys=200,size=128"),
    ("masked_attention", "batch=8,heads=20,queries=120,keys=136,size=64"),
    ("masked_attention", "batch=2,heads=20,queries=200,keys=256,size=64"),
    ("attention", "batch=2,heads=3,queries=131,keys=203,size=80"),
    ("attention", "batch=1,heads=2,queries=70,keys=130,size=36"),
    ("attention", "batch=1,heads=3,queries=97,keys=65,size=33"),
    ("attention", "batch=7,heads=20,queries=200,keys=101,size=96"),
    ("causal_attention", "batch=1,heads=2,tokens=150,size=256"),
    ("causal_attention", "batch=3,heads=60,tokens=130,size=128"),
    ("masked_attention", "batch=1,heads=2,queries=90,keys=71,size=200"),
];

/// A softmax with which another tensor is multiplied: blocks of a cluster share long rows of both.
pub const GATED: &str = "
graph gated(x: f32[rows, columns], gate: f32[rows, columns]) {
  %2 = reduce.max x axes=[1] : f32[rows]
  %3 = view %2[i0] : f32[rows, columns]
  %4 = map(x, %3) exp(a - b) : f32[rows, columns]
  %5 = reduce.sum %4 axes=[1] : f32[rows]
  %6 = view %5[i0] : f32[rows, columns]
  %7 = map(%4, %6, gate) a / b * c : f32[rows, columns]
  return y = %7
}
";

/// How many numbers at either end of a row weigh more than all others: about as many as are no part of a pack.
const ENDS: i64 = 8;

/// Makes the numbers at the ends of rows so large that no result is right without them.
pub fn weigh_ends(inputs: Inputs, env: &Env) -> Result<Inputs> {
    let (rows, columns) = (env.get(&Symbol::name("rows")), env.get(&Symbol::name("columns")));
    let (Some(rows), Some(columns)) = (rows, columns) else { return Ok(inputs) };
    let weigh = |literal: Literal| {
        let is_of_rows = literal.sizes() == [rows as usize, columns as usize];
        if !is_of_rows || !literal.dtype().is_float() {
            return Ok(literal);
        }
        let is_end = |at: i64| at < ENDS || at >= columns - ENDS;
        let weight = |k: usize| if is_end(k as i64 % columns) { 64.0 } else { 1.0 };
        let values: Vec<f64> = (0..literal.count()).map(|k| literal.float(k) * weight(k)).collect();
        Literal::from_f64s(literal.dtype(), literal.sizes().to_vec(), &values)
    };
    inputs.into_iter().map(|(name, literal)| Ok((name, weigh(literal)?))).collect()
}
