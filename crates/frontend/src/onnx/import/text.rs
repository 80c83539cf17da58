//! Texts: tensors whose elements are strings. Inside of graphs they are bytes with one axis more (see `Literal::texts` in the core); what
//! every operator makes of them follows from what it does with elements.

use fuseline::error::{Error, Result};
use fuseline::graph::Tensor;
use fuseline::ops::named::{Attribute, Call, equal_texts, equally_wide, numbers_of, texts_of};
use fuseline::tensor::{DType, Dim, Shape};

use super::super::data_type::STRING;
use super::super::schema::NodeProto;
use super::Importer;
use super::datum::{Datum, Operand};
use super::node::Place;

/// What an operator does with texts.
#[derive(Clone, Copy)]
enum Role {
    /// elements go elsewhere: all results are texts
    Moves,
    /// only sizes matter: no result is a text
    Measures,
    /// texts become numbers, and numbers texts
    Converts,
    /// equal texts are told from others
    Compares,
    /// slices along an axis are put in order and told apart, byte by byte; the first result is a text
    Sorts,
    /// its row in table 3 takes bytes; these results are texts
    Reads(&'static [usize]),
    /// its row takes bytes or makes them: the result is a text where the values that it looks up are
    LooksUp,
    /// the first result is a text where the labels that its row chooses from are
    Labels,
}

/// The operators that know texts.
static ROLES: &[(&str, &str, Role)] = &[
    ("", "Cast", Role::Converts),
    ("", "CastLike", Role::Converts),
    ("", "CenterCropPad", Role::Moves),
    ("", "Compress", Role::Moves),
    ("", "Concat", Role::Moves),
    ("", "DepthToSpace", Role::Moves),
    ("", "Equal", Role::Compares),
    ("", "Expand", Role::Moves),
    ("", "Flatten", Role::Moves),
    ("", "Gather", Role::Moves),
    ("", "GatherElements", Role::Moves),
    ("", "GatherND", Role::Moves),
    ("", "OneHot", Role::Moves),
    ("", "Pad", Role::Moves),
    ("", "RegexFullMatch", Role::Reads(&[])),
    ("", "Reshape", Role::Moves),
    ("", "ReverseSequence", Role::Moves),
    ("", "Scatter", Role::Moves),
    ("", "ScatterElements", Role::Moves),
    ("", "ScatterND", Role::Moves),
    ("", "Shape", Role::Measures),
    ("", "Size", Role::Measures),
    ("", "Slice", Role::Moves),
    ("", "SpaceToDepth", Role::Moves),
    ("", "Split", Role::Moves),
    ("", "Squeeze", Role::Moves),
    ("", "StringConcat", Role::Reads(&[0])),
    ("", "StringNormalizer", Role::Reads(&[0])),
    ("", "StringSplit", Role::Reads(&[0])),
    ("", "TfIdfVectorizer", Role::Reads(&[])),
    ("", "Tile", Role::Moves),
    ("", "Transpose", Role::Moves),
    ("", "Trilu", Role::Moves),
    ("", "Unique", Role::Sorts),
    ("", "Unsqueeze", Role::Moves),
    ("", "Where", Role::Moves),
    ("ai.onnx.ml", "ArrayFeatureExtractor", Role::Moves),
    ("ai.onnx.ml", "CategoryMapper", Role::LooksUp),
    ("ai.onnx.ml", "LabelEncoder", Role::LooksUp),
    ("ai.onnx.ml", "LinearClassifier", Role::Labels),
    ("ai.onnx.ml", "OneHotEncoder", Role::Reads(&[])),
    ("ai.onnx.ml", "SVMClassifier", Role::Labels),
    ("ai.onnx.ml", "TreeEnsembleClassifier", Role::Labels),
];

/// What the attribute `to` of a conversion into texts says.
pub(super) const TEXT: &str = "string";

fn role(call: &Call<'_, '_>) -> Option<Role> {
    ROLES.iter().find(|(domain, name, _)| *domain == call.op.domain && *name == call.op.name).map(|(_, _, role)| *role)
}

/// Texts by number: any operator that moves numbers moves texts.
pub(super) struct Numbered<'b> {
    /// all texts, one a row; the first one is empty, so that 0 is what fills up
    rows: Tensor<'b>,
    /// the number of each
    pub numbers: Vec<Tensor<'b>>,
}

