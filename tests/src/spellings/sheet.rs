//! What a spelling is written with: operators by the names and attributes that files have.

use fuseline::error::{Error, Result};
use fuseline::graph::{Builder, Graph, Tensor};
use fuseline::ops::named::{self, Attribute, Attributes, Call};
use fuseline::tensor::{DType, Dim, Literal, Shape};

/// The version of the standard operator set, where a row does not ask for another.
const OPSET: u32 = 22;

/// A graph under construction.
#[derive(Debug)]
pub struct Sheet {
    builder: Builder,
}

/// An operator with its attributes, not yet applied.
#[derive(Debug)]
pub struct Op<'s> {
    sheet: &'s Sheet,
    name: &'static str,
    domain: &'static str,
    opset: u32,
    attributes: Attributes,
}

impl Sheet {
    /// An empty sheet.
    pub fn new(name: &str) -> Sheet {
        Sheet { builder: Builder::new(name) }
    }

    /// The graph, or the first error.
    pub fn finish(self) -> Result<Graph> {
        self.builder.finish()
    }

    /// Where primitives go.
    pub fn builder(&self) -> &Builder {
        &self.builder
    }

    /// An input; sizes are numbers or names, as in `n, s, 96`.
    pub fn input(&self, name: &str, dtype: DType, sizes: &str) -> Tensor<'_> {
        let dims = sizes.split(',').map(|size| Dim::parse(size.trim()));
        match dims.collect::<Result<Shape>>() {
            Ok(shape) => self.builder.input(name, dtype, shape),
            Err(error) => self.builder.fail(error),
        }
    }

    /// An f32 input.
    pub fn floats(&self, name: &str, sizes: &str) -> Tensor<'_> {
        self.input(name, DType::F32, sizes)
    }

    /// Names a result.
    pub fn output(&self, name: &str, value: Tensor<'_>) {
        self.builder.output(name, value);
    }

    /// A constant f32 scalar.
    pub fn number(&self, x: f64) -> Tensor<'_> {
        self.builder.scalar(DType::F32, x)
    }

    /// A constant scalar of a type.
    pub fn number_as(&self, dtype: DType, x: f64) -> Tensor<'_> {
        self.builder.scalar(dtype, x)
    }

    /// A constant i64 scalar.
    pub fn int(&self, n: i64) -> Tensor<'_> {
        self.builder.int(DType::I64, n)
    }

    /// A constant vector of i64.
    pub fn ints(&self, values: &[i64]) -> Tensor<'_> {
        self.builder.constant(Literal::i64s(values))
    }

    /// A constant table, from its coordinates.
    pub fn table(&self, dtype: DType, sizes: &[usize], value: impl Fn(&[usize]) -> f64) -> Tensor<'_> {
        let count: usize = sizes.iter().product();
        let mut index = vec![0; sizes.len()];
        let mut values = Vec::with_capacity(count);
        for k in 0..count {
            let mut rest = k;
            for (i, size) in index.iter_mut().zip(sizes).rev() {
                (*i, rest) = (rest % size, rest / size);
            }
            values.push(value(&index));
        }
        match Literal::from_f64s(dtype, sizes.to_vec(), &values) {
            Ok(literal) => self.builder.constant(literal),
            Err(error) => self.builder.fail(error),
        }
    }

    /// A standard operator, to be given attributes.
    pub fn op(&self, name: &'static str) -> Op<'_> {
        Op { sheet: self, name, domain: "", opset: OPSET, attributes: Attributes::new() }
    }

    /// An operator of ONNX Runtime's own set.
    pub fn contributed(&self, name: &'static str) -> Op<'_> {
        Op { domain: "com.microsoft", opset: 1, ..self.op(name) }
    }

    /// A standard operator without attributes.
    pub fn call<'s>(&'s self, name: &'static str, inputs: &[Tensor<'s>]) -> Tensor<'s> {
        self.op(name).of(inputs)
    }

    /// `Cast`.
    pub fn cast<'s>(&'s self, x: Tensor<'s>, dtype: DType) -> Tensor<'s> {
        self.op("Cast").str("to", dtype.name()).of(&[x])
    }

    /// `Transpose`.
    pub fn transpose<'s>(&'s self, x: Tensor<'s>, perm: &[i64]) -> Tensor<'s> {
        self.op("Transpose").ints("perm", perm).of(&[x])
    }

    /// `Reshape` to constant sizes; 0 copies, -1 is what is left over.
    pub fn reshape<'s>(&'s self, x: Tensor<'s>, sizes: &[i64]) -> Tensor<'s> {
        self.call("Reshape", &[x, self.ints(sizes)])
    }

    /// `Unsqueeze`.
    pub fn unsqueeze<'s>(&'s self, x: Tensor<'s>, axes: &[i64]) -> Tensor<'s> {
        self.call("Unsqueeze", &[x, self.ints(axes)])
    }

    /// `Shape` and `Gather`: a size as an i64 scalar.
    pub fn size<'s>(&'s self, x: Tensor<'s>, axis: i64) -> Tensor<'s> {
        self.call("Gather", &[self.call("Shape", &[x]), self.int(axis)])
    }

    /// Scalars and sizes as the vector that `Reshape` and `Expand` take: each unsqueezed, all concatenated.
    pub fn vector<'s>(&'s self, parts: &[Tensor<'s>]) -> Tensor<'s> {
        let parts: Vec<Tensor<'s>> = parts.iter().map(|p| self.unsqueeze(*p, &[0])).collect();
        self.op("Concat").int("axis", 0).of(&parts)
    }

    /// `Slice` with constant bounds along one axis.
    pub fn slice<'s>(&'s self, x: Tensor<'s>, axis: i64, start: i64, end: i64) -> Tensor<'s> {
        self.call("Slice", &[x, self.ints(&[start]), self.ints(&[end]), self.ints(&[axis])])
    }

    /// `Slice` up to a size known at run time.
    pub fn slice_to<'s>(&'s self, x: Tensor<'s>, axis: i64, start: Tensor<'s>, end: Tensor<'s>) -> Tensor<'s> {
        let vector = |x: Tensor<'s>| self.unsqueeze(x, &[0]);
        self.call("Slice", &[x, vector(start), vector(end), self.ints(&[axis])])
    }

    /// `Split` into equal parts.
    pub fn split<'s>(&'s self, x: Tensor<'s>, axis: i64, parts: usize) -> Vec<Tensor<'s>> {
        self.op("Split").int("axis", axis).int("num_outputs", parts as i64).all(&[x], parts)
    }

    /// `Concat`.
    pub fn concat<'s>(&'s self, parts: &[Tensor<'s>], axis: i64) -> Tensor<'s> {
        self.op("Concat").int("axis", axis).of(parts)
    }

    /// A reduction that keeps its axis, the axis given as a second operand.
    pub fn reduce<'s>(&'s self, name: &'static str, x: Tensor<'s>, axis: i64) -> Tensor<'s> {
        self.call(name, &[x, self.ints(&[axis])])
    }

    /// `Softmax`.
    pub fn softmax<'s>(&'s self, x: Tensor<'s>, axis: i64) -> Tensor<'s> {
        self.op("Softmax").int("axis", axis).of(&[x])
    }
}

