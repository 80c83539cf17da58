//! Kernels made ready for a GPU, each once.
//!
//! Comes in: a kernel and numbers for its sizes. Goes out: functions that can be launched, or why there are none. Equal kernels that are made
//! for equal sizes share what is made; sizes that are arguments make no difference.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuseline::error::{Context, Error, Kind, Result};
use fuseline::tensor::{DType, Env, Symbol};
use fuseline::tile::{AxisSet, Kernel, Op, Schedule, StepId};
use rustc_hash::FxHashMap;

use super::tune::{self, Choice};
use crate::cache::Cache;
use crate::cublas::Cublas;
use crate::gpu::{Function, Gpu, Module};
use crate::nvrtc::Compiler;
use crate::print::{Asked, Options, Printed, is_wide, print, sizes_about, sizes_to_fix_at};

/// A kernel that can be launched.
#[derive(Debug)]
pub(super) struct Compiled {
    pub printed: Printed,
    /// for every launch, its function
    pub functions: Vec<Function>,
    /// whether sizes have 64 bits
    pub wide: bool,
    /// what computes the products that a library can compute
    pub library: Option<Arc<Cublas>>,
}

/// What became of a kernel.
#[derive(Clone, Debug)]
pub(super) enum Made {
    Code(Arc<Compiled>),
    /// there is no code, and this is why: the interpreter of kernels runs it
    Refused(Arc<str>),
}

/// A kernel, the sizes that it is made for, and what else it is made for.
pub(super) type Key = (Arc<Kernel>, Vec<(Symbol, i64)>, About, Traits);

/// What else a kernel is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Traits {
    /// whether indices are wide
    wide: bool,
    /// what a library is asked for of it: nothing, where it is small
    pub asked: Asked,
}

/// About how large sizes are that are arguments, in order.
type About = Vec<(Symbol, i64)>;

/// Where kernels are made.
#[derive(Debug)]
pub(super) struct Workshop {
    gpu: Arc<Gpu>,
    compiler: Arc<Compiler>,
    cache: Option<Cache>,
    library: Option<Arc<Cublas>>,
    known: Mutex<FxHashMap<Key, Made>>,
    /// how products are computed that were measured
    choices: Mutex<FxHashMap<u64, Choice>>,
    /// what the compiler was used for, and how long
    spent: Mutex<(usize, Duration)>,
}

impl Workshop {
    pub fn new(gpu: Arc<Gpu>, compiler: Arc<Compiler>, cache: Option<Cache>, library: Option<Arc<Cublas>>) -> Workshop {
        Workshop {
            gpu,
            compiler,
            cache,
            library,
            known: Mutex::default(),
            choices: Mutex::default(),
            spent: Mutex::default(),
        }
    }

    /// How many texts were compiled, and how long that took.
    pub fn spent(&self) -> (usize, Duration) {
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on, a kernel is made like this. Programs that are ready stay what they are.
    pub fn choose(&self, name: u64, choice: Choice) {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner).insert(name, choice);
    }

    /// How a kernel is made at some sizes, if that was chosen.
    pub fn choice(&self, kernel: &Kernel, env: &Env) -> Option<Choice> {
        let choices = self.choices.lock().unwrap_or_else(PoisonError::into_inner);
        if choices.is_empty() { None } else { choices.get(&tune::name(kernel, env)).cloned() }
    }

