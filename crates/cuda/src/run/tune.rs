//! Products measured in all ways in which they can be computed: by a library, in the ways that it has, or by kernels of our own.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use fuseline::error::{Context, Error, Result};
use fuseline::tensor::Env;
use fuseline::tile::{Kernel, Schedule};
use rustc_hash::FxHashMap;

use super::execute::{Run, Table};
use super::profile::{between, median};
use super::specialize::{LoadedGraph, Special, Step, specialize, step};
use super::value::Value;
use super::workshop::{Key, Made, key};
use crate::memory::Block;
use crate::print::{Asked, Library};

/// Measurements of a launch, each of so many in a row.
const TIMES: usize = 5;
const IN_A_ROW: usize = 4;

/// What by itself takes no more than so much of the usual time is tried in the program.
const ABOUT: f64 = 1.02;

/// Rounds in which a program and another take turns, microseconds of each in a round, and by how much the other must be faster in the middle one.
const ROUNDS: usize = 9;
const ROUND_US: f64 = 2000.0;
const CLEARLY: f64 = 0.998;

/// How a product is computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// what a library computes
    pub asked: Asked,
    /// by which of its ways, launch by launch
    pub ways: Vec<usize>,
}

/// How choices are written.
const WORDS: [(Asked, &str); 2] = [(Asked::Nothing, "own"), (Asked::Products, "library")];

impl Choice {
    /// What a kernel is made for under this choice.
    pub(super) fn applied_to(&self, mut key: Key) -> Key {
        if key.3.asked != Asked::Nothing {
            key.3.asked = self.asked;
        }
        key
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WORDS.iter().find(|(asked, _)| *asked == self.asked).map_or("", |(_, word)| word))?;
        self.ways.iter().try_for_each(|way| write!(f, " {way}"))
    }
}

impl FromStr for Choice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Choice> {
        let mut words = text.split_whitespace();
        // Plans were written in which the library was asked for products alone, too.
        let first = words.next().map(|word| if word == "library-behind" { "library" } else { word });
        let asked = WORDS.iter().find(|(_, word)| Some(*word) == first).map(|(asked, _)| *asked);
        let asked = asked.ok_or_else(|| Error::invalid(format!("\"{text}\": wanted own or library")))?;
        let way = |word: &str| word.parse().map_err(|_| Error::invalid(format!("\"{word}\" is no number of a way")));
        Ok(Choice { asked, ways: words.map(way).collect::<Result<Vec<usize>>>()? })
    }
}

/// A kernel at its sizes, as a number that is the same in every process.
pub(super) fn name(kernel: &Kernel, env: &Env) -> u64 {
    let sizes = kernel.symbols().into_iter().map(|symbol| format!("{symbol}={:?} ", env.get(&symbol)));
    let text = sizes.collect::<String>() + &kernel.to_string();
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Whether it is the first of two programs that is run in a turn.
fn is_first(turn: usize) -> bool {
    matches!(turn % 4, 0 | 3)
}

/// A product that was measured.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// the kernel of the plan
    pub kernel: usize,
    /// the kernel at its sizes, as a number
    pub name: u64,
    /// the fastest way
    pub choice: Choice,
    /// microseconds that it takes as it is computed otherwise, and by the choice
    pub us: (f64, f64),
}

