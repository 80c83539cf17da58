//! Einstein sums: any number of operands, contracted two at a time.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::{Monoid, View};
use crate::tensor::Dim;

pub(super) static OPS: &[NamedOp] = &[NamedOp::standard(
    "Einsum",
    12,
    &["equation"],
    "sums of products, every axis named by a letter; a letter that the result lacks is summed over",
    |call| Ok(vec![einsum(call)?]),
)];

/// A tensor whose axes have names.
#[derive(Clone)]
struct Labelled<'b> {
    tensor: Tensor<'b>,
    labels: Vec<char>,
}

/// An equation with its ellipses written out.
struct Equation {
    operands: Vec<Vec<char>>,
    result: Vec<char>,
}

fn einsum<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let tensors = call.present()?;
    let text = call.str_or("equation", "")?;
    let ranks: Vec<usize> = tensors.iter().map(|t| t.rank()).collect::<Result<_>>()?;
    let equation = Equation::parse(text, &ranks)?;
    let mut waiting = Vec::with_capacity(tensors.len());
    for (tensor, labels) in tensors.iter().zip(&equation.operands) {
        waiting.push(diagonal(Labelled { tensor: *tensor, labels: labels.clone() })?);
    }
    drop_repeating_ones(&mut waiting)?;
    let mut product = waiting.remove(0);
    while !waiting.is_empty() {
        // An operand that shares a letter makes no outer product.
        let shares = |x: &Labelled<'_>| x.labels.iter().any(|l| product.labels.contains(l));
        let next = waiting.remove(waiting.iter().position(shares).unwrap_or(0));
        let wanted = |l: &char| equation.result.contains(l) || waiting.iter().any(|x| x.labels.contains(l));
        product = multiply(product, next, &equation.result, &wanted);
    }
    let product = sum_out(product, &|l| equation.result.contains(l));
    let order = equation.result.iter().map(|l| {
        let place = product.labels.iter().position(|x| x == l);
        place.ok_or_else(|| Error::invalid(format!("the result of \"{text}\" names {l}, which no operand has")))
    });
    Ok(product.tensor.permute(&order.collect::<Result<Vec<_>>>()?))
}

/// The product of two operands, summed over the letters that nobody wants any more; those of the result in its order.
fn multiply<'b>(a: Labelled<'b>, b: Labelled<'b>, result: &[char], wanted: &dyn Fn(&char) -> bool) -> Labelled<'b> {
    let a = sum_out(a, &|l| wanted(l) || b.labels.contains(l));
    let b = sum_out(b, &|l| wanted(l) || a.labels.contains(l));
    let both = a.labels.iter().chain(b.labels.iter().filter(|l| !a.labels.contains(l)));
    let mut labels: Vec<char> = both.copied().filter(|l| wanted(l)).collect();
    labels.sort_by_key(|l| result.iter().position(|r| r == l).unwrap_or(result.len()));
    let text = |labels: &[char]| labels.iter().collect::<String>();
    let subscripts = format!("{},{}->{}", text(&a.labels), text(&b.labels), text(&labels));
    Labelled { tensor: a.tensor.contract(&subscripts, b.tensor), labels }
}

/// Summed over the axes whose letters are not kept.
fn sum_out<'b>(x: Labelled<'b>, keep: &dyn Fn(&char) -> bool) -> Labelled<'b> {
    let axes: Vec<usize> = (0..x.labels.len()).filter(|k| !keep(&x.labels[*k])).collect();
    let labels = x.labels.into_iter().filter(|l| keep(l)).collect();
    Labelled { tensor: x.tensor.reduce(Monoid::Sum, &axes), labels }
}