    /// Makes kernels, those that are not there at once on all processors.
    pub fn make(&self, kernels: &[Key]) -> Result<Vec<Made>> {
        let missing: BTreeSet<usize> = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let is_first = |k: &usize| kernels.iter().position(|key| *key == kernels[*k]) == Some(*k);
            (0..kernels.len()).filter(|k| !known.contains_key(&kernels[*k])).filter(is_first).collect()
        };
        let missing: Vec<usize> = missing.into_iter().collect();
        let (next, begin) = (AtomicUsize::new(0), Instant::now());
        let (results, compiled) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(missing.len());
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some(k) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let made = self.compile(&kernels[*k], &compiled);
                        results.lock().unwrap_or_else(PoisonError::into_inner).push((*k, made));
                    }
                });
            }
        });
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        {
            let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
            spent.0 += compiled.into_inner();
            spent.1 += begin.elapsed();
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for (k, made) in results {
            let made = match made {
                Ok((printed, cubin)) => Made::Code(Arc::new(self.load(printed, &cubin, kernels[k].3.wide)?)),
                Err(error) if error.kind() == Kind::Unsupported => Made::Refused(error.message().into()),
                Err(error) => return Err(error),
            };
            known.insert(kernels[k].clone(), made);
        }
        let made = kernels.iter().map(|key| known.get(key).cloned().ok_or_else(|| Error::bug("a kernel was not made")));
        made.collect()
    }

    /// How a kernel is printed.
    pub fn options(&self, (kernel, sizes, about, traits): &Key) -> Options {
        Options {
            name: kernel.schedule.name().to_owned(),
            fixed: sizes.iter().cloned().collect(),
            wide: traits.wide,
            groups: self.gpu.description.capability.0 == 9,
            asked: if self.library.is_some() { traits.asked } else { Asked::Nothing },
            processors: self.gpu.description.cores.into(),
            about: about.iter().cloned().collect(),
        }
    }

    /// The text of a kernel, and its machine code.
    fn compile(&self, key: &Key, compiled: &AtomicUsize) -> Result<(Printed, Vec<u8>)> {
        let options = self.options(key);
        let printed = print(&key.0, &options)?;
        let (source, architecture) = (printed.source(), self.gpu.description.architecture());
        let (major, minor) = self.compiler.version();
        let made_from = format!(
            "fuseline {}, NVRTC {major}.{minor}, {architecture}, strict {}\n{source}",
            env!("CARGO_PKG_VERSION"),
            printed.is_strict
        );
        if let Some(cubin) = self.cache.as_ref().and_then(|cache| cache.get(&made_from)) {
            return Ok((printed, cubin));
        }
        compiled.fetch_add(1, Ordering::Relaxed);
        let cubin = self.compiler.compile(&source, &options.name, &architecture, printed.is_strict)?.bytes;
        if let Some(cache) = &self.cache {
            // A cache that cannot be written is as good as none.
            let _ = cache.put(&made_from, &cubin);
        }
        Ok((printed, cubin))
    }

    fn load(&self, printed: Printed, cubin: &[u8], wide: bool) -> Result<Compiled> {
        let module: Arc<Module> = Arc::new(self.gpu.load(cubin)?);
        let functions = printed.launches.iter().map(|launch| module.function(&launch.name, launch.shared));
        let functions = functions.collect::<Result<Vec<Function>>>().at(|| "a kernel that was compiled")?;
        Ok(Compiled { printed, functions, wide, library: self.library.clone() })
    }
}

/// What a library is asked for: products that are large enough.
fn asked(kernel: &Kernel, env: &Env) -> Result<Asked> {
    let Schedule::Contract { dots, rows, columns, sum, .. } = &kernel.schedule else { return Ok(Asked::Nothing) };
    let count = |axes: &AxisSet| -> Result<i64> {
        let extents = axes.iter().map(|axis| kernel.axes[axis].eval(env));
        extents.collect::<Result<Vec<i64>>>().map(|extents| extents.into_iter().fold(1, i64::saturating_mul))
    };
    let (rows, columns, steps) = (count(rows)?, count(columns)?, count(sum)?);
    let (are_f32, is_one) = (dots.iter().all(|dot| has_f32_factors(kernel, *dot)), dots.len() == 1);
    // Several products of few rows are one launch of ours, and each has columns of its own.
    let side = if is_one && are_f32 { LEAST_SIDE_OF_F32 } else { LARGE_SIDE };
    let are_weights_many = is_one && rows >= FEWEST_ROWS && columns.saturating_mul(steps) >= MANY_WEIGHTS;
    let is_large = (rows >= side || are_weights_many) && columns >= side && steps >= side;
    Ok(if is_large { Asked::Products } else { Asked::Nothing })
}

/// Whether a product is of tensors of f32 as they lie.
fn has_f32_factors(kernel: &Kernel, dot: StepId) -> bool {
    let is_f32 = |factor: &StepId| match &kernel.step(*factor).op {
        Op::Load { input, .. } => kernel.inputs[*input].ty.dtype == DType::F32,
        _ => false,
    };
    kernel.step(dot).op.operands().iter().all(is_f32)
}

/// Products of fewer rows, columns or steps are not asked of a library; of fewer rows only where what they are multiplied with is so much that
/// reading it takes the time.
const LARGE_SIDE: i64 = 512;
const FEWEST_ROWS: i64 = 64;
const MANY_WEIGHTS: i64 = 1 << 24;

/// The same for f32, which no units for matrices multiply: a library's threads do so faster than ours.
const LEAST_SIDE_OF_F32: i64 = 64;

