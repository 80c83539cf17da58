//! Sessions against the interpreter of kernels, with a small emitter: element by element, the second operand packed.

use std::sync::Arc;

use fuseline::compare::{Agreement, Tolerance, compare};
use fuseline::compile::{Grain, PlannedProgram, plan_apart, plan_program};
use fuseline::device::{DeviceSpec, Executable, NamedTensors};
use fuseline::error::{Error, Kind, Result};
use fuseline::fuse::PlanOptions;
use fuseline::graph::{Builder, Graph};
use fuseline::interpret;
use fuseline::ops::prim::Monoid;
use fuseline::ops::{Expr, ExprNode, Scalar};
use fuseline::reference::{Buffer, Limits};
use fuseline::tensor::{DType, Dim, Env, Literal, Shape, Symbol};
use fuseline::tile::{Kernel, Limit, Op, Schedule, interp};

use super::constant::ConstantId;
use super::load::Origin;
use super::owned::Owned;
use super::session::{CpuDevice, Session};
use super::specialize::Entry;
use crate::code::Isa;
use crate::emit::{Emitted, Memory, Phase, Site, Target};
use crate::vector::{self, Binary, Ty};

/// Sums, differences and products of f32 tensors of one shape, element by element. The second input goes through memory
/// between phases, as packed weights do. A check fails where a result is not below 100 000.
fn emit(kernel: &Kernel, env: &Env, _: &Target) -> Result<Emitted> {
    let refuse = || Error::unsupported("anything but sums and products of equal shapes");
    let shape = Shape::from(kernel.axes.clone());
    let count: usize = shape.eval(env)?.iter().product();
    let params = kernel.inputs.iter().chain(&kernel.outputs);
    let is_whole = params.clone().all(|p| p.ty.dtype == DType::F32 && p.ty.shape == shape);
    if !matches!(kernel.schedule, Schedule::Map) || !is_whole || kernel.stores.len() != 1 {
        return Err(refuse());
    }
    let place = |memory| {
        let table = Emitted { phases: vec![], scratch: vec![4 * count], inputs: kernel.inputs.len(), outputs: 1 };
        table.place(memory)
    };
    let packs = kernel.inputs.len() > 1;
    let source = |input: usize| if input == 1 { Memory::Scratch(0) } else { Memory::Input(input) };
    let phase = |name, program: vector::Program, reads, writes| {
        let sites = vec![Site { place: "step %0 (load)".into(), limit: Limit { axis: 0, size: 100_000, read: None } }];
        let table = (0..kernel.inputs.len() as u32 + 2 + u32::from(packs)).collect();
        Phase { name, program: program.into(), table, tasks: count as u64, reads, writes, worker_bytes: 64, sites }
    };
    let mut phases = Vec::new();
    if packs {
        let mut b = vector::Builder::new(16);
        let task = b.begin_tasks();
        let [from, to] = [Memory::Input(1), Memory::Scratch(0)].map(|memory| {
            let base = b.buffer(place(memory));
            b.address(base, &[(task, 4)], 0)
        });
        let x = b.load_splat(from, DType::F32);
        b.store_lane(to, x, DType::F32);
        b.end_loop(&[]);
        phases.push(phase("pack", b.finish(), vec![Memory::Input(1)], vec![Memory::Scratch(0)]));
    }
    let mut b = vector::Builder::new(16);
    let task = b.begin_tasks();
    let mut steps = Vec::new();
    for step in &kernel.steps {
        let value = match &step.op {
            Op::Load { input, .. } => {
                let base = b.buffer(place(source(*input)));
                let at = b.address(base, &[(task, 4)], 0);
                b.load_splat(at, DType::F32)
            }
            Op::Map { expr, args } => {
                let args: Vec<vector::Value> = args.iter().map(|id| steps[id.index()]).collect();
                arithmetic(&mut b, expr, &args).ok_or_else(refuse)?
            }
            _ => return Err(refuse()),
        };
        steps.push(value);
    }
    let store = &kernel.stores[0];
    let value = steps[store.value.index()];
    let whole = b.convert(vector::Convert::Truncate, Ty::I32, value);
    let number = b.lane0(whole);
    let (low, bound) = (b.number(0), b.number(100_000));
    let number = b.int(vector::IntOp::Max, number, low);
    b.check_int(number, bound, 0);
    let base = b.buffer(place(Memory::Output(0)));
    let at = b.address(base, &[(task, 4)], 0);
    b.store_lane(at, value, DType::F32);
    b.end_loop(&[]);
    let reads = (0..kernel.inputs.len()).map(source).collect();
    phases.push(phase("add", b.finish(), reads, vec![Memory::Output(0)]));
    let scratch = if packs { vec![4 * count] } else { vec![] };
    Ok(Emitted { phases, scratch, inputs: kernel.inputs.len(), outputs: 1 })
}

