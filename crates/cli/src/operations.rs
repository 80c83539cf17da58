//! Operations in a JSON file: reading them with errors by line, and numbers for the sizes that they name.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use fuseline::analysis::scorecard::Bottleneck;
use fuseline::analyzer::{Operation, Tensor};
use fuseline::error::{Context as _, Error, Result};
use fuseline::ops::prim::Class;
use fuseline::tensor::{DType, Dim, Env, Symbol};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::arguments::SizeBinding;

/// A number of operations is not looked at beyond this: the search for candidates looks at pairs.
const MOST_OPERATIONS: usize = 10_000;

/// Reads the operations of a file, with `given` in place of the file's own sizes.
pub fn read(path: &Path, given: &[SizeBinding]) -> Result<Vec<Operation>> {
    let place = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| Error::invalid(format!("cannot be read: {e}")).at(&place))?;
    parse(&text).and_then(|file| file.resolve(given)).map_err(|error| error.at(&place))
}

fn parse(text: &str) -> Result<File> {
    let parsed = match text.trim_start().starts_with('[') {
        true => serde_json::from_str(text).map(|operations| File { operations, ..File::default() }),
        false => serde_json::from_str(text),
    };
    parsed.map_err(|error| {
        let message = error.to_string();
        let suffix = format!(" at line {} column {}", error.line(), error.column());
        let message = message.strip_suffix(&suffix).unwrap_or(&message);
        let place = format!("line {}, column {}", error.line(), error.column());
        Error::invalid(message).at(place)
    })
}

/// The whole file; a list of operations alone will do.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a list of operations, or {\"sizes\", \"dtype\", \"tensors\", \"operations\"}"
)]
struct File {
    /// numbers for the names that shapes mention
    #[serde(default)]
    sizes: BTreeMap<String, i64>,
    /// element type of tensors that have none of their own
    dtype: Option<TypeName>,
    #[serde(default)]
    tensors: BTreeMap<String, TensorEntry>,
    operations: Vec<OperationEntry>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "an operation: {\"name\", \"inputs\", \"outputs\", …}")]
struct OperationEntry {
    name: String,
    #[serde(default)]
    inputs: Vec<TensorEntry>,
    outputs: Vec<TensorEntry>,
    kind: Option<KindName>,
    #[serde(default)]
    elementwise: bool,
    bound: Option<BoundName>,
    flops: Option<Formula>,
    intensity: Option<f64>,
    registers: Option<f64>,
    block: Option<usize>,
}

/// What an operation does with its elements, by the words that users have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum KindName {
    Elementwise,
    Reduction,
    Contraction,
    Movement,
    Gather,
    Control,
    Opaque,
}

impl KindName {
    fn class(self) -> Class {
        match self {
            KindName::Elementwise => Class::Map,
            KindName::Reduction => Class::Reduce,
            KindName::Contraction => Class::Contract,
            KindName::Movement => Class::View,
            KindName::Gather => Class::Index,
            KindName::Control => Class::Control,
            KindName::Opaque => Class::Opaque,
        }
    }
}

/// The word for a class.
pub fn kind_name(class: Class) -> &'static str {
    match class {
        Class::Source => "source",
        Class::Map => "elementwise",
        Class::Reduce => "reduction",
        Class::Contract => "contraction",
        Class::View => "movement",
        Class::Index => "gather",
        Class::Control => "control",
        Class::Opaque => "opaque",
    }
}

#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum BoundName {
    Memory,
    Compute,
}

#[derive(Clone, Copy, Debug)]
struct TypeName(DType);

impl<'de> Deserialize<'de> for TypeName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<TypeName, D::Error> {
        let name = String::deserialize(from)?;
        let unknown = || de::Error::custom(format!("\"{name}\" is no element type; f32, f16, bf16 and i8 are some"));
        DType::from_name(&name).map(TypeName).ok_or_else(unknown)
    }
}

