//! The inputs of a run: those that are given, and random ones for the rest.

use std::num::NonZeroUsize;

use fuseline::error::{Allowance, Context, Error, Kind, Result};
use fuseline::tensor::{DType, Drawn, Env, Literal, Symbol};
use fuseline_frontend::Tensors;
use fuseline_frontend::onnx::import::{Form, Port};
use fuseline_session::plan::size_list;

use crate::arguments::{GivenInputs, SizeBinding};
use crate::failure::{Failure, Outcome};
use crate::given_inputs;
use crate::model::Model;
use crate::screen;
use crate::settle_sizes::settle_sizes;
use crate::waiting::Waiting;

/// What goes into a run.
#[derive(Debug)]
pub struct Feed {
    /// all inputs, in the model's order
    pub tensors: Tensors,
    /// the names of those that are random
    pub random: Vec<String>,
    /// free sizes that nobody gave, with what was taken
    pub assumed: Vec<(String, i64)>,
    /// whether the model is known to take all sizes
    pub fits: bool,
}

impl Feed {
    /// A run that failed: perhaps sizes do not fit that nobody gave, or a number that was drawn sends the model where they do not. Not
    /// where the model is wrong whatever is given to it.
    pub fn failed(&self, model: &Model, error: Error) -> Failure {
        let mut switches = self.switches();
        switches.extend(self.small_lists());
        if error.kind() != Kind::Invalid || self.assumed.is_empty() && switches.is_empty() || model.is_broken() {
            return model.failed(error);
        }
        let mut help = Vec::new();
        if !switches.is_empty() {
            help.push(format!("{} was drawn by chance; {}", switches.join(", "), Feed::how_to_give(&switches)));
        }
        if !self.assumed.is_empty() {
            let sizes = size_list(&self.assumed);
            help.push(format!("these sizes were assumed: {sizes}; give others with --sizes"));
        }
        if self.fits && switches.is_empty() {
            return Failure::with_help(error, format!("check the place named above; {}", help.join("; ")));
        }
        let why = match (switches.is_empty(), self.assumed.is_empty()) {
            (true, _) => "sizes that nobody gave do not fit together",
            (false, true) => "a number that nobody gave may decide what fits",
            (false, false) => "sizes that nobody gave do not fit together, or not with a number that nobody gave",
        };
        Failure::explained(error, why, help.join("; "))
    }

    /// Random inputs that are one whole number or one truth value each, with what was drawn: such an input mostly steers the model, as a
    /// rate of samples or a language does, and 0 or 1 is seldom what is meant.
    pub fn switches(&self) -> Vec<String> {
        let drawn = self.random.iter().filter_map(|name| {
            let tensor = self.tensors.get(name).filter(|x| x.count() == 1 && !x.dtype().is_float())?;
            Some(format!("{}={}", screen::spelt_out(name), tensor.int(0)))
        });
        drawn.collect()
    }

    /// Random inputs of few whole numbers, more than one: what sizes or places are often given by.
    fn small_lists(&self) -> Vec<String> {
        let is_list = |x: &Literal| (2..=MOST_LISTED).contains(&x.count()) && !x.dtype().is_float();
        let drawn = self.random.iter().filter_map(|name| {
            let tensor = self.tensors.get(name).filter(|x| is_list(x))?;
            let numbers: Vec<String> = (0..tensor.count()).map(|k| tensor.int(k).to_string()).collect();
            Some(format!("{}={}", screen::spelt_out(name), numbers.join(",")))
        });
        drawn.collect()
    }

    /// How inputs that steer are given.
    fn how_to_give(given: &[String]) -> String {
        let name = given.first().and_then(|first| first.rsplit_once('=')).map_or("", |(name, _)| name);
        format!("give what is meant with --input {name}=VALUE")
    }

    /// Says which numbers that may steer the model nobody gave.
    fn tell_switches(&self) {
        let switches = self.switches();
        if switches.is_empty() || switches.len() > MOST_SWITCHES {
            return;
        }
        let (list, may) = (switches.join(", "), "may decide what the model does");
        screen::tell(&format!("note: {list} was drawn by chance and {may}: {}", Feed::how_to_give(&switches)));
    }
}

