//! Models made to take forever: each ends, with a plan or a clear error. How long large ones take says
//! `cargo run --release -p fuseline-bench --bin extremes`.

use std::sync::Arc;
use std::time::Duration;

use fuseline::compile::{PlannedProgram, plan_program};
use fuseline::device::{DeviceSpec, Executable};
use fuseline::error::{Kind, Result};
use fuseline::fuse::PlanOptions;
use fuseline::reference::Limits;
use fuseline::tensor::{DType, Literal};
use fuseline_cpu::code::Isa;
use fuseline_cpu::run::CpuDevice;
use fuseline_frontend::Model;
use fuseline_frontend::onnx::schema::ModelProto;
use fuseline_tests::growth::{Taken, faster_than_n_log_n, measure, measure_passes};
use fuseline_tests::malicious::{self, CROWDS, LISTS, MALICES};
use fuseline_tests::model_maker::bytes;

fn attempt(model: &ModelProto, device: &str) -> Result<PlannedProgram> {
    let model = Model::from_bytes(bytes(model), "malicious.onnx")?;
    let options = PlanOptions::on(DeviceSpec::find(device)?);
    plan_program(model.graph()?.clone(), &options, &mut |_| {})
}

#[test]
fn every_kind_ends() {
    for (name, malice) in MALICES {
        for count in [12, 100] {
            match attempt(&malice(count), "h200") {
                Ok(planned) => assert!(!planned.run.kernels.is_empty(), "{name}"),
                Err(error) => assert!(matches!(error.kind(), Kind::Limit | Kind::NeedsValue), "{name}: {error}"),
            }
        }
    }
}

#[test]
fn what_is_padded_without_end_has_a_plan() {
    let (_, padded) = MALICES.iter().find(|(name, _)| *name == "padded").unwrap();
    for device in ["cpu", "h200"] {
        let planned = attempt(&padded(300), device).unwrap();
        assert!(planned.run.kernels.len() < 30, "{}", planned.run.kernels.len());
    }
}

#[test]
fn every_list_and_crowd_ends() {
    for (name, malice) in CROWDS.iter().chain(LISTS) {
        let taken = measure(bytes(&malice(12)), Duration::MAX);
        assert!(taken.is_clear(), "{name}: {:?}", taken.error);
    }
}

#[test]
fn work_grows_no_faster_than_n_log_n() {
    // Counted, not timed: how often import and passes asked whether they may go on. Models are large enough that no list is a short one. What
    // planning takes is counted by `extremes`; what counts do not see (a list gone through for every element of another) is seen by
    // `cargo run --release -p fuseline-bench --bin extremes`.
    const FEW: usize = 200;
    const MANY: usize = 800;
    let mut wrong = Vec::new();
    for (name, malice) in malicious::all() {
        let [few, many]: [Taken; 2] = [FEW, MANY].map(|count| measure_passes(bytes(&malice(count))));
        wrong.extend(faster_than_n_log_n(&few, &many, [FEW, MANY]).map(|what| format!("{name}: {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sizes_that_are_no_numbers_are_refused() {
    // As a number of an expression, a size of 1,024 factors is 1 for some inputs, and beyond all numbers for others.
    let (_, squared) = MALICES.iter().find(|(name, _)| *name == "squared sizes").unwrap();
    let model = Model::from_bytes(bytes(&squared(12)), "malicious.onnx").unwrap();
    let options = PlanOptions::on(DeviceSpec::find("cpu").unwrap());
    let planned = plan_program(model.graph().unwrap().clone(), &options, &mut |_| {}).unwrap();
    let device = CpuDevice::new(Isa::detect(), 1, options, Limits::default()).unwrap();
    let program = device.load(&planned).unwrap();
    let run = |size: usize| {
        let data = Literal::from_f64s(DType::F32, vec![size], &vec![0.0; size]).unwrap();
        program.run(&[(Arc::from("data"), data)].into_iter().collect())
    };
    assert_eq!(run(1).unwrap()[0].to_f64s(), [1.0]);
    assert_eq!(run(2).unwrap_err().kind(), Kind::Limit);
}
