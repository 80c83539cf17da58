//! How long kernels take on the device, against a copy that moves the same bytes.

use std::sync::Arc;

use fuseline::analysis::Footprints;
use fuseline::compile::plan_program;
use fuseline::device::NamedTensors;
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::gallery;
use fuseline::graph::Graph;
use fuseline::tensor::{DType, Env, Literal, Symbol, TensorType};
use fuseline_cuda::gpu::Gpu;
use serde_json::json;

use crate::Arguments;

/// The cases: a graph of the gallery and its sizes.
const CASES: &[(&str, &str)] = &[
    ("add_gelu", "n=33554432"),
    ("add_gelu", "n=1048576"),
    ("add_gelu", "n=10485760"),
    ("add_gelu", "n=104857600"),
    ("mul_add_relu", "n=33554432"),
    ("bias_gelu", "rows=8192,columns=4096"),
    ("silu", "n=33554432"),
    ("swiglu", "rows=8192,columns=4096"),
    ("bias_dropout_residual", "rows=8192,columns=4096"),
    ("gelu_dropout_residual", "rows=8192,columns=4096"),
    ("layernorm", "rows=8192,columns=4096"),
    ("layernorm_gelu", "rows=8192,columns=4096"),
    ("rmsnorm", "rows=8192,columns=4096"),
    ("add_rmsnorm", "rows=8192,columns=4096"),
    ("layernorm_dropout_residual", "rows=8192,columns=4096"),
    ("softmax", "rows=8192,columns=4096"),
    ("softmax_dropout", "rows=8192,columns=4096"),
    ("layernorm_quantize_int8", "rows=8192,columns=4096"),
    ("softmax", "rows=2048,columns=32768"),
    ("rmsnorm", "rows=2048,columns=32768"),
    ("layernorm", "rows=32768,columns=768"),
    ("softmax", "rows=131072,columns=128"),
    ("layernorm", "rows=8192,columns=4095"),
    ("softmax", "rows=512,columns=100000"),
    ("softmax", "rows=1024,columns=65536"),
    ("column_sum", "rows=8192,columns=4096"),
    ("column_sum", "rows=131072,columns=256"),
    ("layernorm_gelu_backward", "rows=8192,columns=4096"),
    ("rmsnorm_backward", "rows=8192,columns=4096"),
    ("rmsnorm_backward", "rows=32768,columns=768"),
    ("softmax_backward", "rows=8192,columns=4096"),
    ("linear_bias_gelu", "m=4096,k=1024,n=4096"),
    ("linear_bias_gelu", "m=8192,k=4096,n=4096"),
    ("linear_bias_gelu", "m=8192,k=8192,n=8192"),
    ("linear_bias_gelu", "m=128,k=4096,n=14336"),
    ("linear_bias_gelu", "m=16,k=4096,n=4096"),
    ("linear_bias_gelu", "m=1,k=4096,n=4096"),
    ("linear_bias_silu", "m=4096,k=4096,n=4096"),
    ("gemm_relu", "m=4096,k=4096,n=4096"),
    ("rmsnorm_linear", "m=4096,k=4096,n=12288"),
    ("attention", "batch=4,heads=16,queries=1024,keys=1024,size=64"),
    ("attention", "batch=4,heads=16,queries=4096,keys=4096,size=128"),
    ("causal_attention", "batch=4,heads=16,tokens=4096,size=128"),
    ("attention", "batch=4,heads=16,queries=4096,keys=4096,size=64"),
    ("causal_attention", "batch=4,heads=16,tokens=4096,size=64"),
    ("attention", "batch=16,heads=12,queries=512,keys=512,size=64"),
    ("causal_attention", "batch=16,heads=12,tokens=512,size=64"),
    ("masked_attention", "batch=4,heads=16,queries=2048,keys=2048,size=64"),
];

