//! Table 2: primitive operations on tensors, a closed enum.
//!
//! A row is one payload type with its [`Primitive`] implementation: name, class, type inference, index maps, reference
//! value and gradient stand together in one file. Rules of the planner ask the class, the monoid and the maps, never the name.

mod concat;
mod contract;
mod control;
mod host;
mod index;
mod map;
mod reduce;
mod sort;
mod source;
mod view;

pub use concat::Concat;
pub use contract::{Contract, Label};
pub use control::{If, Loop, Regions};
pub use host::{Case, Host, HostKind, whole_text_pattern};
pub use index::{Combine, Gather, Scatter};
pub use map::Map;
pub use reduce::{Monoid, Prefix, Reduce};
pub use sort::Sort;
pub use source::{Bind, Const, Input, Random, Sizes};
pub use view::{Guard, View};

use crate::error::Result;
use crate::graph::gradient::{Adjoint, NoGradient, OperandGradients};
use crate::reference::{Buffer, Run};
use crate::tensor::{Dim, Shape, TensorType};

/// What a primitive does with its iteration domain; the planner decides by this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// makes data from nothing
    Source,
    /// one result element from one element of each operand
    Map,
    /// result elements are operand elements at other coordinates
    View,
    /// many elements folded into one
    Reduce,
    /// products of two operands, summed
    Contract,
    /// coordinates are read from data
    Index,
    /// sub-graphs that run under control of data
    Control,
    /// one portable implementation, opaque to fusion
    Opaque,
}

/// Where the elements of one operand lie, seen from the iteration domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperandMap {
    /// coordinate of each operand axis, over the axes of the domain (and, for index operands, [`crate::tensor::Symbol::Read`])
    pub index: Vec<Dim>,
    /// conditions under which the operand is read at all
    pub guard: Vec<Guard>,
}

/// The iteration domain of a primitive and the index maps of its operands and of its (first) result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// sizes of the iteration domain: the axes of the result, then the reduced axes
    pub domain: Shape,
    /// coordinate of each result axis, over the axes of the domain
    pub result: Vec<Dim>,
    /// one map per operand
    pub operands: Vec<OperandMap>,
}

/// A row of the table.
pub trait Primitive {
    /// the name in text forms
    const NAME: &'static str;
    /// how it treats its domain
    const CLASS: Class;
    /// what it computes, in a sentence
    const DOC: &'static str;

    /// The types of the results; an error says why the operands do not fit.
    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>>;

    /// The index maps; `None` for operations that are not loops over a domain.
    fn access(&self, args: &[TensorType]) -> Option<Access>;

    /// The meaning: the results as the reference computes them.
    fn eval(&self, args: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>>;

    /// The gradients by each operand (`None`: zero), given those by the results, or a typed refusal.
    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient>;

    /// Calls `f` with every integer expression in the attributes, for renaming and for finding symbols.
    fn for_each_dim(&self, f: &mut dyn FnMut(&Dim));

    /// Arithmetic operations for given operand types, as an expression in the sizes.
    fn flops(&self, args: &[TensorType]) -> Dim {
        let _ = args;
        Dim::int(0)
    }
}

macro_rules! prims {
    ($($Variant:ident,)+) => {
        /// A primitive operation with its attributes.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Prim { $(#[doc = "see the payload's row"] $Variant($Variant)),+ }

        $(impl From<$Variant> for Prim {
            fn from(row: $Variant) -> Prim { Prim::$Variant(row) }
        })+

        impl Prim {
            /// Name and documentation of every row.
            pub const TABLE: &'static [(&'static str, Class, &'static str)] =
                &[$((<$Variant as Primitive>::NAME, <$Variant as Primitive>::CLASS, <$Variant as Primitive>::DOC)),+];

            /// The name in text forms.
            pub fn name(&self) -> &'static str { match self { $(Prim::$Variant(_) => <$Variant as Primitive>::NAME),+ } }

            /// How it treats its domain.
            pub fn class(&self) -> Class { match self { $(Prim::$Variant(_) => <$Variant as Primitive>::CLASS),+ } }

            /// See [`Primitive::infer`].
            pub fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
                match self { $(Prim::$Variant(row) => row.infer(args)),+ }
            }

            /// See [`Primitive::access`].
            pub fn access(&self, args: &[TensorType]) -> Option<Access> {
                match self { $(Prim::$Variant(row) => row.access(args)),+ }
            }

            /// See [`Primitive::eval`].
            pub fn eval(&self, args: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
                match self { $(Prim::$Variant(row) => row.eval(args, run)),+ }
            }

            /// See [`Primitive::gradient`].
            pub fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
                match self { $(Prim::$Variant(row) => row.gradient(at)),+ }
            }

            /// See [`Primitive::for_each_dim`].
            pub fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
                match self { $(Prim::$Variant(row) => row.for_each_dim(f)),+ }
            }

            /// See [`Primitive::flops`].
            pub fn flops(&self, args: &[TensorType]) -> Dim {
                match self { $(Prim::$Variant(row) => row.flops(args)),+ }
            }
        }
    };
}

prims! { Input, Const, Sizes, Bind, Random, Map, View, Concat, Reduce, Prefix, Contract, Gather, Scatter, Sort, If, Loop, Host, }

impl Prim {
    /// Whether the reference evaluates this primitive on views as they are; the others get dense operands.
    pub(crate) fn reads_views(&self) -> bool {
        matches!(self, Prim::Map(_) | Prim::View(_) | Prim::Reduce(_) | Prim::Contract(_))
    }
}

/// The coordinates of a domain of this rank, in order.
pub fn identity_map(rank: usize) -> Vec<Dim> {
    (0..rank).map(Dim::axis).collect()
}

/// A refusal for a wrong number of operands: a front end has checked them before.
fn expect_args(name: &str, args: &[TensorType], count: usize) -> Result<()> {
    if args.len() != count {
        return Err(crate::error::Error::bug(format!("{name} takes {count} operands, got {}", args.len())));
    }
    Ok(())
}
