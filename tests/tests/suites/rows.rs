//! The operations that fusion is for, planned as they should be: how many kernels of which kind, on a CPU and on a GPU.

use fuseline::compile::{PlannedProgram, plan_program};
use fuseline::device::DeviceSpec;
use fuseline::fuse::PlanOptions;
use fuseline::gallery;
use fuseline::graph::{Builder, Graph};
use fuseline::ops::prim::Monoid;
use fuseline::tensor::{DType, Shape, Symbol};
use fuseline::tile::{Placement, Schedule};

const TARGETS: [&str; 5] = ["cpu", "avx2", "a100", "h100", "h200"];

fn planned(graph: &Graph, target: &str, sizes: &[(&str, i64)]) -> PlannedProgram {
    let mut options = PlanOptions::on(DeviceSpec::find(target).unwrap());
    for (name, size) in sizes {
        options.hints.env.bind(Symbol::name(name), *size);
    }
    let planned = plan_program(graph.clone(), &options, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    planned.run.check(planned.program.run()).unwrap_or_else(|e| panic!("{e}"));
    planned
}

/// What stayed apart, and why.
fn reasons(planned: &PlannedProgram) -> Vec<String> {
    let refused = planned.run.decisions.iter().filter_map(|d| {
        let reason = d.reason.as_ref()?;
        Some(format!("{} {:?} -> {:?}: {reason}", d.rule, d.producer, d.consumer))
    });
    refused.collect()
}

fn kinds(planned: &PlannedProgram) -> Vec<&'static str> {
    planned.run.kernels.iter().map(|k| k.kind.name()).collect()
}

/// One kernel, and of which kind, for every entry of the gallery that one kernel is best for everywhere.
const ONE_KERNEL: &[(&str, &str)] = &[
    ("mul_add_relu", "map"),
    ("add_gelu", "map"),
    ("bias_gelu", "map"),
    ("fast_gelu", "map"),
    ("silu", "map"),
    ("swiglu", "map"),
    ("geglu", "map"),
    ("linear_bias_relu", "contract"),
    ("linear_bias_gelu", "contract"),
    ("linear_bias_silu", "contract"),
    ("gelu_dropout", "map"),
    ("gelu_dropout_residual", "map"),
    ("softmax_dropout", "row"),
    ("bias_dropout_residual", "map"),
    ("layernorm", "row"),
    ("layernorm_relu", "row"),
    ("layernorm_gelu", "row"),
    ("layernorm_bias_gelu", "row"),
    ("rmsnorm", "row"),
    ("residual_relu", "map"),
    ("layernorm_dropout_self", "row"),
    ("layernorm_dropout_residual", "row"),
    ("add_layernorm", "row"),
    ("add_rmsnorm", "row"),
    ("qkv", "contract"),
    ("softmax", "row"),
    ("masked_softmax", "row"),
    ("attention", "attention"),
    ("masked_attention", "attention"),
    ("causal_attention", "attention"),
    ("conv_bn_relu", "contract"),
    ("conv_bias_relu", "contract"),
    ("scale_offset_power", "map"),
    ("relu_clip", "map"),
    ("relu_quantize", "map"),
    ("gemm_relu", "contract"),
    ("matmul_bn", "contract"),
    ("layernorm_quantize_int8", "row"),
];

#[test]
fn the_gallery_is_planned_as_it_says() {
    for (name, kind) in ONE_KERNEL {
        let entry = gallery::find(name).unwrap_or_else(|| panic!("{name} is gone"));
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let Ok(graph) = entry.graph(dtype) else { continue };
            for target in TARGETS {
                let planned = planned(&graph, target, entry.sizes);
                assert_eq!(
                    kinds(&planned),
                    [*kind],
                    "{name} in {dtype} on {target}: {:#?} {}",
                    reasons(&planned),
                    planned.program.run()
                );
            }
        }
    }
}

#[test]
fn larger_layers_become_few_kernels() {
    for (name, most) in [("moe_int8", 3), ("transformer_sublayer", 2), ("feed_forward", 3)] {
        let entry = gallery::find(name).unwrap_or_else(|| panic!("{name} is gone"));
        for target in TARGETS {
            let planned = planned(&entry.graph(DType::F32).unwrap(), target, entry.sizes);
            assert!(planned.run.kernels.len() <= most, "{name} on {target}: {:?}", kinds(&planned));
        }
    }
}

#[test]
fn weights_of_experts_are_not_gathered_into_memory() {
    let entry = gallery::find("moe_int8").unwrap_or_else(|| panic!("moe_int8 is gone"));
    let large = [("tokens", 512), ("experts", 8), ("features", 1024), ("hidden", 1024)];
    for (target, sizes) in TARGETS.iter().flat_map(|target| [(target, entry.sizes), (target, &large)]) {
        let planned = planned(&entry.graph(DType::F32).unwrap(), target, sizes);
        let stored = planned.run.kernels.iter().flat_map(|kernel| &kernel.kernel.outputs);
        assert!(stored.into_iter().all(|y| y.ty.shape.rank() < 3), "{target}: {:?}", kinds(&planned));
    }
}

