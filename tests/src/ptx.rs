//! Planned programs on the host as a GPU would run them: printed, made PTX by NVRTC, and run instruction by instruction.

use fuseline::compare::{Agreement, Meaning, Tolerance, compare};
use fuseline::compile::PlannedProgram;
use fuseline::error::{Error, Result as Fallible};
use fuseline::fuse::Plan;
use fuseline::graph::{Graph, Value};
use fuseline::ops::Prim;
use fuseline::reference::{Buffer, Limits};
use fuseline::tensor::{DType, Env, Literal};
use fuseline::tile::{Kernel, Schedule, interp};
use fuseline_cuda::nvrtc::Compiler;
use fuseline_cuda::print::{Asked, Options, Parameter, print, sizes_about, sizes_to_fix_at};
use fuseline_ptx::{Launch, Memory, Module, Order};
use rustc_hash::FxHashMap;

use crate::generate::Inputs;

/// How kernels are made and run.
#[derive(Debug)]
pub struct Device<'c> {
    pub compiler: &'c Compiler,
    /// about how large sizes are that the plan was made for, which decides how rows are divided
    pub about: &'c Env,
    pub order: Order,
}

impl Device<'_> {
    /// The outputs of a program whose kernels are all code.
    pub fn run(&self, planned: &PlannedProgram, inputs: &Inputs) -> Result<Vec<Literal>, String> {
        let PlannedProgram { program, prepare, run, .. } = planned;
        let prepared = self.run_plan(program.prepare(), prepare, &Inputs::default())?;
        let names = program.prepare().outputs().iter().map(|output| output.name.clone());
        let given = inputs.iter().map(|(name, literal)| (name.clone(), literal.clone()));
        self.run_plan(program.run(), run, &given.chain(names.zip(prepared)).collect())
    }

    fn run_plan(&self, graph: &Graph, plan: &Plan, inputs: &Inputs) -> Result<Vec<Literal>, String> {
        let (mut env, mut values) = (Env::new(), FxHashMap::<Value, Literal>::default());
        for value in graph.inputs() {
            let literal = &inputs[graph.input_name(*value)];
            graph.ty(*value).bind(literal.dtype(), literal.sizes(), &mut env).map_err(|error| error.to_string())?;
            values.insert(*value, literal.clone());
        }
        let read = |values: &FxHashMap<Value, Literal>, value: Value| match graph.node_of(value).prim() {
            Prim::Const(row) => Ok(row.literal.clone()),
            _ => values.get(&value).cloned().ok_or_else(|| format!("{value:?} is not there")),
        };
        for kernel in &plan.kernels {
            let given = kernel.inputs.iter().map(|value| read(&values, *value));
            let given = given.collect::<Result<Vec<Literal>, String>>()?;
            let results =
                self.run_kernel(&kernel.kernel, &given, &env).map_err(|why| format!("{why}\n{}", kernel.kernel))?;
            agree(&kernel.kernel, &given, &results, &env).map_err(|why| format!("{why}\n{}", kernel.kernel))?;
            values.extend(kernel.outputs.iter().copied().zip(results));
        }
        graph.outputs().iter().map(|output| read(&values, output.value)).collect()
    }

    /// What a kernel computes.
    pub fn run_kernel(&self, kernel: &Kernel, inputs: &[Literal], env: &Env) -> Result<Vec<Literal>, String> {
        let text = |error: Error| error.to_string();
        let fixed =
            sizes_to_fix_at(kernel, env).into_iter().filter_map(|symbol| Some((symbol.clone(), env.get(&symbol)?)));
        let options = Options {
            name: kernel.schedule.name().to_owned(),
            fixed: fixed.collect(),
            wide: false,
            groups: true,
            asked: Asked::Nothing,
            processors: 132,
            about: sizes_about(kernel, self.about),
        };
        let printed = print(kernel, &options).map_err(text)?;
        let ptx =
            self.compiler.ptx(&printed.source(), &options.name, "compute_90a", printed.is_strict).map_err(text)?;
        let module = Module::parse(&ptx).map_err(|why| format!("{why}\n{ptx}"))?;
        let mut memory = Memory::default();
        let inputs: Vec<_> = inputs.iter().map(|literal| memory.hold(&literal.bytes())).collect();
        let types = kernel.outputs.iter().map(|output| {
            let sizes = output.ty.shape.eval(env)?;
            Ok((output.ty.dtype, sizes))
        });
        let types = types.collect::<Fallible<Vec<_>>>().map_err(text)?;
        let bytes = |dtype: DType, sizes: &[usize]| dtype.bits() / 8 * sizes.iter().product::<usize>();
        let outputs: Vec<_> = types.iter().map(|(dtype, sizes)| memory.reserve(bytes(*dtype, sizes))).collect();
        let scratch = printed.scratch.iter().map(|scratch| Ok(memory.reserve(scratch.bytes.eval(env)? as usize)));
        let scratch = scratch.collect::<Fallible<Vec<_>>>().map_err(text)?;
        let fault = memory.hold(&[0; 16]);
        for launch in &printed.launches {
            let missing = || format!("an argument of {} that is not there", launch.name);
            let argument = |parameter: &Parameter| {
                let tensor = match parameter {
                    Parameter::Input(k) => inputs.get(*k),
                    Parameter::Output(k) => outputs.get(*k),
                    Parameter::Scratch(k) => scratch.get(*k),
                    Parameter::Fault => Some(&fault),
                    Parameter::Size(symbol) => return env.get(symbol).map(|size| size as u64).ok_or_else(missing),
                    Parameter::Map(_) => return Err("the engine for tiles is not known here".to_owned()),
                };
                tensor.map(|tensor| memory.address(*tensor)).ok_or_else(missing)
            };
            let arguments = launch.parameters.iter().map(argument).collect::<Result<Vec<u64>, String>>()?;
            let function = module.function(&launch.name).ok_or_else(|| format!("no function {}", launch.name))?;
            let blocks = launch.blocks.eval(env).map_err(text)?;
            let (threads, shared, order) = (launch.threads, launch.shared, self.order);
            let launched = Launch { function, blocks: blocks as u32, threads, shared, order };
            launched.run(&mut memory, &arguments).map_err(|why| format!("{}: {why}\n{ptx}", launch.name))?;
        }
        let literal = |((dtype, sizes), tensor): (&(_, Vec<usize>), _)| {
            Literal::new(*dtype, sizes.clone(), memory.bytes(tensor).to_vec())
        };
        types.iter().zip(outputs).map(literal).collect::<Fallible<Vec<Literal>>>().map_err(text)
    }
}

