//! `fuseline kernel`: a kernel that somebody wrote, checked, run, measured and translated.

mod feed;
mod measure;
mod run;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;

use fuseline::device::{DeviceSpec, Machine};
use fuseline::error::Error;
use fuseline::fuse::scheduled;
use fuseline::lower::{Hints, Refusal};
use fuseline::ops::prim::Monoid;
use fuseline::ops::{ExprNode, Scalar};
use fuseline::tensor::{Env, Symbol};
use fuseline::tile::{self, Op, Schedule, Source};
use fuseline_cpu::here;
use fuseline_cuda::print;
use serde_json::{Value, json};

use crate::arguments::{CheckKernel, EmitKernel, Form, Kernel, KernelAction};
use crate::failure::{Failure, Outcome};
use crate::kernels;
use crate::screen;
use crate::target;

/// What helps where a text is no kernel.
const LANGUAGE: &str = "docs/tile.md describes the language; examples/*.tile are kernels to begin with";

/// Does what is asked for with a kernel.
pub fn kernel(arguments: &Kernel) -> Outcome {
    let written = Written::open(&arguments.file)?;
    match &arguments.action {
        KernelAction::Check(options) => check(&written, options),
        KernelAction::Run(options) => run::run(&written, options),
        KernelAction::Bench(options) => measure::bench(&written, options),
        KernelAction::Emit(options) => emit(&written, options),
    }
}

/// A kernel with the text that it was read from.
pub struct Written {
    /// its file
    place: String,
    text: String,
    pub source: Source,
}

impl Written {
    /// Reads and verifies a kernel.
    pub fn open(path: &Path) -> Outcome<Written> {
        let place = path.display().to_string();
        let text = std::fs::read_to_string(path);
        // Some editors mark the beginning of a text.
        let text = text.map(|text| text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text));
        let text = text.map_err(|e| {
            let error = Error::invalid(format!("cannot be read: {e}")).at(place.clone());
            match e.kind() {
                ErrorKind::InvalidData => Failure::explained(error, "a kernel is a text, and this is none", LANGUAGE),
                _ => Failure::not_read(path, error, LANGUAGE),
            }
        })?;
        let source = match tile::read(&text) {
            Ok(source) => source,
            Err(error) => return Err(shown(&place, &text, tile::place_of(&error), error).or_help(LANGUAGE)),
        };
        let written = Written { place, text, source };
        tile::verify(&written.source.kernel).map_err(|error| written.failure(error).or_help(LANGUAGE))?;
        Ok(written)
    }

    /// What the writer calls it, or its file.
    pub fn name(&self) -> &str {
        self.source.name.as_deref().unwrap_or(&self.place)
    }

    /// The kernel as it runs on a device at some sizes. Where its writer does not say how, and it multiplies in another way than tile by tile,
    /// that is what a plan would do: of two products with a softmax between them, attention. With it, why a plan would not do it.
    pub fn kernel_on(&self, spec: &DeviceSpec, env: &Env) -> (Cow<'_, tile::Kernel>, Option<Refusal>) {
        let kernel = &self.source.kernel;
        let is_row = matches!(kernel.schedule, Schedule::Row { .. });
        let multiplies = kernel.steps.iter().any(|step| matches!(step.op, Op::Dot { .. }));
        let hints = Hints { env: env.clone(), ..Hints::default() };
        if self.source.is_scheduled || !is_row || !multiplies {
            return (Cow::Borrowed(kernel), None);
        }
        match scheduled(kernel, spec, &hints) {
            Ok(other) => (Cow::Owned(other), None),
            Err(why) => (Cow::Borrowed(kernel), Some(why)),
        }
    }

    /// The kernel as it runs on a device of a name at some sizes; says where that is slow.
    fn kernel_to_run(&self, target: &str, env: &Env) -> Outcome<tile::Kernel> {
        let (kernel, why) = self.kernel_on(&target::find(target)?, env);
        if let Some(why) = why {
            screen::tell(&format!("note: products are computed row by row, which is slow: {why}"));
        }
        self.tell_of_products();
        Ok(kernel.into_owned())
    }

    /// Says that a sum of products could be one product of tensors, where its writer leaves open how it is computed.
    fn tell_of_products(&self) {
        if !self.source.is_scheduled && sums_products(&self.source.kernel) {
            screen::tell(
                "note: a sum of products of two tensors is computed row by row, which is slow; dot[…](a, b) says the same \
                 as sum[…](a * b) and is computed tile by tile",
            );
        }
    }

    /// An error about the kernel, at its place in the file.
    pub fn failure(&self, error: Error) -> Failure {
        let at = self.source.locate(&error);
        shown(&self.place, &self.text, at, self.source.in_own_words(error))
    }
}

