//! An index that lies outside is an error on every device, told as it was given and with the operator that it is of; also where a view stands between
//! the data and what is read.

use std::sync::Arc;

use fuseline::device::{DeviceSpec, Executable as _};
use fuseline::error::{Error, Kind, Result};
use fuseline::fuse::PlanOptions;
use fuseline::graph::{Builder, Graph, Tensor};
use fuseline::reference::{self, Limits, evaluate};
use fuseline::tensor::{DType, Dim, Literal, Shape};
use fuseline::tile::interp;
use fuseline_cpu::code::Isa;
use fuseline_cpu::run::CpuDevice;
use fuseline_tests::generate::Inputs;
use fuseline_tests::planned::{planned, run};

/// A view of some data whose first axis has ten elements.
type Between = (&'static str, &'static [usize], for<'b> fn(Tensor<'b>) -> Tensor<'b>);

const BETWEEN: [Between; 8] = [
    ("nothing", &[10, 8], |x| x),
    ("a part", &[20, 8], |x| x.slice(0, Dim::int(5), 10i64, 1)),
    ("every second", &[20, 8], |x| x.slice(0, Dim::int(0), 10i64, 2)),
    ("a broadcast", &[1, 8], |x| x.expand(Shape::new([10usize, 8]))),
    ("joined axes", &[5, 2, 8], |x| x.reshape(Shape::new([10usize, 8]))),
    ("cut axes", &[80], |x| x.reshape(Shape::new([10usize, 8]))),
    ("an axis in the middle", &[4, 80], |x| x.reshape(Shape::new([4usize, 10, 8])).permute(&[1, 0, 2])),
    ("turned", &[8, 10], |x| x.transpose()),
];

/// The elements of a view at indices, and what becomes of them.
fn graph(sizes: &[usize], between: fn(Tensor<'_>) -> Tensor<'_>) -> Graph {
    let b = Builder::new("indices");
    let x = b.input("x", DType::F32, sizes.iter().copied().collect::<Shape>());
    let i = b.input("i", DType::I64, Shape::new([5usize]));
    let y = between(x).take(0, i);
    b.output("y", y * y);
    b.finish().unwrap()
}

pub(super) fn on_reference(graph: &Graph, inputs: &Inputs) -> Result<Vec<Literal>> {
    evaluate(graph, inputs, &reference::Options::default())
}

fn on_interpreter(graph: &Graph, inputs: &Inputs) -> Result<Vec<Literal>> {
    run(&planned(graph, &options())?, inputs, &interp::Options::default())
}

fn on_processor(graph: &Graph, inputs: &Inputs) -> Result<Vec<Literal>> {
    let device = CpuDevice::new(Isa::detect(), 1, options(), Limits::default())?;
    let given = inputs.iter().map(|(name, x)| (Arc::clone(name), x.clone())).collect();
    device.load(&planned(graph, &options())?)?.run(&given)
}

pub(super) fn options() -> PlanOptions {
    PlanOptions::on(DeviceSpec::find("cpu").unwrap())
}

#[test]
fn an_index_outside_is_an_error_on_every_device() {
    for (name, sizes, between) in BETWEEN {
        let graph = graph(sizes, between);
        let count = sizes.iter().product::<usize>();
        let x: Vec<f32> = (0..count).map(|k| k as f32).collect();
        let x = Literal::f32s(&x).reshaped(sizes.to_vec()).unwrap();
        let given = |i: i64| -> Inputs {
            [("x".into(), x.clone()), ("i".into(), Literal::i64s(&[0, 9, i, -10, 3]))].into_iter().collect()
        };
        let expected = on_reference(&graph, &given(-1)).unwrap();
        for device in [on_interpreter, on_processor] {
            let outputs = device(&graph, &given(-1)).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(outputs[0].to_f64s(), expected[0].to_f64s(), "{name}");
            for index in [10, 12, -11, -1001, 1 << 40] {
                let error = device(&graph, &given(index)).err();
                check(name, index, &error.unwrap_or_else(|| panic!("{name}: {index} is no error")));
            }
        }
    }
}

/// An error tells an index as it was given, and how many elements there are.
fn check(name: &str, index: i64, error: &Error) {
    assert_eq!(error.kind(), Kind::Invalid, "{name}: {error}");
    let message = error.message();
    assert!(message.contains("of size 10"), "{name}, {index}: {message}");
    assert!(message.starts_with(&format!("index {index} is out of range")), "{name}, {index}: {message}");
    let path = error.path().join(" › ");
    assert!(path.contains("gather"), "{name}, {index}: {path}");
}
