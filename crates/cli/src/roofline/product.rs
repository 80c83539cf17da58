//! What a whole product reaches on this processor: a kernel as the compiler makes it, with its tiles, what it asks for ahead of time and what
//! it stores.

use std::sync::Arc;

use fuseline::compile::plan_program;
use fuseline::device::NamedTensors;
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::graph::Builder;
use fuseline::reference::Limits;
use fuseline::tensor::{DType, Literal};
use fuseline_cpu::code::Isa;
use fuseline_cpu::here;
use fuseline_cpu::run::CpuDevice;

/// Rows, columns, terms: a layer of a small transformer, whose weights leave the caches of a core.
const SIZES: [usize; 3] = [192, 768, 768];

/// How often it is made; the fastest counts.
const RUNS: usize = 12;

/// Operations in a second of a product of f32 with constant weights, by so many threads.
pub fn measure(isa: Isa, threads: usize) -> Result<f64> {
    let [rows, columns, terms] = SIZES;
    let numbers = |count: usize| (0..count).map(|k| ((k * 7) % 13) as f64 * 0.125 - 0.75).collect::<Vec<f64>>();
    let matrix = |sizes: [usize; 2]| Literal::from_f64s(DType::F32, sizes, &numbers(sizes[0] * sizes[1]));
    let b = Builder::new("product");
    let x = b.input("x", DType::F32, fuseline::tensor::Shape::new([rows, terms]));
    let w = b.constant(matrix([terms, columns])?);
    b.output("y", x.contract("mk,kn->mn", w));
    let plan = PlanOptions::on(&here::base(isa).scaled(threads, &[]));
    let planned = plan_program(b.finish()?, &plan, &mut |_| {})?;
    let session = CpuDevice::new(isa, threads, plan, Limits::default())?.load(&planned)?;
    let inputs: NamedTensors = [(Arc::from("x"), matrix([rows, terms])?)].into_iter().collect();
    let mut least = f64::INFINITY;
    for _ in 0..RUNS {
        let (_, spans) = session.run_recorded(&inputs)?;
        least = least.min(spans.iter().map(|span| span.took.as_secs_f64()).sum());
    }
    let flops = 2.0 * (rows * columns * terms) as f64;
    if least > 0.0 { Ok(flops / least) } else { Err(Error::bug("a clock that stands still")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_has_a_rate_with_any_number_of_threads() {
        for threads in [1, 2] {
            let rate = measure(Isa::detect(), threads).unwrap();
            assert!(rate > 1e5 && rate < 1e14, "{rate}");
        }
    }
}
