//! Memory that builders need only while they build: much of it, and new memory is slow to come by.

use std::cell::Cell;

use super::{Builder, Fact, Head, Scope};
use crate::vector::Node;

/// Memory of a builder.
#[derive(Default)]
pub(super) struct Spare {
    pub facts: Vec<Fact>,
    pub table: Vec<u32>,
    /// empty, with room for what stands in a loop
    pub bodies: Vec<Vec<Node>>,
}

/// So many values, and statements of a scope, at most are there room for in memory that waits.
const MOST: usize = 1 << 14;

/// Statements of a scope that there is room for at first.
const SOME: usize = 64;

thread_local! {
    /// That of the next builder of this thread.
    static SPARE: Cell<Spare> = const { Cell::new(Spare { facts: Vec::new(), table: Vec::new(), bodies: Vec::new() }) };
}

impl Spare {
    /// What an earlier builder left, if there is something.
    pub fn take() -> Spare {
        SPARE.take()
    }

    /// Leaves it to the next one, if it is not too much.
    pub fn put(mut self) {
        self.facts.clear();
        self.bodies.retain(|body| body.capacity() <= MOST);
        if self.facts.capacity().max(self.table.capacity()) <= MOST {
            SPARE.set(self);
        }
    }
}

impl Builder {
    /// Opens a scope.
    pub(super) fn open(&mut self) {
        let nodes = self.bodies.pop().unwrap_or_else(|| Vec::with_capacity(SOME));
        self.scopes.push(Scope { number: self.opened, nodes, head: None });
        self.opened += 1;
    }

    /// Closes the innermost scope: what stands in it, in no more memory than it takes.
    pub(super) fn close(&mut self) -> (Vec<Node>, Option<Head>) {
        let mut scope = self.scopes.pop().expect("the program itself is a scope");
        let mut body = Vec::with_capacity(scope.nodes.len());
        body.append(&mut scope.nodes);
        self.bodies.push(scope.nodes);
        (body, scope.head)
    }
}
