//! Primitives that graphs share.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock};

use crate::ops::Prim;

/// What hashes of nodes are keyed with: no model can be made of nodes that all have the same. They show in nothing that is printed.
pub(super) static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// An odd number that is another one in every process.
pub(super) static FACTOR: LazyLock<u64> = LazyLock::new(|| KEY.hash_one("factor") | 1);

/// A primitive with its hash.
#[derive(Clone)]
pub(super) struct Shared(Arc<Keyed>);

struct Keyed {
    key: u64,
    prim: Prim,
    /// See [`Shared::is_normal`].
    is_normal: OnceLock<bool>,
}

impl Shared {
    pub(super) fn new(prim: Prim) -> Shared {
        Shared(Arc::new(Keyed { key: KEY.hash_one(&prim), prim, is_normal: OnceLock::new() }))
    }

    /// Whether the expressions of a view are as simple as they get; found out once, for all graphs that share it.
    pub(super) fn is_normal(&self) -> bool {
        *self.0.is_normal.get_or_init(|| match &self.0.prim {
            Prim::View(view) => view.clone().normalized() == *view,
            _ => true,
        })
    }

    /// Its hash under [`KEY`].
    pub(super) fn key(&self) -> u64 {
        self.0.key
    }
}

/// What a node computes, as a key: equal for equal primitives, also of different graphs. Its hash is that under [`KEY`].
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Operation(pub(super) Shared);

impl Hash for Operation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.key());
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
