//! Sequences and optional values, which are known while a model is imported: their operators arrange tensors, and only what
//! joins or cuts tensors adds to the graph.

use fuseline::error::{Context, Error, Result};
use fuseline::graph::Tensor;
use fuseline::ops::named::{Attribute, Attributes, equally_wide};
use fuseline::tensor::{DType, Dim, Shape};

use super::super::data_type::STRING;
use super::super::schema::NodeProto;
use super::attributes::attributes;
use super::control::{known_int, region};
use super::datum::{Datum, Kind, Operand, Sequence};
use super::node::Place;
use super::{Importer, signature, truth};

/// Elements of all sequences of a model, each counted whenever a sequence that it is part of is made or read.
const MAX_ELEMENTS: usize = 1 << 24;

impl<'m> Importer<'m> {
    /// Counts elements of sequences against the limit.
    pub(super) fn count_elements(&self, count: usize) -> Result<()> {
        self.elements.set(self.elements.get().saturating_add(count));
        if self.elements.get() > MAX_ELEMENTS {
            return Err(Error::limit(format!(
                "the model makes and reads sequences of more than {MAX_ELEMENTS} elements in all"
            )));
        }
        Ok(())
    }

    /// A sequence of tensors of one kind.
    fn sequence<'s>(&self, kind: Kind, elements: Vec<Tensor<'s>>) -> Result<Operand<'s>> {
        self.count_elements(elements.len())?;
        Ok(Datum::Sequence(Sequence { kind, elements }))
    }

    pub(super) fn identity<'s>(
        &self,
        _: &'m NodeProto,
        inputs: &[Operand<'s>],
        _: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let [value] = inputs else { return Err(Error::invalid("Identity takes one operand")) };
        Ok(vec![value.clone()])
    }

    pub(super) fn optional<'s>(
        &self,
        node: &'m NodeProto,
        inputs: &[Operand<'s>],
        _: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        match inputs {
            [] | [Datum::Nothing] if node.attribute.is_empty() => {
                Err(Error::invalid("Optional without a value must name its type"))
            }
            [] => Ok(vec![Datum::Nothing]),
            [value] => Ok(vec![value.clone()]),
            _ => Err(Error::invalid("Optional takes one operand or none")),
        }
    }

    pub(super) fn optional_has_element<'s>(
        &self,
        _: &'m NodeProto,
        inputs: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let is_there = inputs.first().is_some_and(|value| !matches!(value, Datum::Nothing));
        Ok(vec![truth(place.scope.builder(), is_there).into()])
    }

    pub(super) fn optional_get_element<'s>(
        &self,
        _: &'m NodeProto,
        inputs: &[Operand<'s>],
        _: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        match inputs {
            [Datum::Nothing] => Err(Error::invalid("the optional value is not there")),
            [value] => Ok(vec![value.clone()]),
            _ => Err(Error::invalid("OptionalGetElement takes one operand")),
        }
    }

    pub(super) fn sequence_empty<'s>(
        &self,
        node: &'m NodeProto,
        _: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        if node.attribute.iter().any(|attribute| attribute.name == "dtype" && attribute.i == i64::from(STRING)) {
            return Ok(vec![self.sequence(Kind::Text, Vec::new())?]);
        }
        let dtype = match attributes(node, place.call, self.file)?.get("dtype") {
            Some(Attribute::Str(name)) => DType::from_name(name),
            _ => None,
        };
        Ok(vec![self.sequence(Kind::Number(dtype.unwrap_or(DType::F32)), Vec::new())?])
    }

    pub(super) fn sequence_construct<'s>(
        &self,
        _: &'m NodeProto,
        inputs: &[Operand<'s>],
        _: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let first = inputs.first().ok_or_else(|| Error::invalid("SequenceConstruct takes at least one operand"))?;
        let kind = first.element()?.0;
        let elements = inputs.iter().enumerate().map(|(k, input)| element_of(kind, k, input));
        Ok(vec![self.sequence(kind, elements.collect::<Result<_>>()?)?])
    }

    pub(super) fn sequence_length<'s>(
        &self,
        _: &'m NodeProto,
        inputs: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let count = operand(inputs, 0)?.sequence()?.elements.len();
        Ok(vec![place.scope.builder().int(DType::I64, count as i64).into()])
    }

    /// The element at a position; a position that is known at run time only picks from the elements stacked, where all are alike.
    pub(super) fn sequence_at<'s>(
        &self,
        _: &'m NodeProto,
        inputs: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let Sequence { kind, elements } = operand(inputs, 0)?.sequence()?;
        let position = scalar(operand(inputs, 1)?.tensor()?)?;
        if known_int(position).is_none()
            && let Some(first) = elements.first()
        {
            let ty = first.ty()?;
            let alike = elements.iter().map(|e| Ok(e.ty()? == ty)).collect::<Result<Vec<bool>>>()?;
            if alike.into_iter().all(|alike| alike) {
                let stacked: Vec<Tensor<'s>> = elements.iter().map(|e| e.insert_axes(&[0])).collect();
                return Ok(vec![kind.wrap(place.scope.builder().concat(&stacked, 0).take(0, position))]);
            }
        }
        let at = place_of(position, elements.len(), elements.len())?;
        Ok(vec![kind.wrap(elements[at])])
    }

    pub(super) fn sequence_insert<'s>(
        &self,
        _: &'m NodeProto,
        inputs: &[Operand<'s>],
        _: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let sequence = operand(inputs, 0)?.sequence()?;
        let count = sequence.elements.len();
        let at = match inputs.get(2).map_or(Ok(None), Datum::optional)? {
            Some(position) => place_of(scalar(position)?, count, count + 1)?,
            None => count,
        };
        let mut elements = sequence.elements.clone();
        elements.insert(at, element_of(sequence.kind, at, operand(inputs, 1)?)?);
        Ok(vec![self.sequence(sequence.kind, elements)?])
    }

    pub(super) fn sequence_erase<'s>(
        &self,
        _: &'m NodeProto,
        inputs: &[Operand<'s>],
        _: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let sequence = operand(inputs, 0)?.sequence()?;
        let count = sequence.elements.len();
        let at = match inputs.get(1).map_or(Ok(None), Datum::optional)? {
            Some(position) => place_of(scalar(position)?, count, count)?,
            None => count.checked_sub(1).ok_or_else(|| Error::invalid("the sequence has no element to erase"))?,
        };
        let mut elements = sequence.elements.clone();
        elements.remove(at);
        Ok(vec![self.sequence(sequence.kind, elements)?])
    }

    pub(super) fn concat_from_sequence<'s>(
        &self,
        node: &'m NodeProto,
        inputs: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let given = attributes(node, place.call, self.file)?;
        let axis = int(&given, "axis")?.ok_or_else(|| Error::invalid("ConcatFromSequence lacks its attribute axis"))?;
        let sequence = operand(inputs, 0)?.sequence()?;
        let first = sequence.elements.first();
        let first = first.ok_or_else(|| Error::invalid("an empty sequence has nothing to join"))?;
        let stacks = int(&given, "new_axis")?.unwrap_or(0) != 0;
        let at = axis_of(axis, rank_of(sequence.kind, *first)? + usize::from(stacks))?;
        let elements: Vec<Tensor<'s>> = match stacks {
            true => sequence.elements.iter().map(|element| element.insert_axes(&[at])).collect(),
            false => sequence.elements.clone(),
        };
        Ok(vec![joined(sequence.kind, &elements, at)?])
    }

    pub(super) fn split_to_sequence<'s>(
        &self,
        node: &'m NodeProto,
        inputs: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let given = attributes(node, place.call, self.file)?;
        let (kind, x) = operand(inputs, 0)?.element()?;
        let axis = axis_of(int(&given, "axis")?.unwrap_or(0), rank_of(kind, x)?)?;
        let sizes = inputs.get(1).map_or(Ok(None), Datum::optional)?;
        let elements = match sizes {
            None => {
                let parts = self.equal_parts(&x.dim(axis)?, 1)?;
                let keeps = int(&given, "keepdims")?.unwrap_or(1) != 0;
                let part = |(start, size)| if keeps { x.slice(axis, start, size, 1) } else { x.element(axis, start) };
                parts.into_iter().map(part).collect()
            }
            Some(size) if size.rank()? == 0 => {
                let known = known_int(size);
                let needed = || x.builder().needs_value(size, "the size of the parts must be known before run time");
                let parts = self.equal_parts(&x.dim(axis)?, known.ok_or_else(needed)?)?;
                parts.into_iter().map(|(start, size)| x.slice(axis, start, size, 1)).collect()
            }
            Some(sizes) => {
                let sizes = x.builder().dims_of(sizes, "the sizes of the parts")?;
                let mut start = Dim::int(0);
                let mut elements = Vec::new();
                for size in sizes {
                    if size.as_int().is_some_and(|size| size < 0) {
                        return Err(Error::invalid(format!("a part of size {size}")));
                    }
                    elements.push(x.slice(axis, start.clone(), size.clone(), 1));
                    start = start + size;
                }
                x.builder().require_equal(&start, &x.dim(axis)?, "the parts of a tensor and the axis that is split")?;
                elements
            }
        };
        Ok(vec![self.sequence(kind, elements)?])
    }

    /// The body becomes part of the graph once for every element.
    pub(super) fn sequence_map<'s>(
        &self,
        node: &'m NodeProto,
        inputs: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let body = region(node, "body")?;
        let count = operand(inputs, 0)?.sequence()?.elements.len();
        if body.input.len() != inputs.len() {
            let (takes, given) = (body.input.len(), inputs.len());
            return Err(Error::invalid(format!("the body of SequenceMap takes {takes} values, and {given} are given")));
        }
        let mut results: Vec<Vec<Operand<'s>>> = vec![Vec::new(); body.output.len()];
        for k in 0..count {
            self.count(1)?;
            let element = |input: &Operand<'s>| match input {
                Datum::Sequence(sequence) => match sequence.elements.get(k) {
                    Some(element) if sequence.elements.len() == count => Ok(sequence.kind.wrap(*element)),
                    _ => {
                        let other = sequence.elements.len();
                        Err(Error::invalid(format!("sequences of {count} and {other} elements are mapped together")))
                    }
                },
                whole => Ok(whole.clone()),
            };
            let inputs: Vec<Operand<'s>> = inputs.iter().map(element).collect::<Result<_>>()?;
            let made = self.inline(body, &inputs, place).at(|| format!("body, element {k}"))?;
            if made.iter().any(Datum::is_poisoned) {
                return Ok(vec![place.scope.builder().poison().into(); body.output.len()]); // the cause is noted already
            }
            results.iter_mut().zip(made).for_each(|(result, made)| result.push(made));
        }
        let sequences = results.into_iter().zip(&body.output).map(|(elements, declared)| {
            let kind = match elements.first() {
                Some(element) => element.element()?.0,
                None => signature::port(declared)?.kind(),
            };
            let elements = elements.iter().enumerate().map(|(k, element)| element_of(kind, k, element));
            self.sequence(kind, elements.collect::<Result<_>>()?)
        });
        sequences.collect()
    }

    /// Start and size of parts of one size, of which the last may be smaller; each is a node.
    fn equal_parts(&self, whole: &Dim, size: i64) -> Result<Vec<(i64, i64)>> {
        if size <= 0 {
            return Err(Error::invalid(format!("parts of size {size}")));
        }
        let needed =
            || Error::needs_value("the size of the axis that is split must be known before run time", Vec::new());
        let whole = whole.as_int().ok_or_else(needed)?;
        let count = whole / size + i64::from(whole % size > 0);
        self.count(usize::try_from(count).unwrap_or(usize::MAX))?;
        let starts = (0..count).map(|k| k * size);
        Ok(starts.map(|start| (start, size.min(whole - start))).collect())
    }
}

