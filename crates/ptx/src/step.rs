//! One instruction of one thread, as far as it needs no other.

use crate::instruction::{Action, Atomic, Compute, Instruction, Operand, Rounding, Space, Special, Type};
use crate::machine::{State, Thread};
use crate::memory::{Copy, Shared};
use crate::scalar::{compare, compute, convert};

/// The bits of an operand.
pub fn read(thread: &Thread, operand: &Operand) -> u64 {
    match operand {
        Operand::Register(register) => thread.registers[*register as usize],
        Operand::Constant(bits) => *bits,
        Operand::Special(special) => {
            thread.specials[match special {
                Special::Thread => 0,
                Special::Threads => 1,
                Special::Block => 2,
                Special::Blocks => 3,
                Special::Lane => 4,
                Special::RankInCluster => 5,
                Special::Zero => 6,
            }]
        }
        Operand::Address(base, behind) => read(thread, base).wrapping_add_signed(*behind),
        Operand::Parameter(place) => *place,
        Operand::Vector(_) | Operand::Label(_) | Operand::Nowhere => 0,
    }
}

pub fn vector(thread: &Thread, operand: &Operand) -> Vec<u64> {
    match operand {
        Operand::Vector(all) => all.iter().map(|one| read(thread, one)).collect(),
        one => vec![read(thread, one)],
    }
}

pub fn set(thread: &mut Thread, operand: &Operand, bits: u64) -> Result<(), String> {
    match operand {
        Operand::Register(register) => thread.registers[*register as usize] = bits,
        Operand::Nowhere => {}
        _ => return Err("a result that is no register".into()),
    }
    Ok(())
}

