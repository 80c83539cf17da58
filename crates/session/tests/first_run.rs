//! What the first run of a session takes: a program of its own, since a process has one peak of memory.
#![cfg(target_os = "linux")]

use std::num::NonZeroUsize;

use fuseline::tensor::{DType, Literal};
use fuseline_frontend::Tensors;
use fuseline_session::model::Model;
use fuseline_session::session::{Options, Place, Session};

const MIB: usize = 1 << 20;

/// The most memory that this process had so far, in MiB.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

#[test]
fn the_first_run_of_free_sizes_copies_no_input() {
    let session =
        Session::new(Model::gallery("add_gelu", DType::F32).unwrap(), Options::at(Place::Cpu(NonZeroUsize::new(1))));
    let session = session.unwrap();
    let input = || Literal::new(DType::F32, [64 * MIB / 4], vec![1u8; 64 * MIB]).unwrap();
    let ports = session.model().signature.inputs.iter();
    let inputs: Tensors = ports.map(|port| (port.name.clone(), input())).collect();
    assert_eq!(inputs.len(), 2);
    let before = peak();
    let results = session.run(&inputs).unwrap();
    let taken = peak() - before;
    assert_eq!(results.len(), 1);
    // One result of 64 MiB, and what it takes to make a kernel; copies of the inputs would be 128 MiB more.
    assert!((60..112).contains(&taken), "{taken} MiB beside the inputs");
}
