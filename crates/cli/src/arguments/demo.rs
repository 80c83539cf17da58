//! The command line of `fuseline demo`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use fuseline::gallery::{NETWORKS, Network};

use super::{EXIT_STATUS, SizeBinding, count, thread_count};

/// Show what Fuseline does, with nothing to download
///
/// Builds a small network with weights from seeds, tells which kernels it becomes, runs it fused and unfused, compares both with the
/// reference, says how near to the roofline of the machine that is, and writes a page to look at. Where there is a GPU it is used as well.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline demo
  fuseline demo --model llama --sizes tokens=512
  fuseline demo --model resnet --threads 1 --json

The networks are models like any other:
  fuseline explain demo:encoder
  fuseline bench demo:opt --kernels
  fuseline verify demo:llama --precision bf16

{EXIT_STATUS}
  3  a result differs by more than it may"))]
pub struct Demo {
    /// Which network
    #[arg(long, value_enum, value_name = "NAME", default_value = "encoder")]
    pub model: NetworkName,
    /// Numbers for free sizes: batch, and tokens where there are any [default: batch=1,tokens=128]
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// How many runs of each plan are measured
    #[arg(long, value_name = "N", default_value = "30", value_parser = count)]
    pub iters: NonZeroUsize,
    /// For the device cpu: how many threads work [default: one for every processor]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<NonZeroUsize>,
    /// Write the page to this file
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// Write no page
    #[arg(long, conflicts_with = "output")]
    pub no_report: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A network of the demo.
#[derive(Clone, Copy, Debug)]
pub struct NetworkName(pub &'static Network);

impl ValueEnum for NetworkName {
    fn value_variants<'a>() -> &'a [NetworkName] {
        static ALL: std::sync::LazyLock<Vec<NetworkName>> =
            std::sync::LazyLock::new(|| NETWORKS.iter().map(NetworkName).collect());
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name).help(self.0.doc))
    }
}
