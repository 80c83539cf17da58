//! Kernels as text.

use std::fmt;

use crate::graph::text::print::{dims_text, guards_text, print_graph};
use crate::graph::text::{expr, number};
use crate::tile::{Kernel, Op, Param, Placement, Rounding, Schedule, StepId, Tile};

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("kernel {\n")?;
        let axes = self.axes.iter().enumerate().map(|(k, extent)| format!("i{k}: {extent}"));
        line(f, "axes", axes)?;
        line(f, "in  ", params(&self.inputs, 'x'))?;
        line(f, "out ", params(&self.outputs, 'y'))?;
        f.write_str("  schedule ")?;
        print_schedule(f, &self.schedule)?;
        f.write_str("\n")?;
        if self.rounding == Rounding::Every {
            f.write_str("  rounding every\n")?;
        }
        for (k, step) in self.steps.iter().enumerate() {
            let text = format!("%{k} = {}", operation(self, &step.op));
            if f.alternate() {
                writeln!(f, "  {text:<58} # {} over {}", step.dtype, step.axes)?;
            } else {
                writeln!(f, "  {text}")?;
            }
        }
        for store in &self.stores {
            writeln!(f, "  store y{}{} = {:?}", store.output, dims_text(&store.index), store.value)?;
        }
        if let Schedule::Attention { corrections, .. } = &self.schedule {
            for correction in corrections {
                let factor = expr::text(&correction.factor);
                writeln!(f, "  correct {:?} on {:?} by {factor}", correction.fold, correction.on)?;
            }
        }
        f.write_str("}")
    }
}

/// A line of the heading; nothing where it would be empty.
fn line(f: &mut fmt::Formatter<'_>, name: &str, items: impl Iterator<Item = String>) -> fmt::Result {
    let items: Vec<String> = items.collect();
    if items.is_empty() { Ok(()) } else { writeln!(f, "  {name} {}", items.join(", ")) }
}

fn params(params: &[Param], letter: char) -> impl Iterator<Item = String> {
    params.iter().enumerate().map(move |(k, param)| {
        let order: Vec<usize> = param.layout.order().collect();
        let order = if param.layout.is_row_major() { String::new() } else { format!(" order={order:?}") };
        format!("{letter}{k}: {}{order}", param.ty)
    })
}

fn steps_text(steps: &[StepId]) -> String {
    let texts: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
    format!("({})", texts.join(", "))
}

fn tile_text(tile: Tile) -> String {
    format!("tile={}x{}x{}", tile.rows, tile.columns, tile.depth)
}

fn print_schedule(f: &mut fmt::Formatter<'_>, schedule: &Schedule) -> fmt::Result {
    f.write_str(schedule.name())?;
    match schedule {
        Schedule::Map => Ok(()),
        Schedule::Row { along, placement } => {
            write!(f, " along={along} placement=")?;
            match placement {
                Placement::Registers => f.write_str("registers"),
                Placement::OnChip => f.write_str("on_chip"),
                Placement::Reread => f.write_str("reread"),
                Placement::Split(parts) => write!(f, "split({parts})"),
            }
        }
        Schedule::Column { across, along, parts } => {
            write!(f, " across={across} along={along} parts={parts}")
        }
        Schedule::Contract { dots, rows, columns, sum, whole_rows, tile } => {
            write!(f, " dots={} rows={rows} columns={columns} sum={sum}", steps_text(dots))?;
            write!(f, " {}{}", tile_text(*tile), if *whole_rows { " whole_rows" } else { "" })
        }
        Schedule::Attention { chain, corrections: _, tile, parts } => {
            write!(f, " first={:?} second={:?}", chain.first, chain.second)?;
            write!(f, " rows={} stream={}", chain.rows, chain.stream)?;
            write!(f, " inner={} columns={}", chain.inner, chain.columns)?;
            write!(f, " {}", tile_text(*tile))?;
            if *parts == 1 { Ok(()) } else { write!(f, " parts={parts}") }
        }
        Schedule::Host(graph) => {
            f.write_str(" ")?;
            print_graph(f, graph, 1, false)
        }
    }
}

/// What stands behind `=`.
fn operation(kernel: &Kernel, op: &Op) -> String {
    match op {
        Op::Load { input, index, guard, fill, reads } => {
            // A broken kernel is printed too, to be looked at.
            let dtype = kernel.inputs.get(*input).map(|param| param.ty.dtype);
            let fill = fill.zip(dtype).map_or_else(String::new, |(n, dtype)| number::text(dtype, n));
            format!("load x{input}{}{}{}", dims_text(index), reading(reads), guards_text(guard, &fill))
        }
        Op::Random { stream, seed, index, reads } => {
            format!("random {seed:?} stream={stream} at [{index}]{}", reading(reads))
        }
        Op::Map { expr, args } => format!("map{} {}", steps_text(args), expr::text(expr)),
        Op::Reduce { monoid, over, arg } => format!("reduce.{} {arg:?} over {over}", monoid.name()),
        Op::Prefix { monoid, axis, exclusive, arg } => {
            let flag = if *exclusive { " exclusive" } else { "" };
            format!("prefix.{} {arg:?} along i{axis}{flag}", monoid.name())
        }
        Op::Dot { over, a, b, accumulator } => {
            format!("dot({a:?}, {b:?}) over {over} acc={accumulator}")
        }
    }
}

fn reading(reads: &[StepId]) -> String {
    if reads.is_empty() { String::new() } else { format!(" reading {}", steps_text(reads)) }
}