/// A number, or an expression in the sizes such as `"batch*128"`.
#[derive(Clone, Debug)]
enum Formula {
    Number(f64),
    Sizes(Dim),
}

impl<'de> Deserialize<'de> for Formula {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Formula, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Formula;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or text with an expression in the sizes such as \"batch*128\"")
            }

            fn visit_u64<E: de::Error>(self, n: u64) -> std::result::Result<Formula, E> {
                Ok(Formula::Number(n as f64))
            }

            fn visit_i64<E: de::Error>(self, n: i64) -> std::result::Result<Formula, E> {
                Ok(Formula::Number(n as f64))
            }

            fn visit_f64<E: de::Error>(self, x: f64) -> std::result::Result<Formula, E> {
                Ok(Formula::Number(x))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Formula, E> {
                let dim = Dim::parse(text).map_err(|e| E::custom(format!("\"{text}\": {}", e.message())))?;
                Ok(Formula::Sizes(dim))
            }
        }
        from.deserialize_any(Reader)
    }
}

/// A tensor: its name, its shape, or an object with all that is known of it.
#[derive(Clone, Debug, Default)]
struct TensorEntry {
    name: Option<String>,
    shape: Option<Vec<Formula>>,
    dtype: Option<TypeName>,
    bytes: Option<Formula>,
    constant: Option<bool>,
}