fn arithmetic(b: &mut vector::Builder, expr: &Expr, args: &[vector::Value]) -> Option<vector::Value> {
    let mut values: Vec<vector::Value> = Vec::new();
    for (node, dtype) in expr.nodes() {
        values.push(match node {
            ExprNode::Arg(k) => args[*k as usize],
            ExprNode::Const(number) if *dtype == DType::F32 => b.float(Ty::F32, number.to_f64()),
            ExprNode::Apply(scalar, operands) => {
                let op = match scalar {
                    Scalar::Add => Binary::Add,
                    Scalar::Sub => Binary::Sub,
                    Scalar::Mul => Binary::Mul,
                    _ => return None,
                };
                b.binary(op, values[operands[0] as usize], values[operands[1] as usize])
            }
            _ => return None,
        });
    }
    values.last().copied()
}

fn options() -> PlanOptions {
    PlanOptions::on(DeviceSpec::find("cpu").unwrap())
}

fn planned(graph: &Graph) -> PlannedProgram {
    plan_program(graph.clone(), &options(), &mut |_| {}).unwrap()
}

fn device(threads: usize) -> CpuDevice {
    CpuDevice::new(Isa::Portable, threads, options(), Limits::default()).unwrap().with_emitter(emit)
}

fn session(graph: &Graph, threads: usize) -> Session {
    device(threads).load(&planned(graph)).unwrap()
}

fn floats(sizes: &[usize]) -> Literal {
    let count: usize = sizes.iter().product();
    let values: Vec<f64> = (0..count).map(|k| (k * 7 % 23) as f64 - 11.0).collect();
    Literal::from_f64s(DType::F32, sizes.to_vec(), &values).unwrap()
}

fn inputs(named: &[(&str, Literal)]) -> NamedTensors {
    named.iter().map(|(name, literal)| (Arc::from(*name), literal.clone())).collect()
}

/// A session gives what the interpreter gives, with any number of threads, again and again.
fn agrees(graph: &Graph, inputs: &NamedTensors) -> Session {
    let expected = interpret::load(&planned(graph), &interp::Options::default()).unwrap().run(inputs).unwrap();
    for threads in [3, 1] {
        let session = session(graph, threads);
        for _ in 0..3 {
            assert_eq!(session.run(inputs).unwrap(), expected, "{threads} threads");
        }
    }
    session(graph, 2)
}

fn named(name: &str) -> Shape {
    Shape::new([Dim::named(name), Dim::int(3)])
}

#[test]
fn kernels_with_code_and_without_take_turns() {
    let b = Builder::new("turns");
    let x = b.input("x", DType::F32, named("n"));
    let mut y = x;
    for _ in 0..4 {
        y = ((y + x) * 0.25).sort(0, false).0;
        y = y - x;
    }
    b.output("y", y);
    b.output("x again", x);
    b.output("y again", y);
    b.output("constant", b.constant(floats(&[2])));
    let graph = b.finish().unwrap();
    for n in [4, 0, 1, 9] {
        let session = agrees(&graph, &inputs(&[("x", floats(&[n, 3]))]));
        assert!(session.refused().is_empty(), "{:?}", session.refused());
    }
}

/// Two weights that are prepared, being too large to be folded.
fn weighted() -> Graph {
    let b = Builder::new("weighted");
    let x = b.input("x", DType::F32, Shape::new([Dim::int(200), Dim::int(100), Dim::named("n")]));
    let weight = |k: f64| b.constant(floats(&[200, 100])).square() * k;
    let y = x.reduce(Monoid::Sum, &[2]).sort(0, false).0 + weight(0.5);
    b.output("y", y.sort(0, true).0 - weight(2.0));
    b.finish().unwrap()
}

