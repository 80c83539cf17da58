//! Launches: clusters one after another, the threads of each in turns, every one as far as it comes without another one.

use std::fmt::Write as _;

use crate::instruction::{Action, Instruction};
use crate::memory::{Copy, Memory, Shared};
use crate::parse::Function;
use crate::step::{read, step};
use crate::warp::{LANES, together};

/// Which threads go first: what hangs on that lacks a meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Forward,
    Backward,
}

/// A launch of a function.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'f> {
    pub function: &'f Function,
    pub blocks: u32,
    pub threads: u32,
    /// bytes of shared memory beyond what the function declares
    pub shared: u32,
    pub order: Order,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Runs,
    /// for the other lanes of its warp
    Lanes,
    /// for so many threads of its block, where those of a number meet
    Block {
        number: u64,
        count: u64,
    },
    Cluster,
    Bytes,
    Done,
}

/// A thread of a cluster.
#[derive(Debug)]
pub struct Thread {
    pub registers: Vec<u64>,
    /// the instruction that comes next
    pub place: usize,
    pub state: State,
    /// the block of its cluster, and all else that it knows of itself
    pub block: usize,
    pub specials: [u64; 7],
    /// groups of copies that it has asked for, the last one of which is open
    pub copies: Vec<Vec<Copy>>,
    /// how often it has told its cluster that it is there
    pub arrivals: u64,
}

impl Launch<'_> {
    /// Runs it; `arguments` are the bits of what the function takes.
    pub fn run(&self, memory: &mut Memory, arguments: &[u64]) -> Result<(), String> {
        let cluster = self.function.cluster;
        if !self.blocks.is_multiple_of(cluster) {
            return Err(format!("{} blocks in clusters of {cluster}", self.blocks));
        }
        let parameters = self.parameters(arguments)?;
        for first in (0..self.blocks).step_by(cluster as usize) {
            let bytes = self.function.shared as usize + self.shared as usize;
            let mut shared = Shared::new(memory, cluster as usize, bytes);
            self.run_cluster(first, &parameters, &mut shared)?;
        }
        Ok(())
    }

    fn parameters(&self, arguments: &[u64]) -> Result<Vec<u8>, String> {
        let Some((bytes, places)) = self.function.parameters.split_last() else {
            return Ok(Vec::new());
        };
        if places.len() != arguments.len() {
            return Err(format!("{} takes {} arguments, not {}", self.function.name, places.len(), arguments.len()));
        }
        let mut all = vec![0; *bytes as usize + 8];
        for (place, argument) in places.iter().zip(arguments) {
            all[*place as usize..][..8].copy_from_slice(&argument.to_le_bytes());
        }
        Ok(all)
    }

    fn threads(&self, first: u32) -> Vec<Thread> {
        let cluster = self.function.cluster;
        let thread = |number: u32| {
            let (block, own) = (number / self.threads, number % self.threads);
            let specials = [own, self.threads, first + block, self.blocks, own % LANES as u32, block, 0];
            Thread {
                registers: vec![0; self.function.registers],
                place: 0,
                state: State::Runs,
                block: block as usize,
                specials: specials.map(u64::from),
                copies: vec![Vec::new()],
                arrivals: 0,
            }
        };
        (0..cluster * self.threads).map(thread).collect()
    }

    fn run_cluster(&self, first: u32, parameters: &[u8], shared: &mut Shared<'_>) -> Result<(), String> {
        let mut threads = self.threads(first);
        let count = threads.len();
        loop {
            let mut goes_on = false;
            for k in 0..count {
                let k = if self.order == Order::Forward { k } else { count - 1 - k };
                let thread = &mut threads[k];
                if thread.state != State::Runs {
                    continue;
                }
                goes_on = true;
                while thread.state == State::Runs {
                    let instruction = &self.function.code[thread.place];
                    step(thread, instruction, parameters, shared).map_err(|why| {
                        let (own, block) = (thread.specials[0], thread.specials[2]);
                        format!("line {}: thread {own} of block {block}: {why}", instruction.line)
                    })?;
                }
            }
            goes_on |= self.let_go(&mut threads, shared)?;
            if threads.iter().all(|thread| thread.state == State::Done) {
                return Ok(());
            }
            if !goes_on {
                return Err(self.stuck(&threads));
            }
        }
    }

    /// Lets threads go on that have waited for each other, if any.
    fn let_go(&self, threads: &mut [Thread], shared: &mut Shared<'_>) -> Result<bool, String> {
        let mut any = false;
        let of_block = self.threads as usize;
        let least = threads.iter().filter(|thread| thread.state != State::Done).map(|thread| thread.arrivals).min();
        for block in threads.chunks_mut(of_block) {
            for warp in block.chunks_mut(LANES) {
                any |= self.let_warp_go(warp, shared)?;
            }
            any |= let_block_go(block);
        }
        for thread in threads.iter_mut() {
            let is_met = match thread.state {
                State::Cluster => least.is_some_and(|least| least >= thread.arrivals),
                State::Bytes => {
                    let Instruction { operands, .. } = &self.function.code[thread.place];
                    let at = shared.place(thread.block, read(thread, &operands[1]));
                    shared.have_arrived(at, read(thread, &operands[2]))?
                }
                _ => false,
            };
            if is_met {
                // Who waits for bytes asks again.
                thread.place += usize::from(thread.state == State::Cluster);
                (thread.state, any) = (State::Runs, true);
            }
        }
        Ok(any)
    }

    fn let_warp_go(&self, warp: &mut [Thread], shared: &Shared<'_>) -> Result<bool, String> {
        let place = warp[0].place;
        if !warp.iter().all(|lane| lane.state == State::Lanes && lane.place == place) {
            return Ok(false);
        }
        let instruction = &self.function.code[place];
        if let Action::Together(what) = instruction.action {
            let at = |why: String| format!("line {}: {why}", instruction.line);
            together(what, instruction, warp, shared).map_err(at)?;
        }
        for lane in warp {
            (lane.state, lane.place) = (State::Runs, place + 1);
        }
        Ok(true)
    }

    /// Says where threads wait that wait for ever.
    fn stuck(&self, threads: &[Thread]) -> String {
        let mut text = "threads wait for each other for ever:".to_owned();
        let mut told: Vec<(usize, State)> = Vec::new();
        for thread in threads.iter().filter(|thread| thread.state != State::Done) {
            if !told.contains(&(thread.place, thread.state)) {
                told.push((thread.place, thread.state));
                let line = self.function.code[thread.place].line;
                let (own, block) = (thread.specials[0], thread.specials[2]);
                write!(text, " thread {own} of block {block} in line {line} ({:?})", thread.state)
                    .expect("writing to a string succeeds");
            }
        }
        text
    }
}

/// Threads of a block that meet, if all are there that are meant.
fn let_block_go(block: &mut [Thread]) -> bool {
    let mut any = false;
    let waits: Vec<(u64, u64)> = block
        .iter()
        .filter_map(|thread| match thread.state {
            State::Block { number, count } => Some((number, count)),
            _ => None,
        })
        .collect();
    let alive = block.iter().filter(|thread| thread.state != State::Done).count();
    for (number, count) in waits.iter().copied() {
        let state = State::Block { number, count };
        let there = block.iter().filter(|thread| thread.state == state).count();
        let wanted = if count == 0 { alive } else { count as usize };
        if there > 0 && there >= wanted {
            for thread in block.iter_mut().filter(|thread| thread.state == state) {
                (thread.state, thread.place) = (State::Runs, thread.place + 1);
            }
            any = true;
        }
    }
    any
}