pub fn write_vector(thread: &mut Thread, operand: &Operand, all: &[u64]) -> Result<(), String> {
    match operand {
        Operand::Vector(to) if to.len() == all.len() => {
            to.iter().zip(all).try_for_each(|(to, bits)| set(thread, to, *bits))
        }
        to if all.len() == 1 => set(thread, to, all[0]),
        _ => Err("another number of results than of registers".into()),
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

impl Instruction {
    /// The bits of an operand; nothing, where there is none.
    fn get(&self, thread: &Thread, k: usize) -> u64 {
        self.operands.get(k).map_or(0, |operand| read(thread, operand))
    }

    /// The place in shared memory that an operand is.
    fn place(&self, thread: &Thread, shared: &Shared<'_>, k: usize) -> (usize, u64) {
        shared.place(thread.block, self.get(thread, k))
    }

    fn give(&self, thread: &mut Thread, bits: u64) -> Result<(), String> {
        set(thread, self.operands.first().ok_or("an instruction without a result")?, bits)
    }
}

/// Does an instruction, or says what the thread waits for.
pub fn step(
    thread: &mut Thread,
    instruction: &Instruction,
    parameters: &[u8],
    shared: &mut Shared<'_>,
) -> Result<(), String> {
    let is_wanted = |(register, wanted): (u32, bool)| (thread.registers[register as usize] != 0) == wanted;
    if !instruction.guard.is_none_or(is_wanted) {
        thread.place += 1;
        return Ok(());
    }
    let (number, count) = (instruction.get(thread, 0), instruction.get(thread, 1));
    match &instruction.action {
        Action::Nothing => {}
        Action::Jump => {
            thread.place = instruction.target;
            return Ok(());
        }
        Action::Return => thread.state = State::Done,
        Action::Meet => thread.state = State::Block { number, count },
        Action::WaitForCluster => thread.state = State::Cluster,
        Action::Together(_) => thread.state = State::Lanes,
        Action::HaveArrived => {
            let at = instruction.place(thread, shared, 1);
            match shared.have_arrived(at, instruction.get(thread, 2))? {
                true => instruction.give(thread, 1)?,
                false => thread.state = State::Bytes,
            }
        }
        Action::Compute(what, ty, rounding) => calculate(thread, instruction, (*what, *ty, *rounding))?,
        Action::Compare(..) | Action::Convert { .. } => decide(thread, instruction)?,
        Action::Load { .. } | Action::Store { .. } | Action::Atomic { .. } => {
            touch(thread, instruction, parameters, shared)?;
        }
        Action::ToAny | Action::ToShared | Action::OfBlock { .. } => point(thread, instruction, shared)?,
        _ => transfer(thread, instruction, shared)?,
    }
    // Who waits is sent on by whoever it waits for.
    thread.place += usize::from(thread.state == State::Runs);
    Ok(())
}

/// Computes a number of others; of a register and its parts, takes it apart or puts it together.
fn calculate(
    thread: &mut Thread,
    instruction: &Instruction,
    (what, ty, rounding): (Compute, Type, Rounding),
) -> Result<(), String> {
    let operands = &instruction.operands;
    match (operands.first(), operands.get(1)) {
        (Some(Operand::Vector(parts)), Some(one)) => {
            let (whole, width) = (read(thread, one), 8 * ty.bytes() / parts.len());
            let bits = (0..parts.len()).map(|k| whole >> (k * width) & ((1 << width) - 1));
            write_vector(thread, &operands[0], &bits.collect::<Vec<u64>>())
        }
        (Some(to), Some(Operand::Vector(parts))) => {
            let width = 8 * ty.bytes() / parts.len();
            let bits = parts.iter().enumerate().map(|(k, part)| read(thread, part) << (k * width)).sum();
            set(thread, to, bits)
        }
        _ => {
            let of = [1, 2, 3, 4].map(|k| instruction.get(thread, k));
            instruction.give(thread, compute(what, ty, rounding, of)?)
        }
    }
}

/// Compares or converts numbers.
fn decide(thread: &mut Thread, instruction: &Instruction) -> Result<(), String> {
    let get = |k: usize| instruction.get(thread, k);
    let bits = match &instruction.action {
        Action::Compare(how, ty, joined) => {
            let result = u64::from(compare(*how, *ty, get(1), get(2)));
            match joined {
                Some(what) => compute(*what, Type::Predicate, Rounding::Near, [result, get(3), 0, 0])?,
                None if instruction.operands.len() == 3 => result,
                None => return Err("a comparison with two results".into()),
            }
        }
        Action::Convert { to, from, rounding, to_whole, saturates } => {
            let of = |k: usize| convert(*to, *from, *rounding, *to_whole, *saturates, get(k));
            match to {
                Type::Halves | Type::Brains => of(1) << 16 | of(2),
                _ => of(1),
            }
        }
        _ => return Err("neither a comparison nor a conversion".into()),
    };
    instruction.give(thread, bits)
}

/// Reads or writes memory.
fn touch(
    thread: &mut Thread,
    instruction: &Instruction,
    parameters: &[u8],
    shared: &mut Shared<'_>,
) -> Result<(), String> {
    let (own, operands) = (thread.block, &instruction.operands);
    match &instruction.action {
        Action::Load { space, count, ty } => {
            let (bytes, place) = (ty.bytes(), instruction.get(thread, 1));
            let all = match space {
                Space::Parameters => parameters.get(place as usize..place as usize + bytes * count),
                _ => Some(shared.read(own, *space == Space::Shared, place, bytes * count)?),
            };
            let all = all.ok_or("a parameter that is not there")?;
            let unused = 64 - 8 * bytes;
            let extended = |bits: u64| match ty {
                Type::Signed(_) => ((bits << unused) as i64 >> unused) as u64,
                _ => bits,
            };
            let all: Vec<u64> = all.chunks_exact(bytes).map(|bytes| extended(number(bytes))).collect();
            write_vector(thread, &operands[0], &all)
        }
        Action::Store { space, ty, count } => {
            let all = vector(thread, operands.get(1).ok_or("nothing is stored")?);
            if all.len() != *count {
                return Err("another number of registers than is stored".into());
            }
            let bytes: Vec<u8> = all.iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(ty.bytes())).collect();
            shared.write(own, *space == Space::Shared, instruction.get(thread, 0), &bytes)
        }
        Action::Atomic { what, space, ty, has_result } => {
            let first = usize::from(*has_result);
            let (place, is_shared) = (instruction.get(thread, first), *space == Space::Shared);
            let (one, other) = (instruction.get(thread, first + 1), instruction.get(thread, first + 2));
            let before = number(shared.read(own, is_shared, place, ty.bytes())?);
            let after = match what {
                Atomic::Exchange => one,
                Atomic::CompareAndSwap if before == one & ty.mask() => other,
                Atomic::CompareAndSwap => before,
                Atomic::Compute(what) => compute(*what, *ty, Rounding::Near, [before, one, 0, 0])?,
            };
            shared.write(own, is_shared, place, &after.to_le_bytes()[..ty.bytes()])?;
            if *has_result { instruction.give(thread, before) } else { Ok(()) }
        }
        _ => Err("no access".into()),
    }
}

/// Makes an address of another one.
fn point(thread: &mut Thread, instruction: &Instruction, shared: &Shared<'_>) -> Result<(), String> {
    let (place, block) = (instruction.get(thread, 1), instruction.get(thread, 2));
    let found = match instruction.action {
        Action::ToAny => shared.to_any(thread.block, place),
        Action::ToShared => shared.to_shared(place),
        Action::OfBlock { is_any: true } => shared.of_block_any(place, block),
        _ => shared.of_block(place, block),
    };
    instruction.give(thread, found)
}

/// Asks for copies into shared memory, tells that they are awaited, or makes them.
fn transfer(thread: &mut Thread, instruction: &Instruction, shared: &mut Shared<'_>) -> Result<(), String> {
    let get = |thread: &Thread, k: usize| instruction.get(thread, k);
    match instruction.action {
        Action::ArriveInCluster => thread.arrivals += 1,
        Action::Copy { has_policy } => {
            let bytes = get(thread, 2) as usize;
            let is_cut = instruction.operands.len() > 3 + usize::from(has_policy);
            let read = if is_cut { get(thread, 3) as usize } else { bytes };
            let copy = Copy { to: instruction.place(thread, shared, 0), from: get(thread, 1), bytes, read, told: None };
            thread.copies.last_mut().ok_or("no group of copies")?.push(copy);
        }
        Action::CommitCopies => thread.copies.push(Vec::new()),
        Action::WaitForCopies { all } => {
            let left = if all { 0 } else { get(thread, 0) as usize };
            let made = thread.copies.len().saturating_sub(1).saturating_sub(left) + usize::from(all);
            let made: Vec<Vec<Copy>> = thread.copies.drain(..made).collect();
            if thread.copies.is_empty() {
                thread.copies.push(Vec::new());
            }
            made.iter().flatten().try_for_each(|copy| shared.make(copy))?;
        }
        Action::BeginArrivals => shared.begin_arrivals(instruction.place(thread, shared, 0), get(thread, 1)),
        Action::ExpectBytes => {
            shared.expect(instruction.place(thread, shared, 1), get(thread, 2) & Type::Bits(4).mask())?;
        }
        Action::Bring => {
            let (bytes, told) = (get(thread, 2) & Type::Bits(4).mask(), instruction.place(thread, shared, 3));
            if !bytes.is_multiple_of(16) {
                return Err(format!("{bytes} bytes are brought, which is no multiple of 16"));
            }
            let (to, bytes) = (instruction.place(thread, shared, 0), bytes as usize);
            shared.bring(Copy { to, from: get(thread, 1), bytes, read: bytes, told: Some(told) });
        }
        _ => return Err("an instruction that nobody does".into()),
    }
    Ok(())
}