fn operand<'o, 's>(inputs: &'o [Operand<'s>], k: usize) -> Result<&'o Operand<'s>> {
    inputs.get(k).ok_or_else(|| Error::invalid(format!("operand {k} is missing")))
}

/// An element at a place of a sequence; an error where it is of another kind than the others.
pub(super) fn element_of<'s>(kind: Kind, place: usize, element: &Operand<'s>) -> Result<Tensor<'s>> {
    let (found, tensor) = element.element()?;
    if found != kind {
        return Err(Error::invalid(format!("element {place} of a sequence of {kind} is of type {found}")));
    }
    Ok(tensor)
}

/// The number of axes that a tensor has for the user.
fn rank_of(kind: Kind, tensor: Tensor<'_>) -> Result<usize> {
    Ok(tensor.rank()? - usize::from(kind == Kind::Text))
}

fn axis_of(axis: i64, rank: usize) -> Result<usize> {
    let at = usize::try_from(if axis < 0 { axis.saturating_add(rank as i64) } else { axis });
    let at = at.ok().filter(|axis| *axis < rank);
    at.ok_or_else(|| Error::invalid(format!("axis {axis} of tensors of {rank} axes")))
}

/// Tensors of one kind, of which there is at least one, joined along an axis.
pub(super) fn joined<'s>(kind: Kind, elements: &[Tensor<'s>], axis: usize) -> Result<Operand<'s>> {
    let builder = elements[0].builder();
    Ok(match kind {
        Kind::Number(_) => Datum::Tensor(builder.concat(elements, axis as i64)),
        Kind::Text => Datum::Text(builder.concat(&equally_wide(elements)?, axis as i64)),
    })
}

