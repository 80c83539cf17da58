//! Sums of products of two tensors.

use super::{Access, Class, OperandMap, Primitive, expect_args, identity_map};
use crate::error::{Error, Result};
use crate::graph::gradient::{Adjoint, NoGradient, OperandGradients};
use crate::reference::{Buffer, Run, eval_contract};
use crate::tensor::{DType, Dim, Shape, TensorType};

/// The name of a loop of a contraction, a letter.
pub type Label = char;

/// `out[...] = Σ a[...] · b[...]`, every axis named by a label; labels that the result lacks are summed over.
/// A matrix product is `mk,kn->mn`; labels in all three are batch axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contract {
    /// labels of the first operand's axes
    pub a: Vec<Label>,
    /// labels of the second operand's axes
    pub b: Vec<Label>,
    /// labels of the result's axes
    pub out: Vec<Label>,
    /// the type in which products are accumulated
    pub accumulator: DType,
}

impl Contract {
    /// A contraction from its text, such as `bmk,bkn->bmn`.
    pub fn parse(text: &str, accumulator: DType) -> Result<Contract> {
        let malformed = || Error::invalid(format!("malformed subscripts \"{text}\" (wanted: like mk,kn->mn)"));
        let (operands, out) = text.split_once("->").ok_or_else(malformed)?;
        let (a, b) = operands.split_once(',').ok_or_else(malformed)?;
        let labels = |s: &str| -> Result<Vec<Label>> {
            s.trim().chars().map(|c| if c.is_ascii_alphabetic() { Ok(c) } else { Err(malformed()) }).collect()
        };
        Ok(Contract { a: labels(a)?, b: labels(b)?, out: labels(out)?, accumulator })
    }

    /// The subscripts as text.
    pub fn subscripts(&self) -> String {
        let text = |labels: &[Label]| labels.iter().collect::<String>();
        format!("{},{}->{}", text(&self.a), text(&self.b), text(&self.out))
    }

    /// The labels that are summed over, in the order of the first operand.
    pub fn summed(&self) -> Vec<Label> {
        self.a.iter().copied().filter(|l| !self.out.contains(l)).collect()
    }

    /// The size of a label.
    pub fn extent<'t>(&self, args: &'t [TensorType], label: Label) -> Option<&'t Dim> {
        let at =
            |labels: &[Label], ty: &'t TensorType| labels.iter().position(|l| *l == label).map(|k| &ty.shape.dims()[k]);
        at(&self.a, &args[0]).or_else(|| at(&self.b, &args[1]))
    }
}

impl Primitive for Contract {
    const NAME: &'static str = "contract";
    const CLASS: Class = Class::Contract;
    const DOC: &'static str = "Sums of products of two operands, axes matched by labels.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_args(Self::NAME, args, 2)?;
        let (a, b) = (&args[0], &args[1]);
        let refuse = |why: &str| Error::invalid(format!("contraction {} of {a} and {b}: {why}", self.subscripts()));
        if a.dtype != b.dtype || a.dtype == DType::Bool {
            return Err(refuse("the operands must have one numeric type"));
        }
        if a.dtype.is_float() != self.accumulator.is_float() {
            return Err(refuse("the accumulator must be of the operands' kind"));
        }
        if self.a.len() != a.shape.rank() || self.b.len() != b.shape.rank() {
            return Err(refuse("the ranks differ from the subscripts"));
        }
        if self.a.iter().chain(&self.b).chain(&self.out).any(|l| !l.is_ascii_alphabetic()) {
            return Err(refuse("labels are letters"));
        }
        let repeated = |labels: &[Label]| (1..labels.len()).any(|k| labels[..k].contains(&labels[k]));
        if repeated(&self.a) || repeated(&self.b) || repeated(&self.out) {
            return Err(refuse("a label repeats"));
        }
        for (k, label) in self.a.iter().enumerate() {
            match self.b.iter().position(|l| l == label) {
                Some(j) if a.shape[k] != b.shape[j] => return Err(refuse(&format!("the sizes of {label} differ"))),
                None if !self.out.contains(label) => return Err(refuse(&format!("{label} stands alone"))),
                _ => {}
            }
        }
        if self.b.iter().any(|l| !self.a.contains(l) && !self.out.contains(l)) {
            return Err(refuse("a label of the second operand stands alone"));
        }
        let dims: Option<Shape> =
            self.out.iter().map(|l| self.extent(args, *l).cloned()).collect::<Option<Vec<_>>>().map(Shape::from);
        let shape = dims.ok_or_else(|| refuse("a label of the result is in no operand"))?;
        shape.check()?;
        Ok(vec![TensorType::new(a.dtype, shape)])
    }

    fn access(&self, args: &[TensorType]) -> Option<Access> {
        let loops: Vec<Label> = self.out.iter().copied().chain(self.summed()).collect();
        let axis = |label: &Label| Dim::axis(loops.iter().position(|l| l == label).expect("every label is a loop"));
        let operand = |labels: &[Label]| OperandMap { index: labels.iter().map(axis).collect(), guard: Vec::new() };
        Some(Access {
            domain: loops.iter().map(|l| self.extent(args, *l).expect("every label has a size").clone()).collect(),
            result: identity_map(self.out.len()),
            operands: vec![operand(&self.a), operand(&self.b)],
        })
    }

    fn eval(&self, args: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        eval_contract(self, &args[0], &args[1], run).map(|buffer| vec![buffer])
    }

    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        crate::graph::gradient::of_contract(self, at)
    }

    fn for_each_dim(&self, _: &mut dyn FnMut(&Dim)) {}

    fn flops(&self, args: &[TensorType]) -> Dim {
        let loops = self.out.iter().copied().chain(self.summed());
        loops.filter_map(|l| self.extent(args, l)).product::<Dim>() * 2
    }
}
