//! Commands that show what was found once more, with all that hangs on the command line.

use std::path::Path;

use fuseline::fuse::DecisionId;

use crate::arguments::{Bisect, Measuring, ModelName, NumericsName, PrecisionName};

/// Judges a model by a plan that was written.
pub fn verify(arguments: &Bisect, plan: &Path) -> String {
    let mut command = Command::new("verify", &arguments.model);
    command.path("--plan", plan).shared(arguments, &sizes(arguments));
    if arguments.seed != 0 {
        command.option("--seed", &arguments.seed.to_string());
    }
    if let Some(threads) = arguments.threads {
        command.option("--threads", &threads.to_string());
    }
    command.option("--device", arguments.device.name());
    command.0
}

/// Judges a kernel that was written as a case of its own; what it is planned for stands in its plan.
pub fn verify_case(arguments: &Bisect, [graph, inputs, plan]: [&Path; 3]) -> String {
    let mut command = Command::new("verify", &ModelName::File(graph.to_owned()));
    command.path("--plan", plan).path("--inputs", inputs);
    if let Some(threads) = arguments.threads {
        command.option("--threads", &threads.to_string());
    }
    command.option("--device", arguments.device.name());
    command.0
}

/// The code of a kernel that was written.
pub fn emit(arguments: &Bisect, tile: &Path) -> String {
    let form = match arguments.device {
        Measuring::Cpu => "asm",
        Measuring::Cuda => "cuda",
    };
    format!("fuseline kernel {} emit {form}", word(&tile.to_string_lossy()))
}

/// Shows the plan with a decision turned round; also sizes that were taken for want of others.
pub fn explain(arguments: &Bisect, id: DecisionId, assumed: &[(String, i64)]) -> String {
    let mut command = Command::new("explain", &arguments.model);
    command.option("--flip", &id.to_string());
    if arguments.target.is_none() {
        command.option("--target", arguments.device.target());
    }
    let assumed = assumed.iter().map(|(name, size)| format!("{name}={size}"));
    command.shared(arguments, &sizes(arguments).into_iter().chain(assumed).collect::<Vec<_>>());
    command.0
}

fn sizes(arguments: &Bisect) -> Vec<String> {
    arguments.sizes.iter().map(ToString::to_string).collect()
}

/// A command of ours.
struct Command(String);

impl Command {
    fn new(name: &str, model: &ModelName) -> Command {
        let model = match model {
            ModelName::Gallery(name) => format!("gallery:{name}"),
            ModelName::Demo(name) => format!("demo:{name}"),
            ModelName::File(path) => path.to_string_lossy().into_owned(),
        };
        Command(format!("fuseline {name} {}", word(&model)))
    }

    fn option(&mut self, name: &str, value: &str) -> &mut Command {
        self.0.push_str(&format!(" {name} {}", word(value)));
        self
    }

    fn path(&mut self, name: &str, path: &Path) -> &mut Command {
        self.option(name, &path.to_string_lossy())
    }

    /// What every command that plans a model takes.
    fn shared(&mut self, arguments: &Bisect, sizes: &[String]) {
        if let Some(path) = &arguments.inputs.file {
            self.path("--inputs", path);
        }
        for values in &arguments.inputs.values {
            self.option("--input", &values.to_string());
        }
        if !sizes.is_empty() {
            self.option("--sizes", &sizes.join(","));
        }
        if let Some(dtype) = arguments.dtype {
            self.option("--dtype", dtype.name());
        }
        if let Some(target) = &arguments.target {
            self.option("--target", &target.to_string_lossy());
        }
        if let Some(numerics) = arguments.numerics {
            self.option("--numerics", name_of::<NumericsName>(&numerics).as_str());
        }
        if arguments.precision != PrecisionName::F32 {
            self.option("--precision", name_of::<PrecisionName>(&arguments.precision).as_str());
        }
        for (name, value) in arguments.limits.asked_for() {
            self.option(name, &value);
        }
    }
}

/// What a choice is called on the command line.
fn name_of<T: clap::ValueEnum>(choice: &T) -> String {
    choice.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

/// A word as a shell reads it.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::arguments::{Arguments, Command as Parsed};

    /// The words of a command, as a shell would hand them on.
    fn parsed(command: &str) -> Parsed {
        Arguments::try_parse_from(command.replace('\'', "").split(' '))
            .unwrap_or_else(|e| panic!("{command}: {e}"))
            .command
    }

    #[test]
    fn all_that_matters_is_said_again() {
        let given = "fuseline bisect gallery:moe_int8 --inputs x.npz --input rate=3 --sizes tokens=16 --dtype f16 --seed 7 --target cpu \
                     --numerics strict --precision bf16 --threads 2 --device cpu --max-memory 4Gi --max-trips 5";
        let Parsed::Bisect(arguments) = parsed(given) else { panic!("it is one") };
        let Parsed::Verify(again) = parsed(&verify(&arguments, Path::new("a/bad.plan"))) else { panic!("it is one") };
        assert_eq!((again.dtype, again.seed, again.numerics), (arguments.dtype, 7, arguments.numerics));
        assert_eq!(
            (again.precision, again.threads, again.target),
            (arguments.precision, arguments.threads, arguments.target.clone())
        );
        assert_eq!(
            (again.inputs.file, again.inputs.values),
            (arguments.inputs.file.clone(), arguments.inputs.values.clone())
        );
        assert_eq!(again.limits.asked_for(), arguments.limits.asked_for());
        assert_eq!(arguments.limits.asked_for().len(), 2);
        let id = "a08280d9e049".parse().unwrap();
        let command = explain(&arguments, id, &[("features".into(), 128)]);
        assert!(command.contains("--sizes tokens=16,features=128"), "{command}");
        let Parsed::Explain(again) = parsed(&command) else { panic!("it is one") };
        assert_eq!((again.flip, again.dtype, again.numerics), (Some(id), arguments.dtype, arguments.numerics));
        let Parsed::Bisect(plain) = parsed("fuseline bisect m.onnx") else { panic!("it is one") };
        assert_eq!(verify(&plain, Path::new("b/bad.plan")), "fuseline verify m.onnx --plan b/bad.plan --device cpu");
        // Where bisect plans is not where explain does.
        assert!(explain(&plain, id, &[]).ends_with("--target here"), "{}", explain(&plain, id, &[]));
        assert_eq!(word("a b's"), r"'a b'\''s'");
    }
}