#[test]
fn constants_are_packed_once_for_all_sizes() {
    let graph = weighted();
    let session = agrees(&graph, &inputs(&[("x", floats(&[200, 100, 2]))]));
    assert_eq!(session.packs(), 0);
    for n in [1, 2, 7] {
        session.run(&inputs(&[("x", floats(&[200, 100, n]))])).unwrap();
        assert_eq!(session.packs(), 2, "n = {n}");
    }
}

#[test]
fn what_was_packed_is_dropped_and_prepared_again_when_it_is_wanted() {
    let graph = weighted();
    let session = session(&graph, 1);
    let constants = |session: &Session| {
        let slots = session.loaded().slots.iter();
        let ids = slots.filter_map(|slot| if let Origin::Constant(id) = slot.origin { Some(id) } else { None });
        ids.collect::<Vec<ConstantId>>()
    };
    let (engine, ids) = (session.engine(), constants(&session));
    assert_eq!(ids.len(), 2);
    let before: Vec<Literal> = ids.iter().map(|id| engine.constants.literal(*id).unwrap()).collect();
    session.run(&inputs(&[("x", floats(&[200, 100, 1]))])).unwrap();
    assert!(ids.iter().all(|id| engine.constants.literal(*id).is_none()));
    for (id, before) in ids.iter().zip(&before) {
        assert_eq!(&engine.pool.enter(|team| engine.literal(*id, team)).unwrap(), before);
    }
}

#[test]
fn sizes_that_are_hinted_are_ready_after_loading() {
    let graph = weighted();
    let mut device = device(1);
    device.plan.hints.env.bind(Symbol::name("n"), 2);
    let session = device.load(&planned(&graph)).unwrap();
    assert_eq!(session.packs(), 2);
}

#[test]
fn sizes_from_data_cut_the_plan() {
    let b = Builder::new("cut");
    let x = b.input("x", DType::F32, named("n"));
    let count = b.input("count", DType::I64, Shape::scalar());
    let k = b.bind(count + 1).unwrap();
    let part = x.slice(0, 0usize, k, 1);
    b.output("y", (part + part).sort(0, false).0 + part);
    let graph = b.finish().unwrap();
    for (n, count) in [(5, 2), (5, 4), (9, 0), (1, -1)] {
        let count = Literal::from_ints(DType::I64, [], &[count]).unwrap();
        agrees(&graph, &inputs(&[("x", floats(&[n, 3])), ("count", count)]));
    }
}

fn with_control_flow() -> Graph {
    let b = Builder::new("control");
    let x = b.input("x", DType::F32, named("n"));
    let trips = b.input("trips", DType::I64, Shape::scalar());
    let weight = b.constant(floats(&[40, 3])).square();
    let body = {
        let b = b.region("body");
        b.input("trip", DType::I64, Shape::scalar());
        let y = b.input("y", DType::F32, named("n"));
        let x = b.input("x", DType::F32, named("n"));
        let w = b.input("w", DType::F32, Shape::new([40usize, 3]));
        b.output("more", b.int(DType::Bool, 1));
        b.output("next", (y + x) * 0.5);
        b.output("slice", (w + w).sort(0, false).0.sum(&[0]));
        b.finish().unwrap()
    };
    let looped = b.loop_(trips, b.int(DType::Bool, 1), &[x], body, &[x, weight]).unwrap();
    let branch = |factor: f64| {
        let b = b.region("branch");
        let y = b.input("y", DType::F32, named("n"));
        b.output("y", (y * factor).sort(0, false).0 + y);
        b.finish().unwrap()
    };
    let condition = trips.gt(b.int(DType::I64, 1));
    b.output("y", b.if_else(condition, branch(2.0), branch(-1.0), &[looped[0]]).unwrap()[0]);
    b.output("stack", looped[1]);
    b.finish().unwrap()
}