impl<'b> Numbered<'b> {
    pub fn of(texts: &[Tensor<'b>]) -> Result<Numbered<'b>> {
        let (mut rows, mut numbers) = (Vec::new(), Vec::new());
        let mut next = Dim::int(1);
        for text in equally_wide(texts)? {
            let shape = text.shape()?;
            let Some((width, leading)) = shape.dims().split_last() else {
                return Err(Error::bug("texts without bytes"));
            };
            if rows.is_empty() {
                rows.push(text.builder().int(DType::U8, 0).expand(vec![Dim::int(1), width.clone()]));
            }
            let count = Shape::from(leading.to_vec()).count();
            let own = text.builder().index(&(Dim::axis(0) + &next), &Shape::new([count.clone()]));
            numbers.push(own.reshape(leading.to_vec()));
            rows.push(text.reshape(vec![count.clone(), width.clone()]));
            next = next + count;
        }
        let first = rows.first().ok_or_else(|| Error::bug("no texts are numbered"))?;
        Ok(Numbered { rows: first.builder().concat(&rows, 0), numbers })
    }

    /// The texts with these numbers.
    pub fn texts(&self, numbers: Tensor<'b>) -> Tensor<'b> {
        self.rows.take(0, numbers)
    }
}

/// What an operator of table 3 makes of operands of which some may be texts.
pub(super) fn expand<'b>(call: &Call<'_, 'b>, inputs: &[Operand<'b>]) -> Result<Vec<Operand<'b>>> {
    let texts: Vec<Tensor<'b>> =
        inputs.iter().filter_map(|input| if let Datum::Text(text) = input { Some(*text) } else { None }).collect();
    let role = role(call);
    let with = |mut given: std::vec::IntoIter<Tensor<'b>>| {
        let operand = |input: &Operand<'b>| match input {
            Datum::Text(_) => Ok(given.next()),
            other => other.optional(),
        };
        let inputs: Vec<Option<Tensor<'b>>> = inputs.iter().map(operand).collect::<Result<_>>()?;
        (call.op.expand)(&Call { inputs: &inputs, ..*call })
    };
    let plain = |results: Vec<Tensor<'b>>| results.into_iter().map(Datum::Tensor).collect();
    match role {
        Some(Role::LooksUp) => {
            let to_texts = match call.attributes.keys().find(|name| name.starts_with("values_")) {
                Some(values) => matches!(call.attributes.get(values), Some(Attribute::Strs(_))),
                None => texts.is_empty(),
            };
            let wrap = if to_texts { Datum::Text } else { Datum::Tensor };
            Ok(with(texts.into_iter())?.into_iter().map(wrap).collect())
        }
        Some(Role::Labels) if texts.is_empty() => {
            let labels = call.attributes.get("classlabels_strings");
            let are_texts = matches!(labels, Some(Attribute::Strs(list)) if !list.is_empty());
            let results = with(texts.into_iter())?.into_iter().enumerate();
            Ok(results.map(|(k, x)| if k == 0 && are_texts { Datum::Text(x) } else { Datum::Tensor(x) }).collect())
        }
        Some(Role::Converts) => {
            let named = matches!(call.attributes.get("to"), Some(Attribute::Str(to)) if to.eq_ignore_ascii_case(TEXT));
            let to_texts = named || matches!(inputs.get(1), Some(Datum::Text(_)));
            Ok(vec![match (inputs, to_texts) {
                ([Datum::Text(x), ..], true) => Datum::Text(*x),
                ([Datum::Text(x), like @ ..], false) => {
                    let like = like.first().map_or(Ok(None), Datum::optional)?;
                    let dtype = like.map_or_else(|| call.dtype("to"), |like| like.dtype().map(Some))?;
                    let missing = || Error::invalid(format!("{} does not say into what", call.op.name));
                    Datum::Tensor(numbers_of(*x, dtype.ok_or_else(missing)?))
                }
                ([Datum::Tensor(x), ..], true) => Datum::Text(texts_of(*x)),
                _ => return Ok(plain(with(texts.into_iter())?)),
            }])
        }
        _ if texts.is_empty() => Ok(plain(with(texts.into_iter())?)),
        Some(Role::Moves) => {
            let numbered = Numbered::of(&texts)?;
            let moved = with(numbered.numbers.clone().into_iter())?;
            Ok(moved.into_iter().map(|numbers| Datum::Text(numbered.texts(numbers))).collect())
        }
        Some(Role::Measures) => Ok(plain(with(Numbered::of(&texts)?.numbers.into_iter())?)),
        Some(Role::Compares) => match texts[..] {
            [x, y] if inputs.len() == 2 => Ok(vec![equal_texts(x, y)?.into()]),
            _ => Err(Error::invalid("a text is compared with something else")),
        },
        Some(Role::Sorts) => {
            let (x, axis) = slices(call, texts[0])?;
            let mut attributes = call.attributes.clone();
            attributes.insert("axis".into(), Attribute::Int(axis));
            let made = (call.op.expand)(&Call { inputs: &[Some(x)], attributes: &attributes, ..*call })?;
            Ok(made
                .into_iter()
                .enumerate()
                .map(|(k, x)| if k == 0 { Datum::Text(x) } else { Datum::Tensor(x) })
                .collect())
        }
        Some(Role::Reads(made)) => {
            let results = with(texts.into_iter())?.into_iter().enumerate();
            Ok(results.map(|(k, x)| if made.contains(&k) { Datum::Text(x) } else { Datum::Tensor(x) }).collect())
        }
        Some(Role::Labels) | None => Err(Error::unsupported(format!("{} of strings", call.op.name))),
    }
}

