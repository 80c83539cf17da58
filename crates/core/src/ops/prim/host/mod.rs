//! Operations that are not loops over tensors: one portable implementation that every device runs.

mod nonzero;
mod number;
mod suppress;
mod text;
mod unique;

pub use text::{Case, whole_text_pattern};

use super::{Access, Class, Primitive, expect_args};
use crate::error::{Error, Result};
use crate::graph::gradient::{Adjoint, NoGradient, OperandGradients};
use crate::reference::{Buffer, Run};
use crate::tensor::{DType, Dim, Shape, Symbol, TensorType};

/// Which host operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostKind {
    /// coordinates of the elements that are not zero, one column each, in row-major order; the count is a value symbol
    NonZero {
        /// the number of the symbol that the count binds
        count: u32,
    },
    /// slices along an axis that differ: the place of the first of each kind, for each slice the number of its kind,
    /// and the size of each kind
    Unique {
        /// the axis that the slices lie along
        axis: usize,
        /// kinds in ascending order of their elements; otherwise in order of appearance
        sorted: bool,
        /// the number of the symbol that the number of kinds binds
        count: u32,
    },
    /// the boxes with the best scores of each batch and class that do not overlap one another too much, as rows
    /// (batch, class, box); operands: boxes, scores, most boxes, largest overlap, least score
    NonMaxSuppression {
        /// boxes are given by centre and size instead of two corners
        centered: bool,
        /// the number of the symbol that the number of boxes binds
        count: u32,
    },
    /// texts with others behind them; texts are bytes in UTF-8 along the last axis, zeros behind their ends
    TextJoin,
    /// texts cut at a delimiter, or at white space where that is empty: their parts along one more axis, and the number of
    /// parts; operands: texts, the delimiter, how often is cut at most
    TextSplit {
        /// the number of the symbol that the largest number of parts binds
        count: u32,
        /// the number of the symbol that the bytes of the longest part bind
        width: u32,
    },
    /// the texts of a vector that are no stop words, in another case; operands: texts, stop words
    TextNormalize {
        /// what becomes of upper and lower case
        case: Case,
        /// stop words are found only where their case is the same
        exact: bool,
        /// the number of the symbol that the number of texts binds
        count: u32,
        /// the number of the symbol that the bytes of the longest one bind
        width: u32,
    },
    /// whether a pattern, the second operand, matches each text as a whole
    TextMatch,
    /// numbers as texts
    TextOfNumber,
    /// the numbers that texts say
    NumberOfText {
        /// integers, as i64 (larger ones wrap); otherwise f64
        whole: bool,
    },
}

impl HostKind {
    /// The name in text forms.
    pub fn name(&self) -> &'static str {
        match self {
            HostKind::NonZero { .. } => "nonzero",
            HostKind::Unique { .. } => "unique",
            HostKind::NonMaxSuppression { .. } => "suppress",
            HostKind::TextJoin => "text_join",
            HostKind::TextSplit { .. } => "text_split",
            HostKind::TextNormalize { .. } => "text_normalize",
            HostKind::TextMatch => "text_match",
            HostKind::TextOfNumber => "text_of_number",
            HostKind::NumberOfText { .. } => "number_of_text",
        }
    }

    /// The value symbols that it binds at run time.
    pub fn binds(&self) -> impl Iterator<Item = u32> + use<> {
        let (first, second) = match self {
            HostKind::NonZero { count }
            | HostKind::Unique { count, .. }
            | HostKind::NonMaxSuppression { count, .. } => (Some(*count), None),
            HostKind::TextSplit { count, width } | HostKind::TextNormalize { count, width, .. } => {
                (Some(*count), Some(*width))
            }
            HostKind::TextJoin | HostKind::TextMatch | HostKind::TextOfNumber | HostKind::NumberOfText { .. } => {
                (None, None)
            }
        };
        first.into_iter().chain(second)
    }
}

/// An operation with one portable implementation; opaque to fusion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// which one
    pub kind: HostKind,
}