fn control_inputs(n: usize, trips: i64) -> NamedTensors {
    inputs(&[("x", floats(&[n, 3])), ("trips", Literal::from_ints(DType::I64, [], &[trips]).unwrap())])
}

#[test]
fn regions_run_by_their_plans() {
    let graph = with_control_flow();
    for (n, trips) in [(4, 3), (4, 1), (2, 0), (0, 2)] {
        agrees(&graph, &control_inputs(n, trips));
    }
}

#[test]
fn runs_from_many_threads_do_not_meet() {
    let session = session(&with_control_flow(), 2);
    let expected: Vec<Vec<Literal>> = (0..4).map(|n| session.run(&control_inputs(n + 1, n as i64)).unwrap()).collect();
    std::thread::scope(|scope| {
        for start in 0..4 {
            let (session, expected) = (&session, &expected);
            scope.spawn(move || {
                for n in (0..4).cycle().skip(start).take(20) {
                    assert_eq!(session.run(&control_inputs(n + 1, n as i64)).unwrap(), expected[n]);
                }
            });
        }
    });
}

#[test]
fn every_kernel_of_a_trace_does_what_its_nodes_say() {
    for (graph, given) in
        [(with_control_flow(), control_inputs(5, 3)), (weighted(), inputs(&[("x", floats(&[200, 100, 3]))]))]
    {
        let planned = planned(&graph);
        let session = device(2).load(&planned).unwrap();
        let trace = session.run_traced(&given).unwrap();
        assert_eq!(trace.outputs, session.run(&given).unwrap());
        assert_eq!(trace.kernels.len(), planned.run.kernels.len());
        let mut cases = trace.cases(planned.program.run(), &planned.run).unwrap();
        assert!(!cases.is_empty());
        for (k, case) in &cases {
            let meaning = case.meaning(Limits::default()).unwrap();
            assert_eq!(meaning.check(&case.stored), Ok(()), "kernel {k}");
            assert_eq!(meaning.check(&case.interpreted(Limits::default()).unwrap()), Ok(()), "kernel {k}");
        }
        // A value that is wrong is seen where it was stored.
        let (_, case) = cases.last_mut().unwrap();
        let stored = &case.stored[0];
        let wrong: Vec<f64> = stored.to_f64s().iter().map(|x| x + 1.0).collect();
        let wrong = Literal::from_f64s(stored.dtype(), stored.sizes().to_vec(), &wrong).unwrap();
        assert_eq!(case.meaning(Limits::default()).unwrap().check(&[wrong]).unwrap_err().0, 0);
    }
}

#[test]
fn a_kernel_that_reads_a_size_which_is_an_expression_is_a_graph_of_its_own() {
    let b = Builder::new("grown");
    let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::named("t")]));
    // Rows of 2·t elements, whose mean hangs on t: nothing of it is an input of t elements.
    let twice = b.concat(&[x, x * x], 1).exp();
    b.output("y", twice.mean(&[1]));
    let graph = b.finish().unwrap();
    let planned = plan_apart(graph, &PlanOptions::on(DeviceSpec::find("cpu").unwrap()), Grain::Primitive).unwrap();
    let session = device(1).load(&planned).unwrap();
    let trace = session.run_traced(&inputs(&[("x", floats(&[3, 5]))])).unwrap();
    let cases = trace.cases(planned.program.run(), &planned.run).unwrap();
    let mut told = 0;
    for (k, case) in &cases {
        fuseline::graph::verify(&case.graph).unwrap();
        told += usize::from(case.inputs.get("size_t").is_some_and(|bytes| bytes.sizes() == [5]));
        assert_eq!(case.meaning(Limits::default()).unwrap().check(&case.stored), Ok(()), "kernel {k}");
        // It can be planned and run by itself.
        let alone =
            plan_apart(case.graph.clone(), &PlanOptions::on(DeviceSpec::find("cpu").unwrap()), Grain::Primitive)
                .unwrap();
        let given = case.graph.inputs().iter().map(|value| case.graph.input_name(*value).clone());
        let given = given.map(|name| (name.clone(), case.inputs[&name].clone())).collect();
        assert_eq!(device(1).load(&alone).unwrap().run(&given).unwrap(), case.stored, "kernel {k}");
    }
    assert!(told > 0, "one of {} reads what has 2·t elements, and no t", cases.len());
}

