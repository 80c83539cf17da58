//! Where programs run.
//!
//! A [`Device`] turns a [`Program`] into an [`Executable`] and knows nothing of files; the reference device is the one
//! that defines what the others must compute. A [`DeviceSpec`] is what the planner knows of a device: numbers.

mod scale;
mod spec;
mod spec_text;

pub use spec::{Costs, DeviceSpec, Host, Limits, Machine, MemoryLevel, Rates, Scope, Skeleton, Unit};

use std::collections::HashSet;
use std::sync::Arc;

use indexmap::IndexMap;
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::program::Program;
use crate::reference::{Buffer, Options, evaluate_buffers};
use crate::tensor::{Env, Literal, TensorType};

/// Tensors by name, in the order in which the caller gives them.
pub type NamedTensors = IndexMap<Arc<str>, Literal>;

/// Something that can run programs.
pub trait Device {
    /// its name on the command line and in reports
    fn name(&self) -> &str;

    /// Makes a program ready: what is constant is computed here, once.
    fn load(&self, program: &Program) -> Result<Box<dyn Executable>>;
}

/// A program that is ready to run, any number of times, from any number of threads.
pub trait Executable: Send + Sync {
    /// The outputs, in the program's order, for these inputs.
    fn run(&self, inputs: &NamedTensors) -> Result<Vec<Literal>>;
}

/// The reference interpreter as a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceDevice {
    /// how floats are read, and what a program may use
    pub options: Options,
}

impl Device for ReferenceDevice {
    fn name(&self) -> &str {
        "reference"
    }

    fn load(&self, program: &Program) -> Result<Box<dyn Executable>> {
        let values = evaluate_buffers(program.prepare(), FxHashMap::default(), &self.options)?;
        let names = program.prepare().outputs().iter().map(|o| o.name.clone());
        Ok(Box::new(ReferenceProgram {
            program: program.clone(),
            prepared: names.zip(values).collect(),
            options: self.options,
        }))
    }
}

struct ReferenceProgram {
    program: Program,
    /// As the interpreter has them: rounding to the stored type would be a step that the graph does not have.
    prepared: Vec<(Arc<str>, Buffer)>,
    options: Options,
}

impl Executable for ReferenceProgram {
    fn run(&self, inputs: &NamedTensors) -> Result<Vec<Literal>> {
        check_inputs(&self.program, inputs)?;
        let given = inputs.iter().map(|(name, x)| (name.clone(), Buffer::from_literal(x)));
        let all = given.chain(self.prepared.iter().cloned()).collect();
        evaluate_buffers(self.program.run(), all, &self.options)?.iter().map(Buffer::to_literal).collect()
    }
}

/// Refuses inputs that are missing, unknown, or of another element type, rank or size than the program takes; returns
/// the sizes that the inputs bind.
pub fn check_inputs(program: &Program, inputs: &NamedTensors) -> Result<Env> {
    check_types(program, &inputs.iter().map(|(name, given)| (name.clone(), given.ty())).collect())
}

/// The same of inputs whose types are known, all with numbers for sizes.
pub fn check_types(program: &Program, inputs: &IndexMap<Arc<str>, TensorType>) -> Result<Env> {
    let known: HashSet<&str> = program.inputs().map(|(name, _)| name.as_ref()).collect();
    if let Some(unknown) = inputs.keys().find(|name| !known.contains(name.as_ref())) {
        let names: Vec<&str> = program.inputs().map(|(n, _)| n.as_ref()).collect();
        return Err(Error::invalid(format!("no input is called \"{unknown}\"; there are: {}", names.join(", "))));
    }
    let mut env = Env::new();
    for (name, ty) in program.inputs() {
        let Some(given) = inputs.get(name) else {
            return Err(Error::invalid(format!("input \"{name}\" ({ty}) is missing")));
        };
        if ty.dtype != given.dtype || ty.shape.rank() != given.shape.rank() {
            return Err(Error::invalid(format!("input \"{name}\" is {given}, wanted {ty}")));
        }
        for (dim, size) in ty.shape.dims().iter().zip(given.shape.dims()) {
            if let Some(symbol) = dim.as_symbol().filter(|s| env.get(s).is_none()) {
                env.bind(symbol.clone(), size.eval(&env)?);
            }
        }
    }
    // Once all symbols are bound that can be: a size may be an expression of what a later input binds.
    for (name, ty) in program.inputs() {
        check_sizes(name, ty, &inputs[name], &env)?;
    }
    Ok(env)
}

