//! Models made to take forever: each ends, with a plan or a clear error. How long large ones take says
//! `cargo run --release -p fuseline-bench --bin extremes`.

use fuseline::compile::{PlannedProgram, plan_program};
use fuseline::device::DeviceSpec;
use fuseline::error::{Kind, Result};
use fuseline::fuse::PlanOptions;
use fuseline_frontend::Model;
use fuseline_frontend::onnx::schema::ModelProto;
use fuseline_tests::malicious::MALICES;
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