impl Primitive for Host {
    const NAME: &'static str = "host";
    const CLASS: Class = Class::Opaque;
    const DOC: &'static str = "An operation that is not a loop over tensors, with one portable implementation.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        let ints = |dims: Vec<Dim>| TensorType::new(DType::I64, Shape::from(dims));
        let bytes = |dims: Vec<Dim>| TensorType::new(DType::U8, Shape::from(dims));
        let symbol = |number: u32| Dim::from(Symbol::Value(number));
        match &self.kind {
            HostKind::NonZero { count } => {
                expect_args("host.nonzero", args, 1)?;
                Ok(vec![ints(vec![args[0].shape.rank().into(), Symbol::Value(*count).into()])])
            }
            HostKind::Unique { axis, count, .. } => {
                expect_args("host.unique", args, 1)?;
                let size = args[0].shape.dims().get(*axis).cloned();
                let size = size.ok_or_else(|| Error::bug(format!("unique along axis {axis} of {}", args[0])))?;
                let kinds = Dim::from(Symbol::Value(*count));
                Ok(vec![ints(vec![kinds.clone()]), ints(vec![size]), ints(vec![kinds])])
            }
            HostKind::NonMaxSuppression { count, .. } => {
                expect_args("host.suppress", args, 5)?;
                suppress::check(&args[0], &args[1])?;
                Ok(vec![ints(vec![Symbol::Value(*count).into(), Dim::int(3)])])
            }
            HostKind::TextJoin => {
                expect_args("host.text_join", args, 2)?;
                let ((leading, x), (other, y)) = (text_axes(&args[0])?, text_axes(&args[1])?);
                if leading != other {
                    return Err(Error::bug(format!("texts {} joined with {}", args[0], args[1])));
                }
                Ok(vec![bytes([leading, &[x + y]].concat())])
            }
            HostKind::TextSplit { count, width } => {
                expect_args("host.text_split", args, 3)?;
                expect_axes(&args[1], 1)?;
                expect_axes(&args[2], 0)?;
                let (leading, _) = text_axes(&args[0])?;
                let parts = [leading, &[symbol(*count), symbol(*width)]].concat();
                Ok(vec![bytes(parts), ints(leading.to_vec())])
            }
            HostKind::TextNormalize { count, width, .. } => {
                expect_args("host.text_normalize", args, 2)?;
                expect_axes(&args[0], 2)?;
                expect_axes(&args[1], 2)?;
                text_axes(&args[0]).and(text_axes(&args[1]))?;
                Ok(vec![bytes(vec![symbol(*count), symbol(*width)])])
            }
            HostKind::TextMatch => {
                expect_args("host.text_match", args, 2)?;
                expect_axes(&args[1], 1)?;
                let (leading, _) = text_axes(&args[0])?;
                Ok(vec![TensorType::new(DType::Bool, Shape::from(leading.to_vec()))])
            }
            HostKind::TextOfNumber => {
                expect_args("host.text_of_number", args, 1)?;
                Ok(vec![bytes([args[0].shape.dims(), &[Dim::from(number::LONGEST)]].concat())])
            }
            HostKind::NumberOfText { whole } => {
                expect_args("host.number_of_text", args, 1)?;
                let (leading, _) = text_axes(&args[0])?;
                let dtype = if *whole { DType::I64 } else { DType::F64 };
                Ok(vec![TensorType::new(dtype, Shape::from(leading.to_vec()))])
            }
        }
    }

    fn access(&self, _: &[TensorType]) -> Option<Access> {
        None
    }

    fn eval(&self, args: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        // Whatever decides, or is printed, is a number of its type.
        run.reserve(args.iter().filter(|arg| arg.dtype().is_float()).map(Buffer::count).sum())?;
        let args: &[Buffer] = &args.iter().map(Buffer::rounded).collect::<Result<Vec<_>>>()?;
        match &self.kind {
            HostKind::NonZero { .. } => Ok(vec![nonzero::nonzero(&args[0], run)?]),
            HostKind::Unique { axis, sorted, .. } => unique::unique(&args[0], *axis, *sorted, run),
            HostKind::NonMaxSuppression { centered, .. } => {
                suppress::suppress(args, *centered, run).map(|boxes| vec![boxes])
            }
            HostKind::TextJoin => Ok(vec![text::join(&args[0], &args[1], run)?]),
            HostKind::TextSplit { .. } => text::split(&args[0], &args[1], &args[2], run),
            HostKind::TextNormalize { case, exact, .. } => {
                Ok(vec![text::normalize(&args[0], &args[1], *case, *exact, run)?])
            }
            HostKind::TextMatch => Ok(vec![text::matches(&args[0], &args[1], run)?]),
            HostKind::TextOfNumber => Ok(vec![number::print(&args[0], run)?]),
            HostKind::NumberOfText { whole } => Ok(vec![number::parse(&args[0], *whole, run)?]),
        }
    }

    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        Err(NoGradient { primitive: Self::NAME, operands: at.args.len() })
    }

    fn for_each_dim(&self, _: &mut dyn FnMut(&Dim)) {}
}

/// The axes of texts, and the number of bytes that each may have.
fn text_axes(ty: &TensorType) -> Result<(&[Dim], &Dim)> {
    match ty.shape.dims().split_last() {
        Some((width, leading)) if ty.dtype == DType::U8 => Ok((leading, width)),
        _ => Err(Error::bug(format!("{ty} are no texts"))),
    }
}

fn expect_axes(ty: &TensorType, axes: usize) -> Result<()> {
    if ty.shape.rank() == axes { Ok(()) } else { Err(Error::bug(format!("{ty} where {axes} axes are wanted"))) }
}