fn check_sizes(name: &str, ty: &TensorType, given: &TensorType, env: &Env) -> Result<()> {
    for (axis, (dim, size)) in ty.shape.dims().iter().zip(given.shape.dims()).enumerate() {
        // A symbol that occurs only inside of larger expressions has no value; nothing can be checked then.
        let Ok(wanted) = dim.eval(env) else { continue };
        if wanted != size.eval(env)? {
            let wanted = if dim.as_int().is_some() { wanted.to_string() } else { format!("{dim} = {wanted}") };
            let why = format!("the size of axis {axis} must be {wanted}");
            return Err(Error::invalid(format!("input \"{name}\" is {given}, wanted {ty}: {why}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile;
    use crate::graph::Builder;
    use crate::passes::Context;
    use crate::tensor::{DType, Dim, Shape};

    fn loaded() -> Box<dyn Executable> {
        let b = Builder::new("double");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(2)]));
        b.output("y", x + x);
        let program = compile(b.finish().unwrap(), &Context::default()).unwrap();
        ReferenceDevice::default().load(&program).unwrap()
    }

    fn given(name: &str, literal: Literal) -> NamedTensors {
        [(Arc::from(name), literal)].into_iter().collect()
    }

    #[test]
    fn a_loaded_program_runs_with_any_size_and_from_any_thread() {
        let program = loaded();
        std::thread::scope(|scope| {
            for n in 0..3 {
                let program = &program;
                scope.spawn(move || {
                    let x = Literal::from_f64s(DType::F32, [n, 2], &vec![1.5; 2 * n]).unwrap();
                    assert_eq!(program.run(&given("x", x)).unwrap()[0].to_f64s(), vec![3.0; 2 * n]);
                });
            }
        });
    }

    #[test]
    fn very_many_inputs_are_not_compared_with_each_other() {
        let b = Builder::new("inputs");
        let names: Vec<String> = (0..50_000).map(|k| format!("a model may have quite long names {k}")).collect();
        let inputs = names.iter().map(|name| b.input(name, DType::F32, Shape::new([1usize])));
        let last = inputs.last().unwrap();
        b.output("y", last);
        let program = Program::new(&b.finish().unwrap()).unwrap();
        let ty = TensorType::new(DType::F32, Shape::new([1usize]));
        let given = names.iter().map(|name| (Arc::from(name.as_str()), ty.clone())).collect();
        let start = std::time::Instant::now();
        check_types(&program, &given).unwrap();
        assert!(start.elapsed().as_secs() < 4, "{:?}", start.elapsed());
    }

    #[test]
    fn sizes_that_do_not_fit_are_told_with_what_binds_them() {
        let b = Builder::new("sizes");
        let n = Dim::named("n");
        b.output("y", b.input("twice", DType::F32, Shape::new([&n * 2, Dim::int(1)])));
        b.output("x", b.input("x", DType::F32, Shape::new([n])));
        let program = compile(b.finish().unwrap(), &Context::default()).unwrap();
        let check = |twice: [usize; 2], x: usize| {
            let zeros = |sizes: &[usize]| {
                Literal::from_f64s(DType::F32, sizes.to_vec(), &vec![0.0; sizes.iter().product()]).unwrap()
            };
            let inputs = [(Arc::from("twice"), zeros(&twice)), (Arc::from("x"), zeros(&[x]))];
            check_inputs(&program, &inputs.into_iter().collect()).map(|_| ()).map_err(|e| e.message().to_string())
        };
        assert_eq!(check([4, 1], 2), Ok(()));
        let wrong = "input \"twice\" is f32[5, 1], wanted f32[2*n, 1]: the size of axis 0 must be 2*n = 4";
        assert_eq!(check([5, 1], 2), Err(wrong.to_string()));
        let wrong = "input \"twice\" is f32[4, 3], wanted f32[2*n, 1]: the size of axis 1 must be 1";
        assert_eq!(check([4, 3], 2), Err(wrong.to_string()));
    }

    #[test]
    fn inputs_that_do_not_fit_are_told_with_both_types() {
        let program = loaded();
        let message = |inputs: NamedTensors| program.run(&inputs).unwrap_err().message().to_string();
        assert_eq!(message(NamedTensors::new()), "input \"x\" (f32[n, 2]) is missing");
        assert_eq!(message(given("x", Literal::i64s(&[1]))), "input \"x\" is i64[1], wanted f32[n, 2]");
        let mut two = given("x", Literal::from_f64s(DType::F32, [1, 2], &[0.0; 2]).unwrap());
        two.insert(Arc::from("w"), Literal::i64s(&[]));
        assert_eq!(message(two), "no input is called \"w\"; there are: x");
    }
}
