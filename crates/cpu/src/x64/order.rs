//! What must be known of a program before instructions are selected: how often values are used, and where.

use std::ops::{Index, IndexMut};

use crate::vector::{Binary, Bound, Loop, Node, Op, Program, Value};

/// Facts about the values of a program.
#[derive(Debug)]
pub struct Facts<'p>(Vec<Fact<'p>>);

/// What is known of a value.
#[derive(Clone, Copy, Debug)]
pub struct Fact<'p> {
    /// what it is
    pub op: Option<&'p Op>,
    /// the number that it is
    pub number: Option<i64>,
    /// the bits that every lane has
    pub bits: Option<u64>,
    /// how often it is read by what is not dead
    pub uses: u32,
    /// the block in which it stands
    block: u32,
    /// whether it is read in the very block in which it stands, and nowhere else
    pub local: bool,
    /// whether it may be part of its only reader, in its own block: bits in one of two vectors of such bits, a multiply-add of its
    /// choice between that and 0
    pub joins: bool,
    /// whether it is an integer that is computed for nothing but the next trip: it may wait for the end of this one
    pub waits: bool,
}

impl<'p> Facts<'p> {
    /// The facts about a program.
    pub fn new(program: &'p Program) -> Facts<'p> {
        let nothing =
            Fact { op: None, number: None, bits: None, uses: 0, block: 0, local: true, joins: false, waits: false };
        let mut walk = Walk { facts: Facts(vec![nothing; program.types.len()]), block: 0, count: 0 };
        walk.place(&program.body);
        walk.block = 0;
        walk.count = 0;
        walk.block(&program.body);
        walk.facts
    }
}

impl<'p> Index<Value> for Facts<'p> {
    type Output = Fact<'p>;

    fn index(&self, value: Value) -> &Fact<'p> {
        &self.0[value.index()]
    }
}

impl<'p> IndexMut<Value> for Facts<'p> {
    fn index_mut(&mut self, value: Value) -> &mut Fact<'p> {
        &mut self.0[value.index()]
    }
}

struct Walk<'p> {
    facts: Facts<'p>,
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
                    let fact = &mut self.facts[*value];
                    fact.block = block;
                    fact.op = Some(op);
                    match op {
                        Op::Number(n) => fact.number = Some(*n),
                        Op::Const(_, bits) => fact.bits = Some(*bits),
                        _ => {}
                    }
                }
                Node::Do(_) => {}
                Node::Loop(inner) => {
                    self.count += 1;
                    self.block = self.count;
                    self.facts[inner.var].block = self.block;
                    for carried in &inner.carried {
                        self.facts[carried.param].block = self.block;
                        self.facts[carried.result].block = block;
                    }
                    self.place(&inner.body);
                    self.block = block;
                }
            }
        }
    }

    fn used(&mut self, value: Value) {
        let block = self.block;
        let fact = &mut self.facts[value];
        fact.uses += 1;
        fact.local &= fact.block == block;
    }

    /// Counts uses from the last to the first, so that what nothing uses counts nothing.
    fn block(&mut self, nodes: &[Node]) {
        for node in nodes.iter().rev() {
            match node {
                Node::Let(value, op) => {
                    let fact = &mut self.facts[*value];
                    let is_alone = fact.uses == 1;
                    fact.joins &= is_alone && fact.local;
                    fact.waits &= is_alone && matches!(op, Op::Int(..));
                    if fact.uses > 0 || matches!(op, Op::CheckInt { .. } | Op::CheckLanes { .. }) {
                        op.each_operand(|operand| self.used(operand));
                        self.join(op);
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

    /// Notes which operands may be part of what reads them, if nothing else does.
    fn join(&mut self, reader: &Op) {
        match reader {
            Op::Binary(Binary::Xor, a, b) => {
                for operand in [*a, *b] {
                    self.facts[operand].joins |= matches!(self.facts[operand].op, Some(Op::Binary(Binary::Xor, ..)));
                }
            }
            Op::Select(_, yes, no) => {
                let is_product = matches!(self.facts[*yes].op, Some(Op::Fma(..)));
                self.facts[*yes].joins |= is_product && self.facts[*no].bits == Some(0);
            }
            _ => {}
        }
    }

    fn inner(&mut self, inner: &Loop) {
        let outer = self.block;
        self.block = self.facts[inner.var].block;
        for carried in &inner.carried {
            self.used(carried.next);
            let fact = &mut self.facts[carried.next];
            fact.waits = fact.block == self.block;
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