impl<'de> Deserialize<'de> for TensorEntry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<TensorEntry, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            name: Option<String>,
            shape: Option<Vec<Formula>>,
            dtype: Option<TypeName>,
            bytes: Option<Formula>,
            constant: Option<bool>,
        }
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = TensorEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tensor: its name, its shape as a list, or {\"name\", \"shape\", \"dtype\", \"bytes\", \"constant\"}")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> std::result::Result<TensorEntry, E> {
                Ok(TensorEntry { name: Some(name.to_string()), ..TensorEntry::default() })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> std::result::Result<TensorEntry, A::Error> {
                let shape = Vec::deserialize(de::value::SeqAccessDeserializer::new(list))?;
                Ok(TensorEntry { shape: Some(shape), ..TensorEntry::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<TensorEntry, A::Error> {
                let Fields { name, shape, dtype, bytes, constant } =
                    Fields::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(TensorEntry { name, shape, dtype, bytes, constant })
            }
        }
        from.deserialize_any(Reader)
    }
}

impl File {
    fn resolve(&self, given: &[SizeBinding]) -> Result<Vec<Operation>> {
        if self.operations.len() > MOST_OPERATIONS {
            return Err(Error::limit(format!("{} operations, over {MOST_OPERATIONS}", self.operations.len())));
        }
        let given = given.iter().map(|binding| match &binding.name {
            Some(name) => Ok((name.as_str(), binding.size)),
            None => Err(Error::invalid(format!("which size is {}? NAME={0} says it", binding.size)).at("--sizes")),
        });
        let given: Vec<(&str, i64)> = given.collect::<Result<_>>()?;
        let mut env = Env::new();
        for (name, size) in self.sizes.iter().map(|(n, s)| (n.as_str(), *s)).chain(given.iter().copied()) {
            if size < 0 {
                return Err(Error::invalid(format!("size \"{name}\" is below zero")));
            }
            env.bind(Symbol::name(name), size);
        }
        let mentioned = self.mentioned();
        if let Some((unknown, _)) = given.iter().find(|(name, _)| !mentioned.iter().any(|other| other == name)) {
            let error = Error::invalid(format!("no shape mentions a size called \"{unknown}\""));
            return Err(error.at("--sizes"));
        }
        let used: Vec<&str> = self
            .operations
            .iter()
            .flat_map(|o| o.inputs.iter().chain(&o.outputs))
            .filter_map(|t| t.name.as_deref())
            .collect();
        if let Some(unused) = self.tensors.keys().find(|name| !used.contains(&name.as_str())) {
            return Err(Error::invalid(format!("tensor \"{unused}\" is read and written by no operation")));
        }
        let operations = self.operations.iter();
        operations.map(|entry| self.operation(entry, &env).at(|| format!("operation \"{}\"", entry.name))).collect()
    }

    /// The names that shapes and numbers mention.
    fn mentioned(&self) -> Vec<String> {
        let mut names = Vec::new();
        let ports = self.operations.iter().flat_map(|o| o.inputs.iter().chain(&o.outputs)).chain(self.tensors.values());
        let sizes = ports.flat_map(|t| t.shape.iter().flatten().chain(&t.bytes));
        for formula in sizes.chain(self.operations.iter().filter_map(|o| o.flops.as_ref())) {
            if let Formula::Sizes(dim) = formula {
                dim.for_each_symbol(&mut |symbol| names.push(symbol.to_string()));
            }
        }
        names
    }

    fn operation(&self, entry: &OperationEntry, env: &Env) -> Result<Operation> {
        let class = match (entry.elementwise, entry.kind) {
            (true, Some(kind)) if kind != KindName::Elementwise => {
                return Err(Error::invalid("it is said to be elementwise and of another kind"));
            }
            (true, _) => Some(Class::Map),
            (false, kind) => kind.map(KindName::class),
        };
        let tensors = |list: &[TensorEntry]| list.iter().map(|t| self.tensor(t, env)).collect::<Result<Vec<_>>>();
        Ok(Operation {
            name: entry.name.clone(),
            inputs: tensors(&entry.inputs)?,
            outputs: tensors(&entry.outputs)?,
            class,
            bottleneck: entry.bound.map(|bound| match bound {
                BoundName::Memory => Bottleneck::Memory,
                BoundName::Compute => Bottleneck::Compute,
            }),
            flops: entry.flops.as_ref().map(|f| number(f, env)).transpose().at(|| "flops")?,
            intensity: entry.intensity,
            registers: entry.registers,
            block: entry.block,
        })
    }

    /// A tensor with what the table of tensors adds to it.
    fn tensor(&self, entry: &TensorEntry, env: &Env) -> Result<Tensor> {
        let Some(name) = entry.name.clone() else {
            return Err(Error::invalid("a tensor of an operation has no name"));
        };
        let place = || format!("tensor \"{name}\"");
        let table = self.tensors.get(&name);
        if table.and_then(|t| t.name.as_ref()).is_some_and(|other| *other != name) {
            return Err(Error::invalid("its entry in \"tensors\" has another name").at(place()));
        }
        let shape = entry.shape.as_ref().or(table.and_then(|t| t.shape.as_ref()));
        let bytes = entry.bytes.as_ref().or(table.and_then(|t| t.bytes.as_ref()));
        let own = entry.dtype.or(table.and_then(|t| t.dtype)).or(self.dtype);
        let size = |formula: &Formula| -> Result<usize> {
            let x = number(formula, env)?;
            if x >= 0.0 && x.fract() == 0.0 && x < 9e15 {
                Ok(x as usize)
            } else {
                Err(Error::invalid(format!("{x} is no size")))
            }
        };
        Ok(Tensor {
            shape: shape.map(|s| s.iter().map(size).collect()).transpose().at(place)?,
            dtype: own.map(|t| t.0),
            bytes: bytes.map(|b| number(b, env)).transpose().at(place)?,
            constant: entry.constant.or(table.and_then(|t| t.constant)),
            name: name.clone(),
        })
    }
}

fn number(formula: &Formula, env: &Env) -> Result<f64> {
    match formula {
        Formula::Number(x) => Ok(*x),
        Formula::Sizes(dim) => {
            let mut open = Vec::new();
            env.apply(dim).for_each_symbol(&mut |symbol| open.push(symbol.to_string()));
            match open.first() {
                Some(name) => Err(Error::invalid(format!(
                    "size \"{name}\" has no number: write \"sizes\": {{\"{name}\": 8}}, or give --sizes {name}=8"
                ))),
                None => dim.eval(env).map(|n| n as f64),
            }
        }
    }
}
