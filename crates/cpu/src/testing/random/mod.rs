//! Random vector programs: every operation, type, element type, mask, loop and call, on memory that they stay within.
//!
//! They are made so that every right way to run them gives the same bytes. NaN has no certain bits, so that bits of floats are
//! looked at only after NaN has been replaced; addresses never become data; indices are brought into range.

mod memory;
mod value;

use fuseline::philox;

use super::case::{Case, Contents};
use crate::vector::{Bound, Builder, Loop, Routine, Ty, Value};

/// What a random program is like.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// numbers in a vector
    pub lanes: u32,
    /// bytes of the widest vector: whether there are vectors of 64-bit numbers
    pub vector_bytes: usize,
    /// how many statements are drawn, about
    pub size: usize,
}

/// The program that belongs to a seed.
pub fn case(seed: u64, options: Options) -> Case {
    let mut generator = Generator::new(seed, options);
    generator.program();
    Case { program: generator.b.finish(), buffers: generator.buffers, tasks: generator.tasks }
}

/// The routines that random programs call.
pub const ROUTINES: [Routine; 2] = [Routine { call: mix, name: "mix" }, Routine { call: wave, name: "wave" }];

/// Any bits, from all bits of all arguments.
fn mix(args: &[u64]) -> u64 {
    args.iter().fold(args.len() as u64, |hash, arg| {
        (hash.rotate_left(23) ^ arg).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
    })
}

/// A float that hangs on all arguments; for vectors of f32, and full of floating-point arithmetic.
fn wave(args: &[u64]) -> u64 {
    let sum = args.iter().fold(0.5, |sum: f64, arg| (sum + f64::from(*arg as u32 >> 8) * 1e-4).sin());
    u64::from((sum as f32 * 100.0).to_bits())
}

/// A program that is being drawn.
struct Generator {
    b: Builder,
    seed: u64,
    drawn: u64,
    options: Options,
    buffers: Vec<Contents>,
    tasks: i64,
    /// the task, in which every buffer has a row of its own
    task: Value,
    /// values that may be used here, the latest last
    pool: Vec<Value>,
    /// memory that is only read
    inputs: Vec<memory::Rows>,
    /// memory that is both read and written
    scratch: Vec<memory::Rows>,
    /// how many checks there are
    sites: u32,
}

impl Generator {
    fn new(seed: u64, options: Options) -> Generator {
        let mut b = Builder::new(options.lanes);
        let task = b.number(0);
        let (buffers, pool, inputs, scratch) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut generator =
            Generator { b, seed, drawn: 0, options, buffers, tasks: 0, task, pool, inputs, scratch, sites: 0 };
        generator.tasks = 1 + generator.below(4) as i64;
        generator
    }

    fn program(&mut self) {
        self.task = self.b.begin_tasks();
        self.pool.push(self.task);
        self.block(self.options.size, 0);
        for _ in 0..1 + self.options.size / 4 {
            self.store();
        }
        self.b.end_loop(&[]);
    }

    /// Statements in `depth` loops.
    fn block(&mut self, size: usize, depth: usize) {
        let mut left = size;
        while left > 0 {
            left -= 1;
            match self.below(16) {
                0 if depth < 3 && left > 2 => {
                    let inside = 1 + self.below(left.min(20));
                    left -= inside.min(left);
                    self.counted(inside, depth);
                }
                0..=2 => self.store(),
                3 => self.scratch(),
                _ => {
                    let ty = self.any_ty();
                    let value = self.compute(ty);
                    self.pool.push(value);
                }
            }
        }
    }

    fn counted(&mut self, size: usize, depth: usize) {
        let from = if self.chance(2) { Bound::Number(self.below(5) as i64 - 2) } else { Bound::Value(self.index(4)) };
        let to = if self.chance(2) { Bound::Number(self.below(7) as i64) } else { Bound::Value(self.index(7)) };
        let step = if self.chance(4) { Loop::ONCE } else { 1 + self.below(3) as i64 };
        // Seldom more than any processor has registers.
        let most = if self.chance(6) { 40 } else { 5 };
        let inits: Vec<Value> = (0..self.below(most))
            .map(|_| {
                let ty = self.any_ty();
                self.pick(ty)
            })
            .collect();
        let outside = self.pool.len();
        let (var, params) = self.b.begin_loop(from, to, step, &inits);
        self.pool.push(var);
        self.pool.extend(&params);
        self.block(size, depth + 1);
        let nexts: Vec<Value> = params
            .iter()
            .map(|param| {
                let ty = self.b.ty(*param);
                match self.below(4) {
                    0 => {
                        let alike = params.iter().copied().filter(|other| self.b.ty(*other) == ty);
                        self.one_of(&alike.collect::<Vec<_>>())
                    }
                    1 if ty.is_vector() => self.accumulated(*param),
                    _ => self.pick(ty),
                }
            })
            .collect();
        let results = self.b.end_loop(&nexts);
        self.pool.truncate(outside);
        self.pool.extend(results);
    }