fn int(given: &Attributes, name: &str) -> Result<Option<i64>> {
    match given.get(name) {
        Some(Attribute::Int(n)) => Ok(Some(*n)),
        Some(other) => Err(Error::invalid(format!("attribute {name} must be an integer, it is {}", other.kind()))),
        None => Ok(None),
    }
}

/// A position, which some models give as a vector of one element.
fn scalar(position: Tensor<'_>) -> Result<Tensor<'_>> {
    let ty = position.ty()?;
    if !ty.dtype.is_int() {
        return Err(Error::invalid(format!("a position is an integer, not {ty}")));
    }
    let position = position.reshape(Shape::scalar());
    position.ty()?;
    Ok(position)
}

/// The place that a position, which must be known, means among `places` of a sequence of `count` elements: negative ones
/// count from the end of the elements.
fn place_of(position: Tensor<'_>, count: usize, places: usize) -> Result<usize> {
    let needed = || position.builder().needs_value(position, "a position in a sequence must be known before run time");
    let position = known_int(position).ok_or_else(needed)?;
    let place = if position < 0 { position.saturating_add(count as i64) } else { position };
    let place = usize::try_from(place).ok().filter(|place| *place < places);
    place.ok_or_else(|| Error::invalid(format!("position {position} in a sequence of {count} elements")))
}