/// Where there are more of them, they are data.
const MOST_SWITCHES: usize = 4;

/// Lists of more whole numbers are data.
const MOST_LISTED: usize = 8;

/// Puts the inputs together: those that are given, and random ones for the rest, where all sizes are bound that these have.
fn draw_rest(model: &Model, given: &Tensors, has_file: bool, env: &Env, seed: u64) -> Outcome<Feed> {
    let ports = &model.signature.inputs;
    let mut feed = Feed { tensors: Tensors::new(), random: Vec::new(), assumed: Vec::new(), fits: false };
    let mut dice = Dice::new(seed, model.drawn);
    for port in ports {
        if port.form != Form::Tensor {
            dice.skip();
            feed.tensors.extend(parts(port, given, has_file)?);
            continue;
        }
        let tensor = match given.get(&port.name) {
            Some(tensor) => {
                dice.skip();
                tensor.clone()
            }
            None if port.is_text => {
                let error = Error::invalid(format!("input \"{}\" is made of strings, which are not drawn", port.name));
                return Err(Failure::with_help(error, "give it with --inputs X.npz, as an array of strings"));
            }
            None => {
                let shape = port.shape.as_ref().ok_or_else(|| {
                    let error = Error::invalid(format!(
                        "input \"{}\" has no value, and the model does not even declare its number of axes",
                        port.name
                    ));
                    Failure::with_help(error, "give it with --inputs X.npz")
                })?;
                feed.random.push(port.name.clone());
                let sizes = shape.eval(env).at(|| format!("input \"{}\"", port.name))?;
                let drawn = dice.draw(port.dtype, sizes, model.is_positive(&port.name));
                drawn.at(|| format!("random input \"{}\"", port.name))?
            }
        };
        feed.tensors.insert(port.name.clone(), tensor);
    }
    for port in &model.signature.defaults {
        if let Some(tensor) = given.get(&port.name) {
            feed.tensors.insert(port.name.clone(), tensor.clone());
        }
    }
    Ok(feed)
}

/// The tensors of an input that is a sequence or may be left out. None is drawn: without a file nobody can know how many are meant.
fn parts(port: &Port, given: &Tensors, has_file: bool) -> Outcome<Tensors> {
    if port.form == Form::Sequence && !has_file {
        let error = Error::invalid(format!("input \"{}\" is a sequence, which has no random value", port.name));
        let (first, second) = (port.part_name(0), port.part_name(1));
        let help =
            format!("give its elements with --inputs X.npz, called {first}, {second} …; without any it is empty");
        return Err(Failure::with_help(error, help));
    }
    Ok(given.iter().filter(|(name, _)| port.has(name)).map(|(name, tensor)| (name.clone(), tensor.clone())).collect())
}

/// The inputs: those that are given, and random ones of [usual sizes](Model::typical_sizes) for the rest; with a word about what nobody gave and
/// decides perhaps, and about the time it takes.
pub fn assemble(model: &Model, inputs: &GivenInputs, sizes: &[SizeBinding], seed: u64) -> Outcome<Feed> {
    let mut env = model.bind_sizes(sizes)?;
    let mut given = given_inputs::read(model, inputs, &mut env)?;
    let mut assumed = model.typical_sizes(&env);
    for (name, size) in &assumed {
        env.bind(Symbol::name(name), *size);
    }
    let fits = settle_sizes(model, &mut env, &mut assumed);
    let waiting = Waiting::for_(&format!("drawing inputs of {}", model.name));
    given_inputs::fill(model, inputs, &env, &mut given)?;
    let feed = draw_rest(model, &given, inputs.file.is_some(), &env, seed)?;
    drop(waiting);
    feed.tell_switches();
    Ok(Feed { assumed, fits, ..feed })
}

/// Random tensors, one after another: the same for the same seed and the same place in the row, wherever they are made.
#[derive(Debug)]
pub struct Dice {
    seed: u64,
    stream: u64,
    /// bytes that may be made in all, and still
    limit: u64,
    budget: u64,
}

