//! Inputs that the user gives, in a file or in words.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

/// Inputs that the user gives.
#[derive(Clone, Debug, Default, Args)]
pub struct GivenInputs {
    /// Read inputs by name from this .npz file (where a model is planned only: their sizes, and values that its structure hangs on)
    #[arg(id = "inputs", long = "inputs", value_name = "X.npz")]
    pub file: Option<PathBuf>,
    /// Give an input its elements: one number fills it whatever its sizes are, several (or one before a comma) are taken in order; for other
    /// inputs again
    #[arg(id = "input", long = "input", value_name = "NAME=NUMBER,…")]
    pub values: Vec<InputValues>,
}

/// The elements of an input, as they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputValues {
    pub name: String,
    /// one or more
    pub elements: Vec<String>,
    /// whether these are all elements; otherwise there is one, which fills the input
    pub is_list: bool,
}

impl fmt::Display for InputValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.is_list && self.elements.len() == 1 { "," } else { "" };
        write!(f, "{}={}{end}", self.name, self.elements.join(","))
    }
}

impl FromStr for InputValues {
    type Err = String;

    fn from_str(text: &str) -> Result<InputValues, String> {
        let Some((name, elements)) = text.rsplit_once('=') else {
            return Err("an input is given as NAME=NUMBER, such as rate=16000, or NAME=NUMBER,NUMBER,…".into());
        };
        let name = name.trim();
        if name.is_empty() {
            return Err("the name before = is missing".into());
        }
        let is_list = elements.contains(',');
        let elements = elements.strip_suffix(',').unwrap_or(elements);
        let elements: Vec<String> = elements.split(',').map(|element| element.trim().to_string()).collect();
        if elements.iter().any(String::is_empty) {
            return Err(format!("a number for {name} is missing"));
        }
        Ok(InputValues { name: name.into(), elements, is_list })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_as_they_are_written() {
        for text in ["rate=16000", "a=b=1", "x=1,-2.5e3,true", "axes=1,"] {
            assert_eq!(text.parse::<InputValues>().unwrap().to_string(), text);
        }
        for wrong in ["rate", "=1", "x=", "x=1,,2", "x=,"] {
            assert!(wrong.parse::<InputValues>().is_err(), "{wrong}");
        }
    }
}
