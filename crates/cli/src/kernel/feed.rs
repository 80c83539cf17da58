//! The inputs of a kernel: from a file, and random where the file has none.

use std::path::Path;

use fuseline::error::Error;
use fuseline::reference::Limits;
use fuseline::tensor::{Env, Literal, Symbol, TensorType};
use fuseline::tile::Kernel;
use fuseline_frontend::Tensors;

use super::Written;
use crate::arguments::SizeBinding;
use crate::failure::{Failure, Outcome};
use crate::feed::Dice;
use crate::given_inputs::{as_type, read_arrays};
use crate::given_sizes;
use crate::waiting::Waiting;

/// What a free size is taken as where a kernel is run or shown.
pub const USUAL_SIZE: i64 = 128;

/// The least that a free size is taken as.
const LEAST_SIZE: i64 = 16;

/// What goes into a run of a kernel.
pub struct Feed {
    pub tensors: Vec<Literal>,
    /// the names of those that are random
    pub random: Vec<String>,
    /// free sizes that nobody gave, with what was taken
    pub assumed: Vec<(String, i64)>,
    /// all sizes
    pub env: Env,
}

/// The sizes that the user gives; each must be one that the kernel leaves free.
pub fn bind_sizes(kernel: &Kernel, given: &[SizeBinding]) -> Outcome<Env> {
    let free: Vec<String> = kernel.symbols().iter().map(ToString::to_string).collect();
    let named = given_sizes::named(given, &free, "kernel").and_then(given_sizes::once)?;
    Ok(named.into_iter().map(|(name, size)| (Symbol::name(&name), size)).collect())
}

/// Numbers for all sizes that have none, and which these are.
pub fn assume_sizes(kernel: &Kernel, mut env: Env, usual: i64) -> (Env, Vec<(String, i64)>) {
    let free: Vec<Symbol> = kernel.symbols().into_iter().filter(|symbol| env.get(symbol).is_none()).collect();
    for symbol in &free {
        env.bind(symbol.clone(), usual);
    }
    (env, free.iter().map(|symbol| (symbol.to_string(), usual)).collect())
}

/// At how many points steps of a kernel are computed at the most where nobody says for which sizes: what runs a few seconds on a processor.
const MOST_POINTS: f64 = 4e9;

/// At how many points the steps of a kernel are computed.
fn points(kernel: &Kernel, env: &Env) -> f64 {
    let extent = |axis: usize| kernel.axes[axis].eval(env).map_or(1.0, |size| size as f64);
    kernel.steps.iter().map(|step| step.axes.union(step.op.folds()).iter().map(extent).product::<f64>()).sum()
}

/// What free sizes are taken as where nobody asks for more than there is room and time for: halved until it fits.
fn usual_with_room(kernel: &Kernel, env: &Env, usual: i64) -> i64 {
    let fits = |usual: i64| {
        let (env, assumed) = assume_sizes(kernel, env.clone(), usual);
        check_room(kernel, &env).is_ok() && (assumed.is_empty() || points(kernel, &env) <= MOST_POINTS)
    };
    let halves = std::iter::successors(Some(usual), |usual| (*usual > LEAST_SIZE).then_some(usual / 2));
    halves.clone().find(|usual| fits(*usual)).or_else(|| halves.last()).unwrap_or(usual)
}

/// Puts the inputs of a kernel together.
pub fn assemble(written: &Written, file: Option<&Path>, sizes: &[SizeBinding], usual: i64, seed: u64) -> Outcome<Feed> {
    let (source, kernel) = (&written.source, &written.source.kernel);
    let mut env = bind_sizes(kernel, sizes)?;
    let given = match file {
        Some(path) => read(written, path, &mut env)?,
        None => Tensors::new(),
    };
    let usual = usual_with_room(kernel, &env, usual);
    let (env, assumed) = assume_sizes(kernel, env, usual);
    let mut feed = Feed { tensors: Vec::new(), random: Vec::new(), assumed, env };
    check_room(kernel, &feed.env)?;
    let _waiting = Waiting::for_(&format!("drawing inputs of {}", written.name()));
    let mut dice = Dice::new(seed, Limits::default().bytes);
    for (name, param) in source.inputs.iter().zip(&kernel.inputs) {
        let place = |error: Error| Failure::from(error.at(format!("input \"{name}\"")));
        let wanted = param.ty.shape.eval(&feed.env).map_err(place)?;
        let tensor = match given.get(name) {
            Some(tensor) if tensor.sizes() != wanted => {
                let error =
                    Error::invalid(format!("{} where {} with sizes {wanted:?} is wanted", tensor.ty(), param.ty));
                return Err(place(error));
            }
            Some(tensor) => {
                dice.skip();
                tensor.clone()
            }
            None => {
                feed.random.push(name.clone());
                dice.draw(param.ty.dtype, wanted, false).map_err(place)?
            }
        };
        feed.tensors.push(tensor);
    }
    Ok(feed)
}

