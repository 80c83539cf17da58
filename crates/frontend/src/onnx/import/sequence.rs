//! Sequences and optional values, which are known while a model is imported: their operators arrange tensors, and only what
//! joins or cuts tensors adds to the graph.

use fuseline::error::{Context, Error, Result};
use fuseline::graph::Tensor;
use fuseline::ops::named::{Attribute, Attributes};
use fuseline::tensor::{DType, Dim, Shape};

use super::super::schema::NodeProto;
use super::attributes::attributes;
use super::control::{known_int, region};
use super::datum::{Datum, Operand, Sequence};
use super::node::Place;
use super::{Importer, signature, truth};

/// Elements of all sequences of a model, each counted in every sequence that it is part of.
const MAX_ELEMENTS: usize = 1 << 22;

impl<'m> Importer<'m> {
    /// A sequence of tensors that have the element type.
    fn sequence<'s>(&self, dtype: DType, elements: Vec<Tensor<'s>>) -> Result<Operand<'s>> {
        self.elements.set(self.elements.get().saturating_add(elements.len()));
        if self.elements.get() > MAX_ELEMENTS {
            return Err(Error::limit(format!("the sequences of the model have more than {MAX_ELEMENTS} elements")));
        }
        for (k, element) in elements.iter().enumerate() {
            let found = element.dtype()?;
            if found != dtype {
                return Err(Error::invalid(format!("element {k} of a sequence of {dtype} is of type {found}")));
            }
        }
        Ok(Datum::Sequence(Sequence { dtype, elements }))
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
        let dtype = match attributes(node, place.call, self.file)?.get("dtype") {
            Some(Attribute::Str(name)) => DType::from_name(name),
            _ => None,
        };
        Ok(vec![self.sequence(dtype.unwrap_or(DType::F32), Vec::new())?])
    }

    pub(super) fn sequence_construct<'s>(
        &self,
        _: &'m NodeProto,
        inputs: &[Operand<'s>],
        _: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let elements = super::datum::tensors(inputs)?;
        let first = elements.first().ok_or_else(|| Error::invalid("SequenceConstruct takes at least one operand"))?;
        Ok(vec![self.sequence(first.dtype()?, elements)?])
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
        let elements = &operand(inputs, 0)?.sequence()?.elements;
        let position = scalar(operand(inputs, 1)?.tensor()?)?;
        if known_int(position).is_none()
            && let Some(first) = elements.first()
        {
            let ty = first.ty()?;
            let alike = elements.iter().map(|e| Ok(e.ty()? == ty)).collect::<Result<Vec<bool>>>()?;
            if alike.into_iter().all(|alike| alike) {
                let stacked: Vec<Tensor<'s>> = elements.iter().map(|e| e.insert_axes(&[0])).collect();
                return Ok(vec![place.scope.builder().concat(&stacked, 0).take(0, position).into()]);
            }
        }
        let at = place_of(position, elements.len(), elements.len())?;
        Ok(vec![elements[at].into()])
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
        elements.insert(at, operand(inputs, 1)?.tensor()?);
        Ok(vec![self.sequence(sequence.dtype, elements)?])
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
        Ok(vec![self.sequence(sequence.dtype, elements)?])
    }

    pub(super) fn concat_from_sequence<'s>(
        &self,
        node: &'m NodeProto,
        inputs: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let given = attributes(node, place.call, self.file)?;
        let axis = int(&given, "axis")?.ok_or_else(|| Error::invalid("ConcatFromSequence lacks its attribute axis"))?;
        let elements = &operand(inputs, 0)?.sequence()?.elements;
        let first = elements.first().ok_or_else(|| Error::invalid("an empty sequence has nothing to join"))?;
        if int(&given, "new_axis")?.unwrap_or(0) == 0 {
            return Ok(vec![place.scope.builder().concat(elements, axis).into()]);
        }
        let rank = first.rank()? as i64 + 1;
        let at = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok().filter(|axis| (*axis as i64) < rank);
        let at = at.ok_or_else(|| Error::invalid(format!("axis {axis} of tensors that get {rank} axes")))?;
        let stacked: Vec<Tensor<'s>> = elements.iter().map(|element| element.insert_axes(&[at])).collect();
        Ok(vec![place.scope.builder().concat(&stacked, at as i64).into()])
    }

    pub(super) fn split_to_sequence<'s>(
        &self,
        node: &'m NodeProto,
        inputs: &[Operand<'s>],
        place: Place<'_, 's>,
    ) -> Result<Vec<Operand<'s>>> {
        let given = attributes(node, place.call, self.file)?;
        let x = operand(inputs, 0)?.tensor()?;
        let axis = x.axis(int(&given, "axis")?.unwrap_or(0))?;
        let sizes = inputs.get(1).map_or(Ok(None), Datum::optional)?;
        let elements = match sizes {
            None => {
                let parts = equal_parts(&x.dim(axis)?, 1)?;
                let keeps = int(&given, "keepdims")?.unwrap_or(1) != 0;
                let part = |(start, size)| if keeps { x.slice(axis, start, size, 1) } else { x.element(axis, start) };
                parts.into_iter().map(part).collect()
            }
            Some(size) if size.rank()? == 0 => {
                let known = known_int(size);
                let needed = || x.builder().needs_value(size, "the size of the parts must be known before run time");
                let parts = equal_parts(&x.dim(axis)?, known.ok_or_else(needed)?)?;
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
        Ok(vec![self.sequence(x.dtype()?, elements)?])
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
        let mut results: Vec<Vec<Tensor<'s>>> = vec![Vec::new(); body.output.len()];
        for k in 0..count {
            self.count(1)?;
            let element = |input: &Operand<'s>| match input {
                Datum::Sequence(sequence) => match sequence.elements.get(k) {
                    Some(element) if sequence.elements.len() == count => Ok(Datum::Tensor(*element)),
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
            for (result, made) in results.iter_mut().zip(&made) {
                result.push(made.tensor()?);
            }
        }
        let sequences = results.into_iter().zip(&body.output).map(|(elements, declared)| {
            let dtype = match elements.first() {
                Some(element) => element.dtype()?,
                None => signature::port(declared)?.dtype,
            };
            self.sequence(dtype, elements)
        });
        sequences.collect()
    }
}

fn operand<'o, 's>(inputs: &'o [Operand<'s>], k: usize) -> Result<&'o Operand<'s>> {
    inputs.get(k).ok_or_else(|| Error::invalid(format!("operand {k} is missing")))
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

/// Start and size of parts of one size, of which the last may be smaller.
fn equal_parts(whole: &Dim, size: i64) -> Result<Vec<(i64, i64)>> {
    if size <= 0 {
        return Err(Error::invalid(format!("parts of size {size}")));
    }
    let needed = || Error::needs_value("the size of the axis that is split must be known before run time", Vec::new());
    let whole = whole.as_int().ok_or_else(needed)?;
    let count = whole / size + i64::from(whole % size > 0);
    if count > MAX_ELEMENTS as i64 {
        return Err(Error::limit(format!("a sequence of more than {MAX_ELEMENTS} elements")));
    }
    let starts = (0..count).map(|k| k * size);
    Ok(starts.map(|start| (start, size.min(whole - start))).collect())
}