macro_rules! operators {
    ($($method:ident $name:literal ($($arg:ident)+);)+) => {
        impl Sheet {
            $(#[doc = concat!("`", $name, "`.")]
            pub fn $method<'s>(&'s self, $($arg: Tensor<'s>),+) -> Tensor<'s> {
                self.call($name, &[$($arg),+])
            })+
        }
    };
}

operators! {
    add "Add" (a b);
    sub "Sub" (a b);
    mul "Mul" (a b);
    div "Div" (a b);
    pow "Pow" (a b);
    matmul "MatMul" (a b);
    choose "Where" (condition yes no);
    expand "Expand" (x shape);
    gather "Gather" (x indices);
    sqrt "Sqrt" (x);
    neg "Neg" (x);
    exp "Exp" (x);
    erf "Erf" (x);
    tanh "Tanh" (x);
    sigmoid "Sigmoid" (x);
    reciprocal "Reciprocal" (x);
}

impl<'s> Op<'s> {
    /// With an attribute.
    pub fn with(mut self, name: &str, value: Attribute) -> Op<'s> {
        self.attributes.insert(name.to_owned(), value);
        self
    }

    /// With an integer attribute.
    pub fn int(self, name: &str, value: i64) -> Op<'s> {
        self.with(name, Attribute::Int(value))
    }

    /// With integers as an attribute.
    pub fn ints(self, name: &str, values: &[i64]) -> Op<'s> {
        self.with(name, Attribute::Ints(values.to_vec()))
    }

    /// With a float attribute, which files hold as f32.
    pub fn float(self, name: &str, value: f64) -> Op<'s> {
        self.with(name, Attribute::Float(f64::from(value as f32)))
    }

    /// With a text attribute.
    pub fn str(self, name: &str, value: &str) -> Op<'s> {
        self.with(name, Attribute::Str(value.to_owned()))
    }

    /// Of another version of the operator set.
    pub fn opset(self, opset: u32) -> Op<'s> {
        Op { opset, ..self }
    }

    /// The first result.
    pub fn of(self, inputs: &[Tensor<'s>]) -> Tensor<'s> {
        self.all(inputs, 1)[0]
    }

    /// All results.
    pub fn all(self, inputs: &[Tensor<'s>], outputs: usize) -> Vec<Tensor<'s>> {
        self.some(&inputs.iter().copied().map(Some).collect::<Vec<_>>(), outputs)
    }

    /// All results of a call that leaves operands out.
    pub fn some(self, inputs: &[Option<Tensor<'s>>], outputs: usize) -> Vec<Tensor<'s>> {
        let builder = &self.sheet.builder;
        let expanded = named::find(self.domain, self.name)
            .ok_or_else(|| Error::invalid(format!("there is no operator {}", self.name)))
            .and_then(|op| {
                let attributes = &self.attributes;
                (op.expand)(&Call { builder, op, inputs, attributes, outputs, opset: self.opset })
            });
        match expanded {
            Ok(results) => results.into_iter().chain(std::iter::repeat(builder.poison())).take(outputs).collect(),
            Err(error) => vec![builder.fail(error); outputs],
        }
    }
}