/// Times all cases that are wanted.
pub fn time(arguments: &Arguments) -> Result<()> {
    let device = arguments.device()?;
    let mut rows = Vec::new();
    if !arguments.json {
        println!("{:?}", device.description());
        println!(
            "{:<28}{:<44}{:<6}{:>10}{:>10}{:>10}{:>8}{:>8}",
            "case", "sizes", "type", "µs", "GB/s", "copy µs", "ratio", "TFLOP/s"
        );
    }
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let is_wanted = |dtype: DType| match &arguments.dtype {
            Some(wanted) => *wanted == dtype.name(),
            None => dtype != DType::F16,
        };
        if !is_wanted(dtype) {
            continue;
        }
        for (name, sizes) in cases(arguments) {
            let env: Env = sizes.split(',').filter_map(size).collect();
            let entry = gallery::find(name).ok_or_else(|| Error::invalid(format!("the gallery has no {name}")))?;
            let graph = entry.graph(dtype)?;
            let bytes = moved_bytes(&graph, &env)?;
            let flops = Footprints::of(&graph).least.flops.eval(&env)? as f64;
            let mut options = PlanOptions::on(arguments.spec()?);
            options.hints.env = env.clone();
            let planned = plan_program(graph.clone(), &options, &mut |_| {})?;
            let session = device.load(&planned)?;
            let timing = session.time(&noise(&graph, &env)?, arguments.runs)?;
            let Some(timing) = timing else {
                println!("{name} {sizes} {dtype}: the host stands between its kernels");
                continue;
            };
            let (us, copy) = (timing.median(), copy_us(device.gpu(), bytes, arguments.runs)?);
            let (kernels, tflops) = (planned.run.kernels.len(), flops / us / 1e6);
            let gbps = bytes as f64 / us / 1e3;
            if arguments.json {
                rows.push(json!({
                    "case": name, "sizes": sizes, "dtype": dtype.name(), "us": us, "bytes": bytes, "gbps": gbps,
                    "copy_us": copy, "ratio": copy / us, "kernels": kernels, "tflops": tflops,
                }));
            } else {
                println!(
                    "{name:<28}{sizes:<44}{:<6}{us:>10.1}{gbps:>10.0}{copy:>10.1}{:>8.2}{tflops:>8.1}",
                    dtype.name(),
                    copy / us
                );
            }
        }
    }
    if arguments.json {
        println!("{:#}", json!({ "device": device.description().name, "rows": rows }));
    }
    Ok(())
}

/// The cases that are wanted: those of the list, or graphs of the gallery with sizes that were given.
fn cases(arguments: &Arguments) -> Vec<(&str, &str)> {
    if arguments.sizes.is_empty() {
        let is_wanted = |(name, sizes): &&(&str, &str)| arguments.wants(&format!("{name} {sizes}"));
        return CASES.iter().filter(is_wanted).copied().collect();
    }
    let names = arguments.names.iter().map(String::as_str);
    names.flat_map(|name| arguments.sizes.split(';').map(move |sizes| (name, sizes))).collect()
}

/// A size by its name, written `name=number`.
pub fn size(text: &str) -> Option<(Symbol, i64)> {
    let (name, number) = text.split_once('=')?;
    Some((Symbol::name(name), number.parse().ok()?))
}

/// The bytes that any execution must move.
fn moved_bytes(graph: &Graph, env: &Env) -> Result<usize> {
    let bytes = Footprints::of(graph).least.bytes().eval(env)?;
    usize::try_from(bytes).map_err(|_| Error::limit("more bytes than can be counted"))
}

/// Microseconds of a copy on the device that moves as many bytes, half of them read and half of them written.
fn copy_us(gpu: &Arc<Gpu>, bytes: usize, runs: usize) -> Result<f64> {
    let half = bytes / 2;
    let (from, to) = (gpu.take(half)?, gpu.take(half)?);
    gpu.clear(from.at(), half)?;
    for _ in 0..3 {
        gpu.copy(to.at(), from.at(), half)?;
    }
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let begin = gpu.mark()?;
        gpu.copy(to.at(), from.at(), half)?;
        let end = gpu.mark()?;
        times.push(end.since(&begin)?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Inputs that look random, quickly.
pub fn noise(graph: &Graph, env: &Env) -> Result<NamedTensors> {
    let mut inputs = NamedTensors::new();
    for (k, value) in graph.inputs().iter().enumerate() {
        let TensorType { dtype, shape } = graph.ty(*value);
        let sizes = shape.eval(env)?;
        let count: usize = sizes.iter().product();
        // A table that no row length divides, again and again.
        let mut state = 88172645463325252u64 + k as u64;
        let table: Vec<u64> = (0..65_521usize.min(count.max(1)))
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let unit = (state >> 40) as f64 / f64::from(1 << 24);
                if dtype.is_float() { dtype.to_bits(unit * 2.0 - 1.0) } else { state % 3 }
            })
            .collect();
        let width = dtype.bits() / 8;
        let mut bytes = Vec::with_capacity(count * width);
        for k in 0..count {
            bytes.extend_from_slice(&table[k % table.len()].to_le_bytes()[..width]);
        }
        inputs.insert(graph.input_name(*value).clone(), Literal::new(*dtype, sizes, bytes)?);
    }
    Ok(inputs)
}