/// Whether a kernel adds up products of two factors, each of which is the same in several rows or columns of the result.
fn sums_products(kernel: &tile::Kernel) -> bool {
    kernel.steps.iter().any(|step| {
        let Op::Reduce { monoid: Monoid::Sum, arg, .. } = &step.op else { return false };
        let Op::Map { expr, args } = &kernel.step(*arg).op else { return false };
        let is_product = matches!(expr.nodes().last(), Some((ExprNode::Apply(Scalar::Mul, _), _)));
        let factors: Vec<_> = args.iter().map(|arg| kernel.step(*arg).axes).collect();
        is_product
            && factors.len() == 2
            && factors.iter().all(|axes| step.op.folds().is_within(*axes) && !step.axes.is_within(*axes))
    })
}

/// An error with the line of the text that it is about, and a caret below.
fn shown(place: &str, text: &str, at: Option<(usize, usize)>, error: Error) -> Failure {
    let Some((line, column)) = at else { return Failure::from(error.at(place)) };
    let shown = text.lines().nth(line - 1).unwrap_or_default();
    let number = line.to_string();
    let room = screen::width_of(std::io::stderr()).saturating_sub(number.len() + 6);
    // A tab is one column for us, and not for a terminal.
    let (shown, caret) = around(&shown.replace('\t', " "), column, room);
    let margin = " ".repeat(number.len());
    let caret = " ".repeat(caret - 1);
    let excerpt = format!("  {margin} |\n  {number} | {shown}\n  {margin} | {caret}^\n");
    let path = error.path().iter().filter(|step| !step.starts_with("line ")).cloned();
    let inner = path.rev().fold(Error::new(error.kind(), error.message()), |error, step| error.at(step));
    Failure::from(inner.at(format!("{place}:{line}:{column}"))).with_excerpt(excerpt)
}

/// As much of a line around a column as there is room for, and where the column is then.
fn around(line: &str, column: usize, room: usize) -> (String, usize) {
    let letters: Vec<char> = line.chars().collect();
    if letters.len() <= room {
        return (line.to_string(), column);
    }
    let room = room.saturating_sub(2);
    let first = (column - 1).saturating_sub(room / 2).min(letters.len() - room);
    let last = first + room;
    let [before, after] = [first > 0, last < letters.len()].map(|is_cut| if is_cut { "…" } else { "" });
    let part: String = letters[first..last].iter().collect();
    (format!("{before}{part}{after}"), column - first + usize::from(first > 0))
}

fn check(written: &Written, options: &CheckKernel) -> Outcome {
    let (source, kernel) = (&written.source, &written.source.kernel);
    let symbols: Vec<String> = kernel.symbols().iter().map(ToString::to_string).collect();
    let sides = [(&source.inputs, &kernel.inputs), (&source.outputs, &kernel.outputs)];
    let (on_here, _) = written.kernel_on(here::spec(), &Env::new());
    written.tell_of_products();
    let schedule = on_here.schedule.name();
    if options.json {
        let [inputs, outputs] = sides.map(|(names, params)| {
            let params = names.iter().zip(params);
            params.map(|(name, param)| json!({ "name": name, "type": param.ty.to_string() })).collect::<Value>()
        });
        return screen::print_json(&json!({
            "kernel": written.name(),
            "inputs": inputs,
            "outputs": outputs,
            "sizes": symbols,
            "steps": kernel.steps.len(),
            "schedule": schedule,
        }));
    }
    let mut text = screen::title(&format!("{} is a kernel", written.name()), screen::width());
    for ((names, params), title) in sides.into_iter().zip(["takes", "returns"]) {
        let params: Vec<String> =
            names.iter().zip(params).map(|(name, param)| format!("{name}: {}", param.ty)).collect();
        text.push_str(&screen::wrapped(&format!("{title} {}", params.join(", ")), 2, screen::width()));
    }
    let sizes = if symbols.is_empty() { "no free sizes".into() } else { format!("free sizes {}", symbols.join(", ")) };
    text.push_str(&format!("  {} steps, schedule {schedule}, {sizes}\n", kernel.steps.len()));
    screen::print(&text)
}