#[test]
fn limits_hold() {
    let graph = with_control_flow();
    let run = |limits: Limits, trips: i64| {
        let mut device = device(1);
        device.limits = limits;
        device.load(&planned(&graph)).unwrap().run(&control_inputs(4, trips)).unwrap_err()
    };
    let error = run(Limits { trips: 2, ..Limits::default() }, 3);
    assert_eq!((error.kind(), error.message()), (Kind::Limit, "more than 2 loop trips"));
    let b = Builder::new("large");
    let x = b.input("x", DType::F32, Shape::new([1usize]));
    let size = b.bind(b.input("n", DType::I64, Shape::scalar())).unwrap();
    let grown = x.expand(Shape::new([size]));
    b.output("y", grown + b.coordinate(0, &grown.shape().unwrap()).cast(DType::F32));
    let session = session(&b.finish().unwrap(), 1);
    let n = Literal::from_ints(DType::I64, [], &[1 << 40]).unwrap();
    let error = session.run(&inputs(&[("x", floats(&[1])), ("n", n)])).unwrap_err();
    assert_eq!(error.kind(), Kind::Limit, "{error}");
}

#[test]
fn a_check_that_fails_names_the_kernel() {
    let b = Builder::new("check");
    let x = b.input("x", DType::F32, Shape::new([4usize]));
    b.output("y", x + x);
    let session = session(&b.finish().unwrap(), 2);
    let run = |last: f32| session.run(&inputs(&[("x", Literal::f32s(&[1.0, 2.0, 3.0, last]))]));
    let error = run(60_000.0).unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (Kind::Invalid, "index 120000 is out of range for axis 0 of size 100000")
    );
    assert!(error.path()[0].starts_with("kernel 0 (map"), "{error}");
    assert_eq!(run(4.0).unwrap()[0].to_f64s(), [2.0, 4.0, 6.0, 8.0]);
}

#[test]
fn memory_is_used_again() {
    let session = session(&weighted(), 1);
    let given = inputs(&[("x", floats(&[200, 100, 3]))]);
    session.run(&given).unwrap();
    let most = session.most_bytes();
    for _ in 0..10 {
        session.run(&given).unwrap();
    }
    assert_eq!(session.most_bytes(), most);
}

#[test]
fn owned_results_share_no_memory() {
    let b = Builder::new("owned");
    let x = b.input("x", DType::F32, Shape::new([Dim::named("n")]));
    let doubled = x + x;
    b.output("input", x);
    b.output("doubled", doubled);
    b.output("again", doubled);
    b.output("constant", b.constant(Literal::f32s(&[1.0, 4.0])));
    let session = session(&b.finish().unwrap(), 2);
    let given = inputs(&[("x", floats(&[100]))]);
    let expected = session.run(&given).unwrap();
    let results = session.run_owned(&given).unwrap();
    for (owned, literal) in results.iter().zip(&expected) {
        assert_eq!((owned.dtype(), owned.sizes()), (literal.dtype(), literal.sizes()));
        // SAFETY: the result is that long, and ours.
        let bytes = unsafe { std::slice::from_raw_parts_mut(owned.start(), owned.byte_count()) };
        assert_eq!(bytes, &literal.bytes()[..]);
        bytes.fill(7);
    }
    let mut places: Vec<usize> = results.iter().map(|owned| owned.start().addr()).collect();
    places.push(given["x"].bytes().as_ptr().addr());
    places.sort_unstable();
    assert!(places.windows(2).all(|pair| pair[0] != pair[1]), "{places:?}");
    assert_eq!(session.run(&given).unwrap(), expected, "what the caller wrote is of no meaning");
}

