//! Spellings of one computation become the same kernels: the same schedule, the same steps, the same text, but for what they make of nothing
//! where that is not the same.

use std::collections::BTreeSet;

use fuseline::device::DeviceSpec;
use fuseline::passes::Numerics;
use fuseline::tensor::{Dim, Env};
use fuseline::tile::Schedule;
use fuseline_tests::spellings::{Planned, Spelling, all, classes, other_sizes, usual_sizes};

/// How many rows some class of a family must have; where a class is named, that one.
const LEAST: &[(&str, Option<&str>, usize)] = &[
    ("layer_norm", Some("f32"), 6),
    ("rms_norm", Some("f32"), 5),
    ("gelu_erf", Some("f32"), 6),
    ("gelu_tanh", Some("f32"), 3),
    ("silu", Some("f32"), 3),
    ("swiglu", Some("f32, two weights"), 3),
    ("swiglu", Some("f32, packed weights"), 3),
    ("softmax", Some("inner axis"), 3),
    ("softmax", Some("outer axis"), 3),
    ("skip_layer_norm", None, 3),
    ("rope", Some("halves, tables of half the size"), 3),
];

fn label(row: &Spelling) -> String {
    format!("{} / {} / {}", row.family, row.class, row.name)
}

fn planned(row: &Spelling, device: &str) -> Planned {
    row.planned(device, Numerics::Default).unwrap_or_else(|e| panic!("{} on {device}: {e}", label(row)))
}

fn is_attention(row: &Spelling) -> bool {
    row.family.contains("attention")
}

/// The first line in which two texts differ, with what stands before it in both.
fn first_difference(a: &str, b: &str) -> String {
    let same = a.lines().zip(b.lines()).take_while(|(a, b)| a == b).count();
    let before: String = a.lines().take(same).map(|line| format!("  {line}\n")).collect();
    let [a, b] = [a, b].map(|text| text.lines().nth(same).unwrap_or("the end"));
    format!("{before}- {a}\n+ {b}")
}

fn check_siblings(device: &str, sizes: &Env) {
    let kernels = |row: &Spelling| {
        let planned = row.planned_at(device, Numerics::Default, sizes.clone());
        planned.unwrap_or_else(|e| panic!("{} on {device}: {e}", label(row))).kernels_of_elements()
    };
    let mut wrong = Vec::new();
    for class in classes() {
        let first = kernels(class[0]);
        for row in &class[1..] {
            let text = kernels(row);
            if text != first {
                let difference = first_difference(&first, &text);
                wrong.push(format!("{} is not the kernel of {}:\n{difference}", label(row), class[0].name));
            }
        }
    }
    assert!(wrong.is_empty(), "on {device} with {sizes:?}:\n{}", wrong.join("\n\n"));
}

#[test]
fn siblings_are_the_same_kernels_on_a_cpu() {
    check_siblings("cpu", &usual_sizes());
}

#[test]
fn siblings_are_the_same_kernels_on_a_gpu() {
    check_siblings("h200", &usual_sizes());
}

#[test]
fn siblings_are_the_same_kernels_at_other_sizes() {
    let devices: Vec<&str> = DeviceSpec::names().collect();
    for (k, sizes) in other_sizes().iter().enumerate() {
        for device in devices.iter().skip(k % 2).step_by(2) {
            check_siblings(device, sizes);
        }
    }
}

#[test]
fn every_family_has_enough_siblings() {
    for (family, class, least) in LEAST {
        let rows = |row: &&Spelling| row.family == *family && class.is_none_or(|class| row.class == class);
        assert!(all().filter(rows).count() >= *least, "{family} / {class:?}");
    }
    let attention: BTreeSet<String> = all().filter(|row| is_attention(row)).map(label).collect();
    assert!(attention.len() >= 16, "{attention:#?}");
}

#[test]
fn an_epsilon_outside_of_the_root_is_another_kernel() {
    for device in ["cpu", "h200"] {
        let of = |class: &str| {
            let row = all().find(|row| row.family == "layer_norm" && row.class == class).unwrap();
            planned(row, device).kernels()
        };
        assert_ne!(of("f32"), of("f32, epsilon outside of the root"));
    }
}

/// A NaN of a hidden score shows in a sum and not in a choice.
#[test]
fn infinities_that_are_added_are_no_choice_under_strict_numerics() {
    let rows = || all().filter(|row| row.family == "attention, boolean mask" && row.class == "hidden by infinity");
    let of = |name: &str, numerics: Numerics| {
        let row = rows().find(|row| row.name == name).unwrap();
        row.planned("cpu", numerics).unwrap().kernels()
    };
    let [choice, added] = ["choice", "zeros and infinities added"];
    assert_eq!(of(choice, Numerics::Default), of(added, Numerics::Default));
    assert_ne!(of(choice, Numerics::Strict), of(added, Numerics::Strict));
}

/// What a class of attention may have beside its kernel: copies of keys and values that are returned, the product that makes queries, keys
/// and values; never what is computed from scores.
#[test]
fn attention_is_one_kernel_and_no_scores_are_stored() {
    let sizes = usual_sizes();
    let value = |dim: &Dim| dim.eval(&sizes).expect("rows use the usual symbols");
    let size = |name: &str| value(&Dim::named(name));
    let (length, largest_mask) = (size("s"), size("n") * size("s") * size("t"));
    for device in ["cpu", "h200"] {
        for class in classes().iter().filter(|class| is_attention(class[0])) {
            let planned = planned(class[0], device);
            let kernels: Vec<_> = planned.plan.kernels.iter().map(|k| &k.kernel).collect();
            let fused = kernels.iter().filter(|k| matches!(k.schedule, Schedule::Attention { .. })).count();
            assert_eq!(fused, 1, "{} on {device}:\n{}", label(class[0]), planned.kernels());
            let mut masks = 0;
            for output in kernels.iter().flat_map(|k| &k.outputs) {
                let dims = output.ty.shape.dims();
                let is_square = dims.iter().filter(|dim| value(dim) >= length).count() > 1;
                let count: i64 = dims.iter().map(value).product();
                assert!(!is_square || count <= largest_mask, "{} on {device} stores {}", label(class[0]), output.ty);
                masks += usize::from(is_square);
            }
            assert!(masks <= 1, "{} on {device} stores {masks} masks", label(class[0]));
        }
    }
}
