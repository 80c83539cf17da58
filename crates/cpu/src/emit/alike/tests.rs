use std::sync::Arc;

use fuseline::tensor::Env;
use fuseline::tile::parse;

use crate::code::Isa;
use crate::emit::tests::check;
use crate::emit::{Phase, Target, emit};

/// Phases of three products of one matrix, the second as the first but for memory and axes.
fn phases(second: &str) -> Vec<Phase> {
    let text = format!(
        "kernel {{ axes i0: 20, i1: 70, i2: 40, i3: 70, i4: 33 in x: f32[20, 40], w: f32[40, 70], b: f32[70], \
         v: f32[40, 70], c: f32[70], u: f32[40, 33] out y: f32[20, 70], z: f32[20, 70], t: f32[20, 33] \
         schedule contract dots=(%2, %6, %10) rows=[i0] columns=[i3, i1, i4] sum=[i2] tile=6x64x256 \
         %0 = load x[i0, i2] %1 = load w[i2, i3] %2 = dot(%0, %1) over [i2] acc=f32 %3 = load b[i3] %4 = map(%2, %3) a + b \
         %5 = load v[i2, i1] %6 = dot(%0, %5) over [i2] acc=f32 %7 = load c[i1] %8 = map(%6, %7) {second} \
         %9 = load u[i2, i4] %10 = dot(%0, %9) over [i2] acc=f32 \
         store y[i0, i3] = %4 store z[i0, i1] = %8 store t[i0, i4] = %10 }}"
    );
    check(&text, &[]);
    let target = Target { constant: vec![false, true, true, true, true, true], ..Target::new(Isa::detect(), 2) };
    emit(&parse(&text).unwrap(), &Env::new(), &target).unwrap().phases
}

#[test]
fn products_that_are_alike_are_emitted_once() {
    let phases = phases("a + b");
    assert_eq!(phases.len(), 6);
    for (one, other) in [(0, 2), (1, 3)] {
        assert!(Arc::ptr_eq(&phases[one].program, &phases[other].program), "emitted twice");
        assert_ne!(phases[one].table, phases[other].table);
        assert_ne!(phases[one].reads, phases[other].reads);
        assert_ne!(phases[one].writes, phases[other].writes);
    }
    assert_ne!(phases[1].program, phases[5].program);
}

#[test]
fn products_that_differ_are_not() {
    let phases = phases("a - b");
    assert!(!Arc::ptr_eq(&phases[1].program, &phases[3].program));
    assert_ne!(phases[1].program, phases[3].program);
}