#[test]
fn what_is_given_away_is_written_in_place() {
    let b = Builder::new("state");
    let n = Dim::named("n");
    let [state, step, kept] = ["state", "step", "kept"].map(|name| b.input(name, DType::F32, Shape::new([n.clone()])));
    let next = state * 0.5 + step;
    b.output("next", next);
    b.output("kept", kept);
    let device = CpuDevice::new(Isa::detect(), 2, device(1).plan, Limits::default()).unwrap();
    let session = device.load(&planned(&b.finish().unwrap())).unwrap();
    let owned = |k: usize| Owned::copy_of(&floats(&[k])).unwrap();
    let (mut state, mut expected) = (owned(1000), floats(&[1000]));
    let shared = inputs(&[("step", floats(&[1000]))]);
    let place = state.start();
    for _ in 0..5 {
        let kept = owned(1000);
        let kept_place = kept.start();
        let all = inputs(&[("state", expected), ("step", floats(&[1000])), ("kept", floats(&[1000]))]);
        let wanted = session.run(&all).unwrap();
        let given = [("state".into(), state), ("kept".into(), kept)].into_iter().collect();
        let mut results = session.run_donating(&shared, given).unwrap().into_iter();
        let (next, kept) = (results.next().unwrap(), results.next().unwrap());
        assert_eq!((next.start(), kept.start()), (place, kept_place), "neither is copied");
        // SAFETY: the result is that long, and nobody writes it.
        assert_eq!(unsafe { std::slice::from_raw_parts(next.start(), next.byte_count()) }, &wanted[0].bytes()[..]);
        assert_eq!(kept.into_literal().unwrap(), wanted[1]);
        (state, expected) = (next, wanted[0].clone());
    }
    let message = |state: Owned, more: &[(&str, Literal)]| {
        let donated = [("state".into(), state)].into_iter().collect();
        session.run_donating(&inputs(more), donated).unwrap_err().message().to_string()
    };
    let rest = [("step", floats(&[8])), ("kept", floats(&[8]))];
    assert!(message(owned(7), &rest).contains("wanted f32[n]: the size of axis 0 must be n = 7"));
    assert_eq!(message(owned(8), &rest[..1]), "input \"kept\" (f32[n]) is missing");
    assert_eq!(message(owned(8), &[("state", floats(&[8]))]), "input \"state\" is given twice");
}

