//! What must be known of a program before instructions are selected: how often values are used, and where.

use crate::vector::{Binary, Bound, Loop, Node, Op, Program, Value};

/// Facts about the values of a program.
#[derive(Debug)]
pub struct Facts<'p> {
    /// how often a value is read by what is not dead
    pub uses: Vec<u32>,
    /// whether all of that happens in the very block in which the value stands
    pub local: Vec<bool>,
    /// what a value is
    pub definitions: Vec<Option<&'p Op>>,
    /// the number that a value is
    pub numbers: Vec<Option<i64>>,
    /// the bits that every lane of a value has
    pub constants: Vec<Option<u64>>,
    /// whether a value may be part of its only reader, in its own block: bits in one of two vectors of such bits, a multiply-add of its
    /// choice between that and 0
    pub joins: Vec<bool>,
    /// whether an integer is computed for nothing but the next trip: it may wait for the end of this one
    pub waits: Vec<bool>,
}

impl<'p> Facts<'p> {
    /// The facts about a program.
    pub fn new(program: &'p Program) -> Facts<'p> {
        let count = program.types.len();
        let mut walk = Walk {
            facts: Facts {
                uses: vec![0; count],
                local: vec![true; count],
                definitions: vec![None; count],
                numbers: vec![None; count],
                constants: vec![None; count],
                joins: vec![false; count],
                waits: vec![false; count],
            },
            blocks: vec![0; count],
            block: 0,
            count: 0,
        };
        walk.place(&program.body);
        walk.block = 0;
        walk.count = 0;
        walk.block(&program.body);
        walk.facts
    }
}

struct Walk<'p> {
    facts: Facts<'p>,
    /// the block in which a value stands
    blocks: Vec<u32>,
    block: u32,
    count: u32,
}

impl<'p> Walk<'p> {
    /// Notes where values stand.
    fn place(&mut self, nodes: &'p [Node]) {
        let block = self.block;
        for node in nodes {
            match node {
                Node::Let(value, op) => {
                    self.blocks[value.index()] = block;
                    self.facts.definitions[value.index()] = Some(op);
                    match op {
                        Op::Number(n) => self.facts.numbers[value.index()] = Some(*n),
                        Op::Const(_, bits) => self.facts.constants[value.index()] = Some(*bits),
                        _ => {}
                    }
                }
                Node::Do(_) => {}
                Node::Loop(inner) => {
                    self.count += 1;
                    self.block = self.count;
                    self.blocks[inner.var.index()] = self.block;
                    for carried in &inner.carried {
                        self.blocks[carried.param.index()] = self.block;
                        self.blocks[carried.result.index()] = block;
                    }
                    self.place(&inner.body);
                    self.block = block;
                }
            }
        }
    }

    fn used(&mut self, value: Value) {
        self.facts.uses[value.index()] += 1;
        if self.blocks[value.index()] != self.block {
            self.facts.local[value.index()] = false;
        }
    }

    /// Counts uses from the last to the first, so that what nothing uses counts nothing.
    fn block(&mut self, nodes: &[Node]) {
        for node in nodes.iter().rev() {
            match node {
                Node::Let(value, op) => {
                    let checks = matches!(op, Op::CheckInt { .. } | Op::CheckLanes { .. });
                    self.facts.joins[value.index()] &=
                        self.facts.uses[value.index()] == 1 && self.facts.local[value.index()];
                    if checks || self.facts.uses[value.index()] > 0 {
                        op.each_operand(|operand| {
                            self.used(operand);
                            self.facts.joins[operand.index()] = self.may_join(operand, op);
                        });
                    } else {
                        self.facts.waits[value.index()] = false;
                    }
                    if !matches!(op, Op::Int(..)) || self.facts.uses[value.index()] != 1 {
                        self.facts.waits[value.index()] = false;
                    }
                }
                Node::Do(effect) => {
                    for operand in effect.operands() {
                        self.used(operand);
                    }
                }
                Node::Loop(inner) => self.inner(inner),
            }
        }
    }

    /// Whether an operand may be part of what reads it.
    fn may_join(&self, operand: Value, reader: &Op) -> bool {
        match (self.facts.definitions[operand.index()], reader) {
            (Some(Op::Binary(Binary::Xor, ..)), Op::Binary(Binary::Xor, ..)) => true,
            (Some(Op::Fma(..)), Op::Select(_, yes, no)) => {
                *yes == operand && self.facts.constants[no.index()] == Some(0)
            }
            _ => false,
        }
    }

    fn inner(&mut self, inner: &Loop) {
        let outer = self.block;
        self.block = self.blocks[inner.var.index()];
        for carried in &inner.carried {
            self.used(carried.next);
            self.facts.waits[carried.next.index()] = self.blocks[carried.next.index()] == self.block;
        }
        if let Bound::Value(to) = inner.to {
            self.used(to);
        }
        self.block(&inner.body);
        self.block = outer;
        for carried in &inner.carried {
            self.used(carried.init);
        }
        if let Bound::Value(from) = inner.from {
            self.used(from);
        }
    }
}
