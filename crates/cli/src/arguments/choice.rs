//! Choices that several commands offer.

use clap::ValueEnum;
use fuseline::analyzer::Policy;
use fuseline::error::Error;
use fuseline::fuse;
use fuseline::passes::{Numerics, Precision};
use fuseline::reference::Reading;

use crate::failure::{Failure, Outcome};

/// How far arithmetic may be rearranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NumericsName {
    /// every operation, every rounding and every sign of a zero as written; the order in which the terms of one sum are added up is
    /// the device's
    Strict,
    /// what is true of real numbers: a zero may have the other sign; constants that are joined stay within the range of their type, but
    /// in another order sums and products, or sums before they are scaled (by 2⁻²⁰ to 2²⁰), can overflow where the model does not; inside
    /// of a kernel f16 and bf16 may be held as f32, without their roundings and overflows, a conversion to them and back included
    Default,
    /// also what overflows or loses subnormal numbers more easily: products of divisors, reciprocals of any number, parts of exponentials
    Fast,
}

impl NumericsName {
    pub fn numerics(self) -> Numerics {
        match self {
            NumericsName::Strict => Numerics::Strict,
            NumericsName::Default => Numerics::Default,
            NumericsName::Fast => Numerics::Fast,
        }
    }
}

/// The type in which a network of f32 is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PrecisionName {
    /// as the model says
    F32,
    /// bf16: on a processor factors of contractions, on a GPU also all that kernels hand on; sums and arithmetic stay f32
    Bf16,
    /// f16, likewise; what is above 65504 becomes infinite
    F16,
}

impl PrecisionName {
    /// The precision, which must go with the numerics.
    pub fn precision(self, numerics: Numerics) -> Outcome<Precision> {
        let precision = match self {
            PrecisionName::F32 => Precision::F32,
            PrecisionName::Bf16 => Precision::Bf16,
            PrecisionName::F16 => Precision::F16,
        };
        if precision != Precision::F32 && numerics == Numerics::Strict {
            let why = format!("{} rounds what strict numerics keep", precision.name());
            let help =
                "leave --numerics strict out, or leave --precision out and keep every number as the model has it";
            return Err(Failure::with_help(Error::invalid(why).at("--precision"), help));
        }
        Ok(precision)
    }
}

/// Who has the last word on a fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// microseconds
    Cost,
    /// what texts on fusion refuse is refused
    Textbook,
}

impl PolicyName {
    pub fn policy(self) -> Policy {
        match self {
            PolicyName::Cost => Policy::ByCost,
            PolicyName::Textbook => Policy::Textbook,
        }
    }

    pub fn of_plans(self) -> fuse::Policy {
        match self {
            PolicyName::Cost => fuse::Policy::Microseconds,
            PolicyName::Textbook => fuse::Policy::Textbook,
        }
    }
}

/// How the interpreters read floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReadingName {
    /// f64 inside, rounded where the model says so and at the outputs
    Exact,
    /// every result rounded to its element type
    Rounded,
}

impl ReadingName {
    pub fn name(self) -> &'static str {
        match self {
            ReadingName::Exact => "exact",
            ReadingName::Rounded => "rounded",
        }
    }

    pub fn reading(self) -> Reading {
        match self {
            ReadingName::Exact => Reading::Exact,
            ReadingName::Rounded => Reading::Rounded,
        }
    }
}