/// Whether all that a program does is code of whole bytes: no host, no regions, no sizes that are read from data.
pub fn is_code(planned: &PlannedProgram) -> bool {
    let PlannedProgram { program, prepare, run, .. } = planned;
    [(program.prepare(), prepare), (program.run(), run)].into_iter().all(|(graph, plan)| {
        plan.kernels.iter().all(|kernel| {
            let is_known =
                !matches!(graph.nodes()[kernel.members[0]].prim(), Prim::Bind(_) | Prim::If(_) | Prim::Loop(_));
            let tensors = || kernel.kernel.inputs.iter().chain(&kernel.kernel.outputs);
            let is_whole = tensors().all(|tensor| tensor.ty.dtype.bits() >= 8);
            is_known && is_whole && !matches!(kernel.kernel.schedule, Schedule::Host(_))
        })
    })
}

/// Last places by which an element may be off where no graph says what a kernel may give: of wide numbers as many as stages of kernels may be, of narrow ones the last
/// rounding, and what it may turn over.
const ULPS: f64 = 64.0;
const ULPS_OF_NARROW: f64 = 2.0;

/// Whether a kernel has given what it means, each operation in the type that it has in the kernel: what a graph of narrow floats allows is more than any kernel does.
fn agree(kernel: &Kernel, inputs: &[Literal], outputs: &[Literal], env: &Env) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    if let Some(meaning) = Meaning::of_kernel(kernel, inputs, env, Limits::default()).map_err(text)? {
        return meaning.check(outputs).map_err(|(k, mismatch)| format!("output {k}: {mismatch}"));
    }
    let inputs: Vec<Buffer> = inputs.iter().map(Buffer::from_literal).collect();
    let expected = interp::run(kernel, &inputs, env, &interp::Options::default()).map_err(text)?;
    // Integers that were rounded are either neighbour of a tie, which the graph knows that the kernel is of.
    for (k, (expected, actual)) in expected.iter().zip(outputs).enumerate().filter(|(_, (_, y))| y.dtype().is_float()) {
        let is_narrow = matches!(actual.dtype(), DType::BF16 | DType::F16);
        let ulps = if is_narrow { ULPS_OF_NARROW } else { ULPS };
        let agreement = Agreement::Within(Tolerance::ulps(actual.dtype(), ulps));
        let expected = expected.to_literal().map_err(text)?;
        compare(&expected, actual, &agreement).map_err(|mismatch| format!("output {k}: {mismatch}"))?;
    }
    Ok(())
}

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
const ENDS: usize = 8;

/// Inputs of a graph at some sizes: numbers that every float type has, small but for those at the ends of rows, without which no result is right.
pub fn inputs(graph: &Graph, env: &Env) -> Result<Inputs, String> {
    let input = |(seed, value): (usize, &Value)| {
        let ty = graph.ty(*value);
        let sizes = ty.shape.eval(env).map_err(|error| error.to_string())?;
        let columns = sizes.last().copied().unwrap_or(1);
        let number = |k: usize| {
            let (small, at) = (((k * 7919 + seed * 104_729) % 65) as f64 - 32.0, k % columns);
            // The first and the last one alone are as much as thousands of others, behind an exponential.
            match at.min(columns - 1 - at) {
                _ if !ty.dtype.is_float() => (small / 16.0).trunc().abs(),
                0 if sizes.len() > 1 => 10.0,
                1..ENDS if sizes.len() > 1 => small / 4.0,
                _ => small / 256.0,
            }
        };
        let values: Vec<f64> = (0..sizes.iter().product()).map(number).collect();
        let literal = Literal::from_f64s(ty.dtype, sizes.clone(), &values).map_err(|error| error.to_string())?;
        Ok((graph.input_name(*value).clone(), literal))
    };
    graph.inputs().iter().enumerate().map(input).collect()
}