#[test]
fn a_kernel_runs_without_a_graph() {
    let text = "kernel(x: f32[n, m], w: f32[m]) -> (y: f32[n, m], top: f32[n]) { \
                top = max[m](x) e = exp(x - top) * w y = e / sum[m](e) }";
    let kernel = fuseline::tile::parse(text).unwrap();
    let device = CpuDevice::new(Isa::detect(), 2, device(1).plan, Limits::default()).unwrap();
    let env: Env = [(Symbol::name("n"), 5), (Symbol::name("m"), 37)].into_iter().collect();
    let lone = device.load_kernel(kernel.clone(), &env).unwrap();
    let given = [floats(&[5, 37]), floats(&[37])];
    let outputs = lone.run(&given).unwrap();
    let buffers: Vec<Buffer> = given.iter().map(Buffer::from_literal).collect();
    let expected = interp::run(&kernel, &buffers, &env, &interp::Options::default()).unwrap();
    for (k, (expected, actual)) in expected.iter().zip(&outputs).enumerate() {
        let within = Agreement::Within(Tolerance::of_kernel(&kernel, k, &env));
        compare(&expected.to_literal().unwrap(), actual, &within).unwrap_or_else(|why| panic!("output {k}: {why}"));
    }
    assert_eq!(lone.bytes().unwrap(), 4 * (2 * 5 * 37 + 37 + 5));
    assert_eq!((lone.time(&given, 3).unwrap().len(), device.time_copy(100_000, 4).unwrap().len()), (3, 4));
    assert_eq!(lone.run(&given[..1]).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(lone.run(&[floats(&[5, 36]), floats(&[37])]).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(device.load_kernel(kernel, &Env::new()).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn a_kernel_finds_tensors_in_the_order_that_it_names() {
    let softmax = "kernel { axes i0: n, i1: m in x: f32[n, m] order=[1, 0] out y: f32[n, m] %0 = load x[i0, i1] \
        %1 = reduce.max %0 over [i1] %2 = map(%0, %1) exp(a - b) %3 = reduce.sum %2 over [i1] %4 = map(%2, %3) a / b \
        store y[i0, i1] = %4 }";
    let product = "kernel { axes i0: n, i1: m, i2: 19 in x: f32[n, m] order=[1, 0], w: f32[m, 19] order=[1, 0] \
        out y: f32[n, 19] order=[1, 0] %0 = load x[i0, i1] %1 = load w[i1, i2] %2 = dot(%0, %1) over [i1] acc=f32 \
        store y[i0, i2] = %2 }";
    let turned = "kernel { axes i0: n, i1: m, i2: 3 in x: f32[n, m, 3] order=[2, 0, 1], w: f32[m] out y: f32[3, n, m] order=[1, 2, 0] \
        %0 = load x[i0, i1, i2] %1 = load w[i1] %2 = map(%0, %1) a * b store y[i2, i0, i1] = %2 }";
    let env: Env = [(Symbol::name("n"), 5), (Symbol::name("m"), 37)].into_iter().collect();
    for text in [softmax, product, turned] {
        let kernel = fuseline::tile::parse(text).unwrap();
        let given = kernel.inputs.iter().map(|param| floats(&param.ty.shape.eval(&env).unwrap()));
        let given: Vec<Literal> = given.collect();
        let device = CpuDevice::new(Isa::detect(), 2, options(), Limits::default()).unwrap();
        let outputs = device.load_kernel(kernel.clone(), &env).unwrap().run(&given).unwrap();
        let buffers: Vec<Buffer> = given.iter().map(Buffer::from_literal).collect();
        let expected = interp::run(&kernel, &buffers, &env, &interp::Options::default()).unwrap();
        let within = Agreement::Within(Tolerance::of_kernel(&kernel, 0, &env));
        compare(&expected[0].to_literal().unwrap(), &outputs[0], &within).unwrap_or_else(|why| panic!("{why}\n{text}"));
    }
}

#[test]
fn ever_new_sizes_do_not_fill_the_memory() {
    let b = Builder::new("sizes");
    let x = b.input("x", DType::F32, Shape::new([Dim::named("n")]));
    b.output("y", x + x);
    let session = session(&b.finish().unwrap(), 1);
    let mut most = 0;
    for n in 1..1500 {
        session.run(&inputs(&[("x", floats(&[n]))])).unwrap();
        most = most.max(session.engine().workshop.count());
    }
    assert!(most < 500, "{most} kernels are known");
}

/// A chain of maps and rows, each a kernel: what one leaves is written over by the next.
#[test]
fn results_are_written_over_what_is_read_for_the_last_time() {
    let b = Builder::new("chain");
    let x = b.input("x", DType::F32, named("n"));
    let first = x.exp();
    let second = first * first + x;
    let third = second - second.mean(&[1]);
    let turned = third.transpose() + b.input("t", DType::F32, Shape::new([Dim::int(3), Dim::named("n")]));
    b.output("y", turned.exp());
    let graph = b.finish().unwrap();
    let apart = PlanOptions { fuel: Some(0), ..options() };
    let planned = plan_program(graph, &apart, &mut |_| {}).unwrap();
    let given = inputs(&[("x", floats(&[400, 3])), ("t", floats(&[3, 400]))]);
    let expected = interpret::load(&planned, &interp::Options::default()).unwrap().run(&given).unwrap();
    for isa in Isa::available() {
        let session = CpuDevice::new(isa, 2, apart.clone(), Limits::default()).unwrap().load(&planned).unwrap();
        let outputs = session.run(&given).unwrap();
        let agreement = Agreement::Within(Tolerance::ulps(DType::F32, 32.0));
        compare(&expected[0], &outputs[0], &agreement).unwrap_or_else(|mismatch| panic!("{isa:?}: {mismatch}"));
        let segment = &session.loaded().segments[0];
        let sizes = segment.sizes(&[(Symbol::name("n"), 400)].into_iter().collect()).unwrap();
        let special = segment.specials.get(sizes, || Err(Error::bug("it was made for the run"))).unwrap();
        let in_place = special.steps.iter().flatten().filter(|step| {
            let places = step.table.iter().filter(|entry| matches!(entry, Entry::Arena(_))).collect::<Vec<_>>();
            matches!(places[..], [from, to] if from == to)
        });
        assert!(in_place.count() >= 2, "{isa:?}");
    }
}