impl Run<'_> {
    /// Measures the products of a graph that is nothing but launches, each distinct one once; the choices hold for programs that are made
    /// ready from here on. What is fastest by itself, one launch after another, need not be in the program, where something else lies in the caches and
    /// launches overlap: it is chosen if the whole program is faster with it, and once more.
    pub fn tune(&mut self, loaded: &LoadedGraph, inputs: &[Option<Value>]) -> Result<Option<Vec<Tuned>>> {
        self.bind(loaded, inputs)?;
        let [only] = loaded.segments.as_slice() else { return Ok(None) };
        let mut special = self.special(loaded, only)?;
        let Some(pure) = &special.pure else { return Ok(None) };
        self.write_inputs(loaded, pure, inputs)?;
        self.launch_pure(loaded, &special, pure)?;
        let tables = self.tables(loaded, &special, pure)?;
        // Tables point into the memory of the first program: it stays while others take its place.
        let first = special.clone();
        let mut known: FxHashMap<u64, ()> = FxHashMap::default();
        let mut tuned = Vec::new();
        for (k, (planned, table)) in loaded.plan.kernels.iter().zip(&tables).enumerate() {
            let (kernel, env) = (&planned.kernel, self.sizes().clone());
            let own = key(kernel, &env)?;
            if !matches!(kernel.schedule, Schedule::Contract { .. }) || own.3.asked == Asked::Nothing {
                continue;
            }
            let name = name(kernel, &env);
            if known.insert(name, ()).is_some() {
                continue;
            }
            let (usual_us, mut measured) = self.measure(k, &own, table, &env).at(|| loaded.describe(k))?;
            measured.sort_by(|a, b| a.1.total_cmp(&b.1));
            let workshop = &self.engine.workshop;
            let usual = workshop.choice(kernel, &env).unwrap_or(Choice { asked: own.3.asked, ways: Vec::new() });
            let mut best = (usual, usual_us);
            // What takes exactly as long was measured once.
            for (choice, us) in measured.into_iter().filter(|(_, us)| *us < usual_us * ABOUT && *us != usual_us) {
                workshop.choose(name, choice.clone());
                let other = Arc::new(specialize(self.engine, loaded, only, &env).at(|| loaded.describe(k))?);
                if self.is_faster(loaded, inputs, &other, &special)? {
                    (special, best) = (other, (choice, us));
                }
            }
            workshop.choose(name, best.0.clone());
            tuned.push(Tuned { kernel: k, name, choice: best.0, us: (usual_us, best.1) });
        }
        drop(first);
        Ok(Some(tuned))
    }

    /// Whether a program is clearly faster than another, twice: they take turns, so that the clock of the device is that of both.
    fn is_faster(
        &self,
        loaded: &LoadedGraph,
        inputs: &[Option<Value>],
        one: &Special,
        other: &Special,
    ) -> Result<bool> {
        let (Some(pure), Some(other_pure)) = (&one.pure, &other.pure) else { return Ok(false) };
        self.write_inputs(loaded, pure, inputs)?;
        let runs_of = |us: f64| ((ROUND_US / us.max(1.0)) as usize).max(1);
        // Recorded before they are measured.
        self.launch_pure(loaded, one, pure)?;
        let mut runs = 1;
        for _ in 0..2 {
            let begin = self.engine.gpu.mark()?;
            self.launch_pure(loaded, other, other_pure)?;
            runs = runs_of(self.engine.gpu.mark()?.since(&begin)?);
        }
        for _ in 0..2 {
            let mut marks = vec![self.engine.gpu.mark()?];
            for turn in 0..2 * ROUNDS {
                // One, the other, the other, one: none is always the first.
                let (special, pure) = if is_first(turn) { (one, pure) } else { (other, other_pure) };
                for _ in 0..runs {
                    self.launch_pure(loaded, special, pure)?;
                }
                marks.push(self.engine.gpu.mark()?);
            }
            let us = between(&marks)?;
            let ratios = us.chunks_exact(2).enumerate().map(|(round, pair)| {
                let ratio = pair[0] / pair[1];
                if is_first(2 * round) { ratio } else { ratio.recip() }
            });
            if median(ratios.collect()) > CLEARLY {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Microseconds of a kernel as it is usually made, and by the library and functions of our own as fast as can be.
    fn measure(&self, k: usize, own: &Key, table: &Table, env: &Env) -> Result<(f64, Vec<(Choice, f64)>)> {
        let (mut usual, mut measured) = (0.0, Vec::new());
        let mut known: Vec<Vec<Option<Library>>> = Vec::new();
        for asked in [own.3.asked, Asked::Nothing] {
            let choice = Choice { asked, ways: Vec::new() };
            let made = self.engine.workshop.make(&[choice.applied_to(own.clone())])?;
            let [Made::Code(compiled)] = made.as_slice() else { continue };
            // Functions differ only in who computes products.
            let by: Vec<Option<Library>> =
                compiled.printed.launches.iter().map(|launch| launch.library.clone()).collect();
            if known.contains(&by) {
                continue;
            }
            known.push(by);
            let mut step = step(compiled.clone(), env)?;
            let scratch =
                step.scratch.iter().map(|bytes| self.engine.gpu.take(*bytes)).collect::<Result<Vec<Block>>>()?;
            let table = Table { scratch: scratch.iter().map(Block::at).collect(), ..table.clone() };
            let mut total = 0.0;
            for number in 0..step.grids.len() {
                let (first, best) = self.best_way(k, &mut step, &table, number)?;
                total += best;
                usual += if asked == own.3.asked { first } else { 0.0 };
            }
            measured.push((Choice { asked, ways: step.ways }, total));
        }
        self.engine.gpu.synchronize()?;
        Ok((usual, measured))
    }

    /// Microseconds of a launch by its usual way, and by its fastest one, which the step has from here on.
    fn best_way(&self, k: usize, step: &mut Step, table: &Table, number: usize) -> Result<(f64, f64)> {
        let (launch, cublas) = (&step.compiled.printed.launches[number], &step.compiled.library);
        let (ways, usual) = match (&launch.library, cublas) {
            (Some(library), Some(cublas)) => {
                let shape = self.shape(library, 0)?;
                (cublas.ways(&shape).max(1), cublas.usual_way(&shape))
            }
            _ => (1, 0),
        };
        let (mut first, mut best) = (f64::INFINITY, (0, f64::INFINITY));
        for way in 0..ways {
            step.ways.resize(number, 0);
            step.ways.push(way);
            let mut times = Vec::with_capacity(TIMES);
            for _ in 0..TIMES {
                let begin = self.engine.gpu.mark()?;
                for _ in 0..IN_A_ROW {
                    self.launch_one(k, step, table, number)?;
                }
                times.push(self.engine.gpu.mark()?.since(&begin)? / IN_A_ROW as f64);
            }
            let us = median(times);
            first = if way == usual { us } else { first };
            if us < best.1 {
                best = (way, us);
            }
        }
        step.ways.truncate(number);
        step.ways.push(best.0);
        Ok((first, best.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_are_written() {
        for choice in [
            Choice { asked: Asked::Products, ways: vec![0, 3] },
            Choice { asked: Asked::Products, ways: Vec::new() },
            Choice { asked: Asked::Nothing, ways: vec![0] },
            Choice { asked: Asked::Nothing, ways: Vec::new() },
        ] {
            assert_eq!(choice.to_string().parse::<Choice>().expect("it was written"), choice);
        }
        let older: Choice = "library-behind 2".parse().expect("it was written once");
        assert_eq!(older, Choice { asked: Asked::Products, ways: vec![2] });
        assert!("cublas 1".parse::<Choice>().is_err());
        assert!("library x".parse::<Choice>().is_err());
    }
}