    /// A number below n.
    fn below(&mut self, n: usize) -> usize {
        (self.word() as usize) % n
    }

    /// True once in n times.
    fn chance(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    fn word(&mut self) -> u32 {
        self.drawn += 1;
        philox::word(self.seed, 0, self.drawn)
    }

    fn bits(&mut self) -> u64 {
        u64::from(self.word()) << 32 | u64::from(self.word())
    }

    /// Whether there are vectors of 64-bit numbers.
    fn wide(&self) -> bool {
        self.options.lanes as usize * 8 <= self.options.vector_bytes
    }

    fn any_ty(&mut self) -> Ty {
        let tys: &[Ty] = if self.wide() {
            &[Ty::Int, Ty::Mask, Ty::F32, Ty::F32, Ty::F32, Ty::I32, Ty::F64, Ty::F64, Ty::I64]
        } else {
            &[Ty::Int, Ty::Mask, Ty::F32, Ty::F32, Ty::F32, Ty::I32, Ty::I32]
        };
        self.one_of(tys)
    }

    /// A value of this type: often a late one, sometimes a new one.
    fn pick(&mut self, ty: Ty) -> Value {
        let alike: Vec<Value> = self.pool.iter().copied().filter(|value| self.b.ty(*value) == ty).collect();
        if alike.is_empty() || self.chance(8) {
            let value = self.leaf(ty);
            self.pool.push(value);
            return value;
        }
        let from = if self.chance(3) { 0 } else { alike.len().saturating_sub(4) };
        let late = &alike[from..];
        late[self.below(late.len())]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::Side;
    use super::*;
    use crate::vector::{Node, parse, verify};

    const SHAPES: [(u32, usize); 5] = [(16, 64), (8, 64), (4, 64), (8, 32), (4, 32)];

    fn cases(seeds: std::ops::Range<u64>) -> impl Iterator<Item = (u64, Case)> {
        seeds.map(|seed| {
            let (lanes, vector_bytes) = SHAPES[seed as usize % SHAPES.len()];
            (seed, case(seed, Options { lanes, vector_bytes, size: 10 + (seed as usize % 7) * 20 }))
        })
    }

    #[test]
    fn are_valid_and_read_as_printed() {
        for (seed, case) in cases(0..150) {
            verify(&case.program).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", case.program));
            let again = parse(&case.program.to_string(), &ROUTINES).unwrap();
            assert_eq!(again, case.program, "seed {seed}");
        }
    }

    /// Whichever end of memory is guarded, and in whatever order the tasks run.
    #[test]
    fn stay_within_memory_and_give_one_result() {
        let mut written = 0;
        for (seed, case) in cases(0..150) {
            let forwards = case.expected(Side::Begin, &case.whole());
            let one_by_one: Vec<_> = (0..case.tasks).rev().map(|task| task..task + 1).collect();
            let mut backwards = case.expected(Side::End, &one_by_one);
            if case.tasks > 1 {
                assert_eq!(forwards.fault.site == 0, backwards.fault.site == 0, "seed {seed}");
                backwards.fault = forwards.fault;
            }
            assert_eq!(case.difference(&forwards, &backwards), None, "seed {seed}\n{}", case.program);
            written += case.buffers.iter().zip(&forwards.buffers).filter(|(a, b)| a.bytes != **b).count();
        }
        assert!(written > 500, "{written} buffers have changed");
    }

    #[test]
    fn have_every_operation() {
        fn words(nodes: &[Node], found: &mut BTreeSet<String>) {
            for node in nodes {
                let text = match node {
                    Node::Let(_, op) => op.to_string(),
                    Node::Do(effect) => effect.to_string(),
                    Node::Loop(inner) => {
                        words(&inner.body, found);
                        continue;
                    }
                };
                found.insert(text.split([' ', '(']).next().unwrap().to_owned());
            }
        }
        let mut found = BTreeSet::new();
        for (_, case) in cases(0..150) {
            words(&case.program.body, &mut found);
        }
        // Functions alone, their folds and comparisons are told apart by the word before the point.
        let listed = "begin buffer call check_int check_lanes choose compare.unordered const convert.float_unsigned \
                      convert.low convert.truncate end first fma.neg_sub fold.min fold.scale gather int.floor_mod \
                      int.shr lane0 lanes load load_splat mul_even mul_high number numbers pick prefetch read_int round_bf16 scale scatter \
                      select shr_signed splat store store_lane store_streaming swap trunc";
        for word in listed.split_whitespace() {
            assert!(found.contains(word), "no program has {word}");
        }
    }

    #[test]
    fn become_small() {
        let (_, case) = cases(11..12).next().unwrap();
        let small = case.reduce(|case| case.program.to_string().contains("store_lane"));
        let effects = small.program.body.iter().filter(|node| !matches!(node, Node::Let(..))).count();
        assert!(case.program.to_string().contains("store_lane") && effects == 1, "{}", small.program);
        assert!(small.program.to_string().lines().count() < 20, "{}", small.program);
    }
}
