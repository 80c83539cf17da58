//! Where programs run.
//!
//! A [`Device`] turns a [`Program`] into an [`Executable`] and knows nothing of files; the reference device is the one
//! that defines what the others must compute.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::program::Program;
use crate::reference::{Options, evaluate};
use crate::tensor::{Literal, TensorType};

/// Tensors by name, in the order in which the caller gives them.
pub type NamedTensors = indexmap::IndexMap<Arc<str>, Literal>;

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
        let values = evaluate(program.prepare(), &FxHashMap::default(), &self.options)?;
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
    prepared: Vec<(Arc<str>, Literal)>,
    options: Options,
}

impl Executable for ReferenceProgram {
    fn run(&self, inputs: &NamedTensors) -> Result<Vec<Literal>> {
        check_inputs(&self.program, inputs)?;
        let given = inputs.iter().map(|(name, x)| (name.clone(), x.clone()));
        let all: FxHashMap<Arc<str>, Literal> = given.chain(self.prepared.iter().cloned()).collect();
        evaluate(self.program.run(), &all, &self.options)
    }
}

/// Refuses inputs that are missing, unknown, or of another element type or rank than the program takes. Sizes are
/// checked where symbols are bound.
pub fn check_inputs(program: &Program, inputs: &NamedTensors) -> Result<()> {
    for (name, ty) in program.inputs() {
        let Some(given) = inputs.get(name) else {
            return Err(Error::invalid(format!("input \"{name}\" ({ty}) is missing")));
        };
        let fits = |ty: &TensorType| {
            let pairs = ty.shape.dims().iter().zip(given.sizes());
            let sizes = pairs.map(|(wanted, size)| wanted.as_int().is_none_or(|n| n == *size as i64));
            ty.dtype == given.dtype() && ty.shape.rank() == given.sizes().len() && sizes.into_iter().all(|same| same)
        };
        if !fits(ty) {
            return Err(Error::invalid(format!("input \"{name}\" is {}, wanted {ty}", given.ty())));
        }
    }
    let known = |name: &str| program.inputs().any(|(n, _)| n.as_ref() == name);
    match inputs.keys().find(|name| !known(name)) {
        Some(unknown) => {
            let names: Vec<&str> = program.inputs().map(|(n, _)| n.as_ref()).collect();
            Err(Error::invalid(format!("no input is called \"{unknown}\"; there are: {}", names.join(", "))))
        }
        None => Ok(()),
    }
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