/// Texts and the axis that the user means: one text a row where no axis is given. Zeros behind shorter texts come before all
/// bytes, so that bytes are in the order of texts.
fn slices<'b>(call: &Call<'_, 'b>, x: Tensor<'b>) -> Result<(Tensor<'b>, i64)> {
    let shape = x.shape()?;
    let Some((width, leading)) = shape.dims().split_last() else { return Err(Error::bug("texts without bytes")) };
    let Some(axis) = call.int("axis")? else {
        let count = Shape::from(leading.to_vec()).count();
        return Ok((x.reshape(vec![count, width.clone()]), 0));
    };
    let rank = leading.len() as i64;
    if axis < -rank || axis >= rank {
        return Err(Error::invalid(format!("axis {axis} of texts with {rank} axes")));
    }
    Ok((x, axis.rem_euclid(rank)))
}

impl<'m> Importer<'m> {
    /// The texts that a Constant holds; none where it holds numbers.
    pub(super) fn constant_texts<'s>(&self, node: &NodeProto, place: Place<'_, 's>) -> Result<Option<Operand<'s>>> {
        let literal = match node.attribute.as_slice() {
            [one] if one.name == "value" => match one.t.as_deref() {
                Some(tensor) if tensor.data_type == STRING => self.file.literal(tensor)?,
                _ => return Ok(None),
            },
            [one] if one.name == "value_string" => fuseline::tensor::Literal::texts([], &[&one.s])?,
            [one] if one.name == "value_strings" => {
                fuseline::tensor::Literal::texts([one.strings.len()], &one.strings)?
            }
            _ => return Ok(None),
        };
        self.limits.check_text(literal.sizes().last().copied().unwrap_or(0))?;
        Ok(Some(Datum::Text(place.scope.builder().constant(literal))))
    }
}