/// Axes with the same letter become one, the diagonal.
fn diagonal(x: Labelled<'_>) -> Result<Labelled<'_>> {
    let shape = x.tensor.shape()?;
    let mut labels: Vec<char> = Vec::new();
    let mut dims: Vec<Dim> = Vec::new();
    let mut map = Vec::new();
    for (label, dim) in x.labels.iter().zip(shape.dims()) {
        let axis = match labels.iter().position(|l| l == label) {
            Some(axis) => {
                x.tensor.builder().require_equal(&dims[axis], dim, "the diagonal of an Einstein sum")?;
                axis
            }
            None => {
                labels.push(*label);
                dims.push(dim.clone());
                labels.len() - 1
            }
        };
        map.push(Dim::axis(axis));
    }
    Ok(Labelled { tensor: x.tensor.view(View::new(dims.into(), map)), labels })
}

/// An axis of size 1 whose letter has another size elsewhere repeats: it is dropped.
fn drop_repeating_ones(operands: &mut [Labelled<'_>]) -> Result<()> {
    let mut larger = Vec::new();
    for operand in operands.iter() {
        let shape = operand.tensor.shape()?;
        larger.extend(operand.labels.iter().zip(shape.dims()).filter(|(_, d)| !d.is(1)).map(|(l, _)| *l));
    }
    for operand in operands {
        let shape = operand.tensor.shape()?;
        let repeats = |k: &usize| shape[*k].is(1) && larger.contains(&operand.labels[*k]);
        let dropped: Vec<usize> = (0..operand.labels.len()).filter(repeats).collect();
        if !dropped.is_empty() {
            operand.tensor = operand.tensor.remove_axes(&dropped);
            let kept = (0..operand.labels.len()).filter(|k| !dropped.contains(k));
            operand.labels = kept.map(|k| operand.labels[k]).collect();
        }
    }
    Ok(())
}

/// One operand or the result as it is written.
struct Subscript {
    before: Vec<char>,
    ellipsis: bool,
    after: Vec<char>,
}

impl Equation {
    fn parse(text: &str, ranks: &[usize]) -> Result<Equation> {
        let malformed = |why: &str| Error::invalid(format!("equation \"{text}\": {why}"));
        let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match plain.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (plain.as_str(), None),
        };
        let subscripts: Vec<Subscript> = left.split(',').map(Subscript::parse).collect::<Result<_>>()?;
        if subscripts.len() != ranks.len() {
            return Err(malformed(&format!("{} operands for {} tensors", subscripts.len(), ranks.len())));
        }
        let mut widest = 0;
        for (subscript, rank) in subscripts.iter().zip(ranks) {
            let named = subscript.before.len() + subscript.after.len();
            if named > *rank || (!subscript.ellipsis && named != *rank) {
                return Err(malformed(&format!("{named} letters for a tensor with {rank} axes")));
            }
            widest = widest.max(rank - named);
        }
        let named: Vec<char> = subscripts.iter().flat_map(|s| s.before.iter().chain(&s.after)).copied().collect();
        let free = ('A'..='Z').chain('a'..='z').filter(|c| !named.contains(c));
        let hidden: Vec<char> = free.take(widest).collect();
        if hidden.len() < widest {
            return Err(Error::unsupported(format!("equation \"{text}\" with more than 52 axes")));
        }
        let operands = subscripts.iter().zip(ranks).map(|(subscript, rank)| {
            let skipped = widest - (rank - subscript.before.len() - subscript.after.len()).min(widest);
            subscript.with_ellipsis(if subscript.ellipsis { &hidden[skipped..] } else { &[] })
        });
        let operands = operands.collect();
        let result = match right {
            Some(right) => Subscript::parse(right)?.with_ellipsis(&hidden),
            None => implied(&named, &hidden),
        };
        if (1..result.len()).any(|k| result[..k].contains(&result[k])) {
            return Err(malformed("a letter repeats in the result"));
        }
        Ok(Equation { operands, result })
    }
}

/// The result that an equation without an arrow means: the ellipsis, then letters that occur once, in order.
fn implied(named: &[char], hidden: &[char]) -> Vec<char> {
    let mut once: Vec<char> = named.iter().copied().filter(|l| named.iter().filter(|x| *x == l).count() == 1).collect();
    once.sort_unstable();
    hidden.iter().copied().chain(once).collect()
}

impl Subscript {
    fn parse(text: &str) -> Result<Subscript> {
        let (before, after) = match text.split_once("...") {
            Some((before, after)) => (before, Some(after)),
            None => (text, None),
        };
        let letters = |part: &str| -> Result<Vec<char>> {
            match part.chars().find(|c| !c.is_ascii_alphabetic()) {
                Some(c) => Err(Error::invalid(format!("'{c}' in the subscript \"{text}\""))),
                None => Ok(part.chars().collect()),
            }
        };
        Ok(Subscript {
            before: letters(before)?,
            ellipsis: after.is_some(),
            after: after.map(letters).transpose()?.unwrap_or_default(),
        })
    }

    fn with_ellipsis(&self, hidden: &[char]) -> Vec<char> {
        let hidden = if self.ellipsis { hidden } else { &[] };
        [&self.before, hidden, &self.after].concat()
    }
}