/// Refuses sizes whose tensors, with the interpreter's own of 8 bytes an element, take more than runs may.
fn check_room(kernel: &Kernel, env: &Env) -> Outcome {
    let most = Limits::default().bytes;
    let mut bytes = 0u64;
    for param in kernel.inputs.iter().chain(&kernel.outputs) {
        let count = param.ty.shape.eval(env)?.into_iter().fold(1u64, |count, size| count.saturating_mul(size as u64));
        bytes = bytes.saturating_add(count.saturating_mul(8 + param.ty.dtype.bits().div_ceil(8) as u64));
    }
    if bytes <= most {
        return Ok(());
    }
    let error =
        Error::limit(format!("its tensors take {bytes} bytes with those of the interpreter; the limit is {most}"));
    Err(Failure::with_help(error, "give smaller sizes with --sizes"))
}

/// Reads inputs from a file; each must be one of the kernel's, and fit. Free sizes take the values they meet.
fn read(written: &Written, path: &Path, env: &mut Env) -> Outcome<Tensors> {
    let (names, params) = (&written.source.inputs, &written.source.kernel.inputs);
    let find = |name: &str| names.iter().position(|other| other == name).map(|k| &params[k].ty);
    let expected = |name: &str| find(name).map(|ty| ty.dtype);
    let fit = |name: &str, found: Option<&TensorType>| {
        let place = |error: Error| error.at(format!("input \"{name}\"")).at(path.display().to_string());
        let Some(ty) = find(name) else {
            let error = place(Error::invalid(format!("the kernel has no input called \"{name}\"")));
            return Err(Failure::with_help(error, format!("its inputs are {}", names.join(", "))));
        };
        let Some(found) = found else { return Ok(()) };
        if found.dtype != ty.dtype || found.shape.rank() != ty.shape.rank() {
            let error = place(Error::invalid(format!("{found} where {ty} is wanted")));
            return Err(match found.dtype == ty.dtype {
                true => Failure::with_help(error, format!("give an array of {} axes", ty.shape.rank())),
                false => Failure::with_help(error, as_type(ty.dtype)),
            });
        }
        Ok(())
    };
    let given = read_arrays(path, Limits::default().bytes, &expected, &mut |name, found| fit(name, found))?;
    for (name, tensor) in &given {
        fit(name, Some(&tensor.ty()))?;
        let ty = find(name).expect("it fits");
        let place = |error: Error| error.at(format!("input \"{name}\"")).at(path.display().to_string());
        ty.bind(tensor.dtype(), tensor.sizes(), env).map_err(place)?;
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use fuseline::tile;

    use super::*;

    #[test]
    fn sizes_that_nobody_gives_fit_into_memory() {
        let kernel = |text: &str| tile::read(text).unwrap().kernel;
        let cube = kernel("kernel cube(x: f32[a, b, c]) -> y: f32[a, b, c] { y = x * 2.0 }");
        assert_eq!(usual_with_room(&cube, &Env::new(), 1024), 512);
        let line = kernel("kernel line(x: f32[a]) -> y: f32[a] { y = x * 2.0 }");
        assert_eq!(usual_with_room(&line, &Env::new(), 1024), 1024);
        // Nor do they ask for hours: three axes of products are n³, four n⁴.
        let heads = "kernel att(q: f32[h, n, d], k: f32[h, m, d]) -> y: f32[h, n, m] { y = dot[d](q, k) }";
        assert_eq!(usual_with_room(&kernel(heads), &Env::new(), 1024), 128);
        // What was asked for is refused as it is.
        let env = [(Symbol::name("a"), 1 << 40)].into_iter().collect();
        assert_eq!(usual_with_room(&cube, &env, 1024), LEAST_SIZE);
    }
}
