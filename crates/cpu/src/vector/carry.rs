//! Which values of a loop can be computed in place: in the register of what they are handed on as.

use super::{Bound, Carried, Loop, Node, Value};

/// For every carried value, whether what it is in the next trip may overwrite what it is in this one: it is computed in the loop
/// itself, and nothing looks at the old value afterwards.
pub(super) fn in_place(counted: &Loop) -> Vec<bool> {
    let body = &counted.body;
    let handed = |value: Value| counted.carried.iter().filter(|carried| carried.next == value).count();
    let may = |carried: &Carried| {
        let Some(place) = body.iter().position(|node| defines(node, carried.next)) else { return false };
        let afterwards = body[place + 1..].iter().any(|node| uses(node, carried.param) > 0);
        // A loop overwrites it at its beginning, where it may be what the loop begins with.
        let inside = match &body[place] {
            Node::Loop(inner) => {
                let begins = |each: &Carried| each.result == carried.next && each.init == carried.param;
                uses(&body[place], carried.param) - inner.carried.iter().filter(|each| begins(each)).count()
            }
            _ => 0,
        };
        handed(carried.next) == 1 && handed(carried.param) == 0 && !afterwards && inside == 0
    };
    counted.carried.iter().map(may).collect()
}

/// Whether a statement gives a value its meaning.
fn defines(node: &Node, value: Value) -> bool {
    match node {
        Node::Let(defined, _) => *defined == value,
        Node::Do(_) => false,
        Node::Loop(inner) => inner.carried.iter().any(|carried| carried.result == value),
    }
}

/// How often a statement, with all inside of it, reads a value.
fn uses(node: &Node, value: Value) -> usize {
    let count = |operands: &[Value]| operands.iter().filter(|operand| **operand == value).count();
    match node {
        Node::Let(_, op) => count(&op.operands()),
        Node::Do(effect) => count(&effect.operands()),
        Node::Loop(inner) => {
            let bounds = [inner.from, inner.to].into_iter().filter(|bound| *bound == Bound::Value(value)).count();
            let handed = |carried: &Carried| count(&[carried.init, carried.next]);
            let inside: usize = inner.body.iter().map(|node| uses(node, value)).sum();
            bounds + inside + inner.carried.iter().map(handed).sum::<usize>()
        }
    }
}
