//! One operator run alone.

use std::sync::Arc;

use fuseline::error::Result;
use fuseline::graph::Builder;
use fuseline::ops::named::{self, Attribute, Attributes, Call};
use fuseline::reference::{Options, evaluate};
use fuseline::tensor::{DType, Dim, Literal, Shape};

/// An operator with its attributes and operands.
#[derive(Clone)]
pub struct Op {
    name: &'static str,
    domain: &'static str,
    opset: u32,
    attributes: Attributes,
    inputs: Vec<Option<Literal>>,
    constants: Vec<usize>,
    outputs: usize,
}

pub fn op(name: &'static str) -> Op {
    Op {
        name,
        domain: "",
        opset: 22,
        attributes: Attributes::new(),
        inputs: Vec::new(),
        constants: Vec::new(),
        outputs: 1,
    }
}

impl Op {
    pub fn domain(mut self, domain: &'static str, opset: u32) -> Op {
        (self.domain, self.opset) = (domain, opset);
        self
    }

    pub fn opset(mut self, opset: u32) -> Op {
        self.opset = opset;
        self
    }

    pub fn with(mut self, name: &str, value: Attribute) -> Op {
        self.attributes.insert(name.to_string(), value);
        self
    }

    pub fn int(self, name: &str, value: i64) -> Op {
        self.with(name, Attribute::Int(value))
    }

    pub fn float(self, name: &str, value: f64) -> Op {
        self.with(name, Attribute::Float(value))
    }

    pub fn ints(self, name: &str, values: &[i64]) -> Op {
        self.with(name, Attribute::Ints(values.to_vec()))
    }

    pub fn str(self, name: &str, value: &str) -> Op {
        self.with(name, Attribute::Str(value.to_string()))
    }

    pub fn arg(mut self, literal: Literal) -> Op {
        self.inputs.push(Some(literal));
        self
    }

    /// An operand whose value is known beforehand.
    pub fn arg_constant(mut self, literal: Literal) -> Op {
        self.constants.push(self.inputs.len());
        self.arg(literal)
    }

    /// An operand that is left out.
    pub fn no_arg(mut self) -> Op {
        self.inputs.push(None);
        self
    }

    pub fn outputs(mut self, outputs: usize) -> Op {
        self.outputs = outputs;
        self
    }

    /// The first result as numbers; see [`Op::run`].
    pub fn values(&self) -> Vec<f64> {
        self.run()[0].to_f64s()
    }

    /// The error of a call that must fail.
    pub fn refusal(&self) -> String {
        self.evaluate(&|_, n| Dim::from(n)).unwrap_err().to_string()
    }

    /// The results, which must not depend on whether the sizes of the operands are known beforehand.
    pub fn run(&self) -> Vec<Literal> {
        let known = self.evaluate(&|_, n| Dim::from(n)).unwrap();
        let named = self.evaluate(&|name, _| Dim::named(name)).unwrap();
        for (a, b) in known.iter().zip(&named) {
            assert_eq!((a.dtype(), a.sizes()), (b.dtype(), b.sizes()), "{} with symbolic sizes", self.name);
            let same = a.to_f64s().iter().zip(b.to_f64s()).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{} with symbolic sizes: {a:?} {b:?}", self.name);
        }
        known
    }

    /// The results with the sizes of the first operand's axes behind the second one as symbols.
    fn evaluate(&self, size: &dyn Fn(&str, usize) -> Dim) -> Result<Vec<Literal>> {
        let builder = Builder::new(self.name);
        let mut operands = Vec::new();
        let mut values = rustc_hash::FxHashMap::default();
        for (k, literal) in self.inputs.iter().enumerate() {
            let Some(literal) = literal else {
                operands.push(None);
                continue;
            };
            if self.constants.contains(&k) {
                operands.push(Some(builder.constant(literal.clone())));
                continue;
            }
            let name = format!("x{k}");
            let dims = literal.sizes().iter().enumerate().map(|(axis, n)| match (k, axis) {
                (0, 0 | 2..) if *n > 1 => size(&format!("n{axis}"), *n),
                _ => Dim::from(*n),
            });
            operands.push(Some(builder.input(&name, literal.dtype(), dims.collect::<Shape>())));
            values.insert(Arc::from(name), literal.clone());
        }
        let row = named::find(self.domain, self.name).expect("the row exists");
        let call = Call {
            builder: &builder,
            op: row,
            inputs: &operands,
            attributes: &self.attributes,
            outputs: self.outputs,
            opset: self.opset,
        };
        for (k, result) in (row.expand)(&call)?.into_iter().enumerate() {
            builder.output(&format!("y{k}"), result);
        }
        evaluate(&builder.finish()?, &values, &Options::default())
    }
}

pub fn f32s(sizes: &[usize], values: &[f64]) -> Literal {
    Literal::from_f64s(DType::F32, sizes.to_vec(), values).unwrap()
}

/// Small numbers without a pattern that a wrong index could repeat; their products are exact.
pub fn noise(sizes: &[usize], seed: u64) -> Literal {
    let count: usize = sizes.iter().product();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) % 41) as f64 - 20.0
    };
    f32s(sizes, &(0..count).map(|_| next()).collect::<Vec<_>>())
}

/// All coordinates of a box, in row-major order.
pub fn coordinates(sizes: &[usize]) -> Vec<Vec<usize>> {
    let count: usize = sizes.iter().product();
    let at = |mut k: usize| {
        let mut i = vec![0; sizes.len()];
        for axis in (0..sizes.len()).rev() {
            i[axis] = k % sizes[axis];
            k /= sizes[axis];
        }
        i
    };
    (0..count).map(at).collect()
}

/// The element at coordinates, or `None` outside.
pub fn at(literal: &Literal, i: &[i64]) -> Option<f64> {
    let mut flat = 0;
    for (i, n) in i.iter().zip(literal.sizes()) {
        flat = flat * n + usize::try_from(*i).ok().filter(|i| i < n)?;
    }
    Some(literal.float(flat))
}
