//! The inputs that somebody gives, in a file or on the command line, as a model has them.

use std::io::Read;
use std::path::Path;

use fuseline::error::{Allowance, Error, Kind, Result};
use fuseline::tensor::{DType, Env, Literal, TensorType};
use fuseline_frontend::Tensors;
use fuseline_frontend::npz::{ReadOptions, read_npz, read_npz_types};
use fuseline_frontend::onnx::import::Port;

use crate::arguments::{GivenInputs, InputValues};
use crate::failure::{Failure, Outcome};
use crate::model::{Model, type_text};
use crate::screen;

/// Inputs as they were given; each must be one of the model's, and fit. Free sizes take the values they meet. A number that fills an input
/// whose sizes are not known yet is left for [`fill`].
pub fn read(model: &Model, given: &GivenInputs, env: &mut Env) -> Outcome<Tensors> {
    let mut tensors = match &given.file {
        Some(path) => read_file(model, path, env)?,
        None => Tensors::new(),
    };
    for (k, values) in given.values.iter().enumerate() {
        let name = &values.name;
        let port = port_of(model, name).map_err(|failure| failure.at("--input"))?;
        let is_again = given.values[..k].iter().any(|other| other.name == *name);
        if is_again || tensors.contains_key(name) {
            let error = Error::invalid(format!("\"{name}\" is given twice")).at("--input");
            return Err(Failure::with_help(error, "give all elements at once: NAME=1,2,3; or in the file alone"));
        }
        let place = |failure: Failure| failure.at(format!("input \"{name}\"")).at("--input");
        if values.is_list {
            let tensor = listed(port, values, env).map_err(place)?;
            check(port, &tensor.ty(), env).map_err(place)?;
            tensors.insert(name.clone(), tensor);
        } else {
            element(port, &values.elements[0]).map_err(place)?;
        }
    }
    fill(model, given, env, &mut tensors)?;
    Ok(tensors)
}

/// Makes the inputs that one number fills, as far as their sizes are known.
pub fn fill(model: &Model, given: &GivenInputs, env: &Env, tensors: &mut Tensors) -> Outcome {
    for InputValues { name, elements, is_list } in &given.values {
        if *is_list || tensors.contains_key(name) {
            continue;
        }
        let text = &elements[0];
        let port = port_of(model, name)?;
        let place = |failure: Failure| failure.at(format!("input \"{name}\"")).at("--input");
        let sizes = match &port.shape {
            // Somebody who gives one number for what has no declared axes means one number.
            None => Vec::new(),
            Some(shape) => match shape.eval(env) {
                Ok(sizes) => sizes,
                Err(_) => continue,
            },
        };
        let filled = element(port, text).and_then(|bits| Ok(splat(port.dtype, sizes, bits, model.drawn)?));
        tensors.insert(name.clone(), filled.map_err(place)?);
    }
    Ok(())
}

/// A tensor of equal elements, within a limit of bytes.
fn splat(dtype: DType, sizes: Vec<usize>, bits: u64, limit: u64) -> Result<Literal> {
    let count = sizes.iter().try_fold(1, |count: usize, size| count.checked_mul(*size));
    let bytes = count.and_then(|count| dtype.bytes(count)).map_or(u64::MAX, |bytes| bytes as u64);
    match count {
        Some(count) if bytes <= limit => Literal::from_bits(dtype, sizes, std::iter::repeat_n(bits, count)),
        _ => Err(Error::over(Allowance::Memory, format!("{bytes} bytes to fill (the limit is {limit} bytes)"))),
    }
}

/// Elements in order: a row where the input has one axis, and otherwise as many as the input has.
fn listed(port: &Port, values: &InputValues, env: &Env) -> Outcome<Literal> {
    let count = values.elements.len();
    let elements = values.elements.iter().map(|text| element(port, text)).collect::<Outcome<Vec<u64>>>()?;
    let sizes = match port.shape.as_ref().filter(|shape| shape.rank() != 1) {
        None => vec![count],
        Some(shape) => {
            let known = shape.eval(env).ok().filter(|sizes| sizes.iter().product::<usize>() == count);
            known.ok_or_else(|| {
                let error = Error::invalid(format!("{count} numbers where {} is wanted", type_text(port, env)));
                Failure::with_help(error, "give one number, which fills it, all of its elements, or --inputs X.npz")
            })?
        }
    };
    Ok(Literal::from_bits(port.dtype, sizes, elements.into_iter())?)
}

/// The low bits of one element.
fn element(port: &Port, text: &str) -> Outcome<u64> {
    let dtype = port.dtype;
    if port.is_text {
        let error = Error::invalid(format!("{text} where strings are wanted"));
        return Err(Failure::with_help(error, "give them with --inputs X.npz, as an array of strings"));
    }
    let refuse = |why: &str| Failure::from(Error::invalid(format!("{text} {why} where {dtype} is wanted")));
    if dtype == DType::Bool {
        return match text {
            "true" | "True" | "1" => Ok(1),
            "false" | "False" | "0" => Ok(0),
            _ => Err(refuse("is neither true nor false")),
        };
    }
    if dtype.is_float() {
        let bits = text.parse().map(|x| dtype.to_bits(x)).map_err(|_| refuse("is no number"))?;
        // A number with digits is meant to be one.
        return match dtype.from_bits(bits).is_infinite() && text.contains(|c: char| c.is_ascii_digit()) {
            true => Err(refuse("is too large (infinity is written inf)")),
            false => Ok(bits),
        };
    }
    let number = whole_number(text).ok_or_else(|| refuse("is no whole number"))?;
    if dtype.wrap(number) != number {
        return Err(refuse("is too large or too small"));
    }
    Ok(number as u64)
}

