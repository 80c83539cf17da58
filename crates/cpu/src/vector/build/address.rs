//! Addresses: sums of a pointer, multiples of integers, and a number.

use smallvec::SmallVec;

use super::Builder;
use crate::vector::{Address, IntOp, Value};

/// A sum of a pointer and multiples of integers, none of which is a number.
#[derive(Debug)]
struct AddressSum {
    base: Value,
    terms: SmallVec<[(Value, i64); 4]>,
    /// what it is: an Int, and what is left for the address
    sum: (Value, Option<(Value, u8)>),
}

/// Sums that were asked for last: nearly every address is one of them with another number.
#[derive(Debug, Default)]
pub(super) struct Sums {
    all: [Option<AddressSum>; 8],
    /// the oldest
    next: usize,
}

impl Sums {
    fn known(&self, base: Value, terms: &[(Value, i64)]) -> Option<&AddressSum> {
        self.all.iter().flatten().find(|known| known.base == base && *known.terms == *terms)
    }

    fn put(&mut self, sum: AddressSum) {
        self.all[self.next] = Some(sum);
        self.next = (self.next + 1) % self.all.len();
    }
}

impl Builder {
    /// `base + Σ value·stride + offset`, in bytes, computed as far outside of the loops as it can be.
    pub fn address(&mut self, base: Value, terms: &[(Value, i64)], offset: i64) -> Address {
        let mut offset = offset;
        let mut varying: SmallVec<[(Value, i64); 4]> = SmallVec::new();
        for (value, stride) in terms.iter().filter(|(_, stride)| *stride != 0) {
            match self.as_number(*value) {
                Some(n) => offset += n * *stride,
                None => varying.push((*value, *stride)),
            }
        }
        if varying.is_empty() {
            return self.at(base, None, offset);
        }
        let known = self.sums.known(base, &varying);
        let (base, index) = match known {
            // What it is computed from is there as long as it is.
            Some(known) if self.is_open(known.sum.0) => known.sum,
            _ => {
                let sum = self.address_sum(base, varying.clone());
                self.sums.put(AddressSum { base, terms: varying, sum });
                sum
            }
        };
        self.at(base, index, offset)
    }

    fn at(&mut self, base: Value, index: Option<(Value, u8)>, offset: i64) -> Address {
        match i32::try_from(offset) {
            Ok(offset) => Address { base, index, offset },
            Err(_) => Address { base: self.plus(base, offset), index, offset: 0 },
        }
    }

    /// Whether the scope is open in which a value stands.
    fn is_open(&self, value: Value) -> bool {
        let fact = self.values.of(value);
        self.scopes.get(fact.depth as usize).is_some_and(|scope| scope.number == fact.home)
    }

    /// A sum, and what is left of it for the address to add.
    fn address_sum(
        &mut self,
        mut base: Value,
        mut varying: SmallVec<[(Value, i64); 4]>,
    ) -> (Value, Option<(Value, u8)>) {
        varying.sort_by_key(|(value, _)| (self.depth(*value), *value));
        let is_scale = varying.last().is_some_and(|(_, stride)| matches!(stride, 1 | 2 | 4 | 8));
        let last = if is_scale { varying.pop() } else { None };
        for (value, stride) in varying {
            let term = self.times(value, stride);
            base = self.int(IntOp::Add, base, term);
        }
        (base, last.map(|(value, stride)| (value, stride as u8)))
    }
}
