//! Primitives that graphs share.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use crate::ops::Prim;

/// What hashes of nodes are keyed with: no model can be made of nodes that all have the same. They show in nothing that is printed.
pub(super) static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A primitive with its hash.
#[derive(Clone)]
pub(super) struct Shared(Arc<Keyed>);

struct Keyed {
    key: u64,
    prim: Prim,
}

impl Shared {
    pub(super) fn new(prim: Prim) -> Shared {
        Shared(Arc::new(Keyed { key: KEY.hash_one(&prim), prim }))
    }

    /// Its hash under [`KEY`].
    pub(super) fn key(&self) -> u64 {
        self.0.key
    }
}

impl Deref for Shared {
    type Target = Prim;

    fn deref(&self) -> &Prim {
        &self.0.prim
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Shared) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.key == other.0.key && self.0.prim == other.0.prim)
    }
}

impl Eq for Shared {}

/// The hash of the primitive itself, which is the same in every process.
impl Hash for Shared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.prim.hash(state);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.prim.fmt(f)
    }
}