/// A whole number, which may be written as `1e3` or `2.0` too; where it is larger than any integer, the largest one.
fn whole_number(text: &str) -> Option<i128> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let places = exponent.parse::<i32>().ok()?.checked_sub(fraction.len().try_into().ok()?)?;
    let by = 10i128.saturating_pow(places.unsigned_abs());
    match places {
        0.. => Some(digits.saturating_mul(by)),
        _ => (digits % by == 0).then(|| digits / by),
    }
}

/// The input of this name.
fn port_of<'m>(model: &'m Model, name: &str) -> Outcome<&'m Port> {
    let ports = || model.signature.inputs.iter().chain(&model.signature.defaults);
    ports().find(|port| port.has(name)).ok_or_else(|| {
        let names: Vec<_> = ports().map(|port| screen::spelt_out(&port.name)).collect();
        let error = Error::invalid(format!("the model has no input called \"{name}\""));
        Failure::with_help(error, format!("the model's inputs are {}", names.join(", ")))
    })
}

fn read_file(model: &Model, path: &Path, env: &mut Env) -> Outcome<Tensors> {
    let expected = |name: &str| port_of(model, name).ok().map(|port| port.dtype);
    let fit = |name: &str, ty: &TensorType, env: &mut Env| {
        let port = port_of(model, name).map_err(|failure| failure.at(path.display().to_string()))?;
        let place = |failure: Failure| failure.at(format!("input \"{name}\"")).at(path.display().to_string());
        // The elements of a sequence share no sizes.
        let mut own = port.form.is_sequence().then(|| env.clone());
        check(port, ty, own.as_mut().unwrap_or(env)).map_err(place)
    };
    let mut declared = env.clone();
    let accept = &mut |name: &str, ty: Option<&TensorType>| match ty {
        Some(ty) => fit(name, ty, &mut declared),
        None => port_of(model, name).map(drop).map_err(|failure| failure.at(path.display().to_string())),
    };
    let given = read_arrays(path, model.drawn, &expected, accept)?;
    for (name, tensor) in &given {
        fit(name, &tensor.ty(), env)?;
    }
    Ok(given)
}

/// Reads arrays by name from a .npz file, of no more bytes than this; `expected` tells the element type that is wanted of an array, and
/// `accept` refuses one by its name and type (none where it is made of texts) before it is read.
pub fn read_arrays(
    path: &Path,
    max_bytes: u64,
    expected: &dyn Fn(&str) -> Option<DType>,
    accept: &mut dyn FnMut(&str, Option<&TensorType>) -> Outcome,
) -> Outcome<Tensors> {
    let options = ReadOptions { expected, max_bytes };
    let refused = |error| not_arrays(path, error);
    for (name, ty) in read_npz_types(path, &options).map_err(refused)? {
        accept(&name, ty.as_ref())?;
    }
    read_npz(path, &options).map_err(refused)
}

/// Why a file holds no arrays that can be read.
fn not_arrays(path: &Path, error: Error) -> Failure {
    const SAVE: &str = "numpy.savez('x.npz', NAME=array) writes such a file";
    if matches!(error.kind(), Kind::Limit | Kind::Exhausted) {
        return error.into();
    }
    if error.kind() == Kind::Unsupported {
        let why = "NumPy has kinds of elements that no model takes";
        return Failure::explained(error, why, "give arrays of numbers, truth values or strings");
    }
    let mut start = [0; 6];
    let begun = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    if begun.is_ok() && start == *b"\x93NUMPY" {
        let error = Error::invalid("one array without a name (.npy), not arrays by name (.npz)");
        return Failure::with_help(error.at(path.display().to_string()), SAVE);
    }
    Failure::not_read(path, error, SAVE)
}

/// Whether a tensor of this type is what an input wants; free sizes take the values they meet.
fn check(port: &Port, found: &TensorType, env: &mut Env) -> Outcome {
    let refuse = |env: &Env| Error::invalid(format!("{found} where {} is wanted", type_text(port, env)));
    if found.dtype != port.dtype {
        if port.is_text {
            return Err(Failure::with_help(refuse(env), "give an array of strings"));
        }
        return Err(Failure::with_help(refuse(env), as_type(port.dtype)));
    }
    let Some(shape) = &port.shape else { return Ok(()) };
    if shape.rank() != found.shape.rank() {
        return Err(refuse(env).into());
    }
    for (dim, size) in shape.dims().iter().zip(found.shape.dims()) {
        match dim.as_symbol() {
            Some(symbol) if env.get(symbol).is_none() => {
                env.bind(symbol.clone(), size.as_int().unwrap_or(i64::MAX));
            }
            _ if env.apply(dim).surely_differs(size) => return Err(refuse(env).into()),
            _ => {}
        }
    }
    Ok(())
}

/// What helps where an array has another element type than this one.
pub fn as_type(dtype: DType) -> String {
    format!("convert the array, for instance by .astype({})", numpy_name(dtype))
}

fn numpy_name(dtype: DType) -> String {
    match dtype {
        DType::Bool => "bool".into(),
        DType::BF16 => "ml_dtypes.bfloat16".into(),
        _ => {
            let kind = if dtype.is_float() {
                "float"
            } else if dtype.name().starts_with('u') {
                "uint"
            } else {
                "int"
            };
            format!("numpy.{kind}{}", dtype.bits())
        }
    }
}