/// What a kernel is made for under a binding of all its sizes.
pub(super) fn key(kernel: &Arc<Kernel>, env: &Env) -> Result<Key> {
    let number = |symbol: &Symbol| env.get(symbol).ok_or_else(|| Error::bug(format!("the size {symbol} is not known")));
    let mut sizes = Vec::new();
    for symbol in sizes_to_fix_at(kernel, env) {
        let size = number(&symbol)?;
        sizes.push((symbol, size));
    }
    let wide = is_wide(kernel, env)?;
    let about = sizes_about(kernel, env);
    let about = kernel.symbols().into_iter().filter_map(|symbol| about.get(&symbol).map(|size| (symbol, size)));
    Ok((kernel.clone(), sizes, about.collect(), Traits { wide, asked: asked(kernel, env)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_asked_for_large_products_and_for_many_weights() {
        let asked_of = |dtype: &str, rows: i64, columns: i64, steps: i64| {
            let text = format!(
                "kernel {{ axes i0: {rows}, i1: {columns}, i2: {steps} in x: {dtype}[{rows}, {steps}], w: {dtype}[{steps}, {columns}] \
                 out y: {dtype}[{rows}, {columns}] schedule contract dots=(%2) rows=[i0] columns=[i1] sum=[i2] tile=64x64x64 \
                 %0 = load x[i0, i2] %1 = load w[i2, i1] %2 = dot(%0, %1) over [i2] acc=f32 store y[i0, i1] = %2 }}"
            );
            asked(&fuseline::tile::parse(&text).unwrap(), &Env::new()).unwrap()
        };
        assert_eq!([asked_of("bf16", 512, 512, 512), asked_of("bf16", 128, 4096, 4096)], [Asked::Products; 2]);
        assert_eq!([asked_of("bf16", 511, 768, 768), asked_of("bf16", 32, 4096, 4096)], [Asked::Nothing; 2]);
        // Threads multiply f32, those of the library faster.
        assert_eq!([asked_of("f32", 128, 768, 768), asked_of("f32", 64, 64, 64)], [Asked::Products; 2]);
        assert_eq!([asked_of("f32", 63, 768, 768), asked_of("f32", 128, 32, 4096)], [Asked::Nothing; 2]);
        // Queries, keys and values: three products of one tensor, whose columns are three axes.
        let three = "kernel { axes i0: 128, i1: 768, i2: 768, i3: 768, i4: 768 \
            in x: bf16[128, 768], q: bf16[768, 768], k: bf16[768, 768], v: bf16[768, 768] \
            out y0: bf16[128, 768], y1: bf16[128, 768], y2: bf16[128, 768] \
            schedule contract dots=(%4, %5, %6) rows=[i0] columns=[i1, i2, i3] sum=[i4] tile=64x64x64 \
            %0 = load x[i0, i4] %1 = load q[i4, i1] %2 = load k[i4, i2] %3 = load v[i4, i3] \
            %4 = dot(%0, %1) over [i4] acc=f32 %5 = dot(%0, %2) over [i4] acc=f32 %6 = dot(%0, %3) over [i4] acc=f32 \
            store y0[i0, i1] = %4 store y1[i0, i2] = %5 store y2[i0, i3] = %6 }";
        assert_eq!(asked(&fuseline::tile::parse(three).unwrap(), &Env::new()).unwrap(), Asked::Nothing);
    }

    #[test]
    fn indices_are_wide_where_elements_or_terms_are_many() {
        let text = "
kernel {
  axes i0: r, i1: n, i2: m
  in   x0: f32[r, n], x1: f32[m]
  out  y0: f32[r]
  schedule row along=[i1, i2] placement=registers
  %0 = load x0[i0, i1]
  %1 = load x1[i2]
  %2 = map(%0, %1) max(a, b)
  %3 = reduce.sum %2 over [i1, i2]
  store y0[i0] = %3
}
";
        let kernel = fuseline::tile::parse(text).unwrap();
        let wide_at = |sizes: [i64; 3]| {
            let env: Env = ["r", "n", "m"].iter().zip(sizes).map(|(name, size)| (Symbol::name(name), size)).collect();
            is_wide(&kernel, &env).unwrap()
        };
        assert!(!wide_at([64, 1000, 1000]) && !wide_at([0, 1000, 1000]));
        // Few elements, and pairs of them in great number.
        assert!(wide_at([1, 65_536, 65_536]) && wide_at([0, 65_536, 65_536]));
        assert!(wide_at([1 << 20, 1 << 11, 1]) && wide_at([1, 1, i64::from(i32::MAX) - 100]));
    }
}