fn emit(written: &Written, options: &EmitKernel) -> Outcome {
    let kernel = &written.source.kernel;
    let env = match options.form {
        // Sizes that nobody gives are arguments.
        Form::Cuda => feed::bind_sizes(kernel, &options.sizes)?,
        _ => feed::assume_sizes(kernel, feed::bind_sizes(kernel, &options.sizes)?, feed::USUAL_SIZE).0,
    };
    let usual = if options.form == Form::Cuda { kernels::USUAL_GPU } else { here::NAME };
    let spec = target::find(options.target.as_deref().unwrap_or(OsStr::new(usual)))?;
    let wanted = if options.form == Form::Cuda { Machine::Gpu } else { Machine::Cpu };
    if options.target.is_some() && options.form != Form::Tile && spec.kind != wanted {
        let what = format!("{} is not for {}", options.form.name(), spec.name);
        let help = "cuda is for GPUs (a100, h100, h200), vector and asm for processors (cpu, avx2, here)";
        return Err(Failure::with_help(Error::invalid(what).at("--target"), help));
    }
    let (kernel, _) = written.kernel_on(&spec, &env);
    let kernel = &*kernel;
    let name = written.source.name.as_deref().unwrap_or(kernel.schedule.name());
    let shown = match options.form {
        Form::Cuda => {
            let note = in_fewer_launches(written, kernel, name, &env, &spec).unwrap_or_default();
            if !note.is_empty() {
                screen::tell(&format!("note: {note}"));
            }
            kernels::show_launched(kernel, name, &env, &spec, &note)
        }
        form => kernels::show_named(kernel, name, &env, form, &spec),
    };
    let shown = shown.map_err(|error| written.failure(error))?;
    if options.json {
        let (name, form) = (written.name(), options.form.name());
        return screen::print_json(&json!({ "kernel": name, "form": form, "code": shown.trim_end() }));
    }
    screen::print_code(&format!("{}\n", shown.trim_end()))
}

/// What sizes nobody gave are tried as: the columns of a head, mostly.
const USUAL_COLUMNS: i64 = 64;

/// What to say where a kernel becomes several launches for sizes that nobody gave, which store what lies between them, and fewer for numbers.
fn in_fewer_launches(
    written: &Written,
    kernel: &tile::Kernel,
    name: &str,
    env: &Env,
    spec: &DeviceSpec,
) -> Option<String> {
    let launches = kernels::launches(kernel, name, env, spec).filter(|launches| *launches > 1)?;
    let launches_with = |fixed: &[Symbol]| {
        let mut all = env.clone();
        for symbol in fixed {
            all.bind(symbol.clone(), USUAL_COLUMNS);
        }
        kernels::launches(&written.kernel_on(spec, &all).0, name, &all, spec)
    };
    let free = print::sizes_to_fix(kernel).into_iter().filter(|symbol| env.get(symbol).is_none());
    let mut needed: Vec<Symbol> = free.collect();
    let fewer = launches_with(&needed)?;
    // Those without which it is as well.
    for symbol in needed.clone() {
        let others: Vec<Symbol> = needed.iter().filter(|other| **other != symbol).cloned().collect();
        if launches_with(&others) == Some(fewer) {
            needed = others;
        }
    }
    let sizes: Vec<String> = needed.iter().map(|symbol| format!("{symbol}={USUAL_COLUMNS}")).collect();
    (fewer < launches).then(|| {
        let becomes = match fewer {
            1 => "one kernel that stores nothing in between".to_owned(),
            fewer => format!("{fewer} kernels"),
        };
        let sizes = sizes.join(",");
        let sizes = screen::spelt_out(&sizes);
        format!(
            "for sizes that are arguments it is {launches} kernels, which store rows in memory for each other; \
             for numbers, such as --sizes {sizes}, it is {becomes}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_around_the_place() {
        assert_eq!(around("short", 3, 10), ("short".to_string(), 3));
        let line: String = ('a'..='z').collect();
        for column in 1..=26 {
            let (part, at) = around(&line, column, 12);
            assert!(part.chars().count() <= 12, "{part}");
            assert_eq!(part.chars().nth(at - 1), line.chars().nth(column - 1), "{part} {at}");
        }
        assert_eq!(around(&line, 13, 12).0, "…hijklmnopq…");
        // Behind the end, where something is missing.
        assert_eq!(around(&line, 27, 12), ("…qrstuvwxyz".to_string(), 12));
    }
}