#[test]
fn a_norm_joins_its_product_for_few_rows_only() {
    for name in ["norm_linear", "rmsnorm_linear"] {
        let entry = gallery::find(name).unwrap_or_else(|| panic!("{name} is gone"));
        let graph = entry.graph(DType::BF16).unwrap();
        let leading = entry.sizes[0].0;
        let with = |rows: i64| {
            let mut sizes = entry.sizes.to_vec();
            sizes[0].1 = rows;
            sizes.iter_mut().skip(1).for_each(|size| size.1 = 8192);
            let planned = planned(&graph, "h200", &sizes);
            kinds(&planned).len()
        };
        assert_eq!(with(4), 1, "{name}, {leading} = 4");
        assert_eq!(with(65536), 2, "{name}, {leading} = 65536");
    }
}

#[test]
fn a_softmax_over_any_axis_is_one_kernel() {
    for axis in 0..3 {
        let b = Builder::new("softmax");
        let x = b.input("x", DType::F32, Shape::new([64usize, 48, 96]));
        let e = (x - x.reduce_keep(Monoid::Max, &[axis])).exp();
        b.output("y", e / e.sum(&[axis]));
        let graph = b.finish().unwrap();
        for target in TARGETS {
            let planned = planned(&graph, target, &[]);
            assert_eq!(kinds(&planned), ["row"], "axis {axis} on {target}: {:#?}", reasons(&planned));
        }
    }
}

/// The gradients of a LayerNorm by its input, scale and shift: two sums along rows, two across them.
fn norm_gradients() -> Graph {
    let b = Builder::new("norm_gradients");
    let matrix = |name: &str| b.input(name, DType::F32, Shape::new([8192usize, 1024]));
    let column = |name: &str| b.input(name, DType::F32, Shape::new([8192usize, 1]));
    let (g, x, mean, rstd) = (matrix("g"), matrix("x"), column("mean"), column("rstd"));
    let scale = b.input("scale", DType::F32, Shape::new([1usize, 1024]));
    let unit = (x - mean) * rstd;
    let scaled = g * scale;
    b.output("dx", (scaled - scaled.mean(&[1]) - unit * (scaled * unit).mean(&[1])) * rstd);
    b.output("dscale", (g * unit).sum(&[0]));
    b.output("dshift", g.sum(&[0]));
    b.finish().unwrap()
}

#[test]
fn sums_along_rows_and_across_them_are_one_pass() {
    for target in TARGETS {
        let planned = planned(&norm_gradients(), target, &[]);
        assert_eq!(kinds(&planned), ["column"], "{target}: {:#?}", reasons(&planned));
    }
}

#[test]
fn a_long_sum_is_cut_into_parts() {
    let b = Builder::new("sum");
    b.output("y", b.input("x", DType::F32, Shape::new([4usize, 1 << 22])).exp().sum(&[1]));
    let graph = b.finish().unwrap();
    for target in ["a100", "h100", "h200"] {
        let planned = planned(&graph, target, &[]);
        let [kernel] = planned.run.kernels.as_slice() else { panic!("{target}: {:?}", kinds(&planned)) };
        let parts = match &kernel.kernel.schedule {
            Schedule::Row { placement: Placement::Split(parts), .. } | Schedule::Column { parts, .. } => *parts,
            other => panic!("{target}: {other:?}"),
        };
        assert!(parts > 4, "{target}: {parts} parts for 4 rows of 4 million");
    }
}

#[test]
fn rows_of_any_length_have_a_place() {
    // The same softmax from short rows to rows that fit nowhere: the placement changes, the number of kernels does not.
    let mut seen = Vec::new();
    for length in [64usize, 2048, 32768, 1 << 20] {
        let b = Builder::new("softmax");
        let x = b.input("x", DType::F32, Shape::new([512usize, length]));
        let e = (x - x.reduce_keep(Monoid::Max, &[1])).exp();
        b.output("y", e / e.sum(&[1]));
        let planned = planned(&b.finish().unwrap(), "h200", &[]);
        let [kernel] = planned.run.kernels.as_slice() else { panic!("{length}: {:?}", kinds(&planned)) };
        let Schedule::Row { placement, .. } = &kernel.kernel.schedule else { panic!("{:?}", kernel.kernel.schedule) };
        seen.push(*placement);
    }
    assert_eq!(seen.first(), Some(&Placement::Registers));
    assert_eq!(seen.last(), Some(&Placement::Reread));
    assert!(seen.contains(&Placement::OnChip), "{seen:?}");
}