impl Dice {
    /// The row of tensors of a seed.
    pub fn new(seed: u64, limit: u64) -> Dice {
        Dice { seed, stream: 0, limit, budget: limit }
    }

    /// Leaves a tensor out.
    pub fn skip(&mut self) {
        self.stream += 1;
    }

    /// The next tensor, of magnitudes only if it is to be positive.
    pub fn draw(&mut self, dtype: DType, sizes: Vec<usize>, positive: bool) -> Result<Literal> {
        let (seed, stream) = (self.seed, self.stream);
        self.skip();
        let count: usize = sizes.iter().product();
        let wanted = dtype.bytes(count).map_or(u64::MAX, |bytes| bytes as u64);
        self.budget = self.budget.checked_sub(wanted).ok_or_else(|| {
            let limit = self.limit;
            Error::over(
                Allowance::Memory,
                format!("{wanted} bytes of random numbers (for all inputs the limit is {limit} bytes)"),
            )
        })?;
        Literal::new(dtype, sizes, written(Drawn { seed, stream, positive }, dtype, count)?)
    }
}

/// So many elements, written in parts by as many threads as there are processors.
fn written(drawn: Drawn, dtype: DType, count: usize) -> Result<Vec<u8>> {
    // A thread takes longer than a few numbers, and a model may have very many inputs. Elements of any type begin a byte there.
    const LEAST: usize = 1 << 16;
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let part = count.div_ceil(threads).next_multiple_of(LEAST);
    let size = dtype.bytes(count).expect("a count that was looked at");
    // A probe: zeros come without being written, but a machine that has no such memory would end the program.
    Vec::<u8>::new().try_reserve_exact(size).map_err(|_| Error::no_memory(size))?;
    let mut bytes = vec![0; size];
    let parts = bytes.chunks_mut((part * dtype.bits() / 8).max(1)).enumerate();
    let write = |(k, bytes): (usize, &mut [u8])| drawn.write(dtype, k * part, part.min(count - k * part), bytes);
    if count <= LEAST {
        parts.for_each(write);
        return Ok(bytes);
    }
    std::thread::scope(|scope| parts.for_each(|part| drop(scope.spawn(move || write(part)))));
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_tensors_repeat_and_have_their_distribution() {
        let draw = |dtype, seed| Dice::new(seed, 1 << 30).draw(dtype, vec![10_000], false).unwrap();
        assert_eq!(draw(DType::F32, 1), draw(DType::F32, 1));
        assert_ne!(draw(DType::F32, 1), draw(DType::F32, 2));
        let values = draw(DType::F64, 1).to_f64s();
        let mean = values.iter().sum::<f64>() / 10_000.0;
        let variance = values.iter().map(|x| x * x).sum::<f64>() / 10_000.0;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        // By several threads or by one: the same.
        for dtype in [DType::F64, DType::F16, DType::I4] {
            let long = Dice::new(1, 1 << 30).draw(dtype, vec![150_001], false).unwrap();
            let mut alone = vec![0; dtype.bytes(150_001).unwrap()];
            Drawn { seed: 1, stream: 0, positive: false }.write(dtype, 0, 150_001, &mut alone);
            assert!(long.bytes() == alone, "{dtype}");
        }
        let bytes = draw(DType::I8, 1).to_ints();
        assert_eq!((bytes.iter().min(), bytes.iter().max()), (Some(&-128), Some(&127)));
        assert!(draw(DType::I64, 1).to_ints().iter().all(|n| [0, 1].contains(n)));
        let mut dice = Dice::new(1, 1 << 30);
        let magnitudes = dice.draw(DType::F64, vec![10_000], true).unwrap();
        assert!(magnitudes.to_f64s().iter().all(|x| *x > 0.0));
        // The second of a row, also where the first was left out.
        let second = dice.draw(DType::F32, vec![10], false).unwrap();
        let mut other = Dice::new(1, 1 << 30);
        other.skip();
        assert_eq!(other.draw(DType::F32, vec![10], false).unwrap(), second);
        assert!(dice.draw(DType::F32, vec![1 << 30, 2], false).is_err());
    }
}
