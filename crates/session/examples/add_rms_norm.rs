//! A fused kernel of your own, built in Rust: `h = x + r` and `y = h / rms(h) · g`, both stored, `h` never read back.
//!
//!     cargo run --release -p fuseline-session --example add_rms_norm
//!
//! It is checked, run on this processor and, where there is one, on the GPU, and compared with the interpreter of kernels.

use fuseline::compare::{Agreement, Tolerance, compare};
use fuseline::device::DeviceSpec;
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::ops::Scalar;
use fuseline::ops::prim::Monoid;
use fuseline::reference::{Buffer, Limits};
use fuseline::tensor::{DType, Dim, Env, Literal, Seeded, Symbol, TensorType};
use fuseline::tile::{AxisSet, Builder, Kernel, Param, Placement, Schedule, interp};
use fuseline_session::{gpu, machine};

/// The kernel, with free sizes.
fn add_rms_norm() -> Result<Kernel> {
    let (rows, columns) = (Dim::named("rows"), Dim::named("columns"));
    let mut k = Builder::new();
    let (row, column) = (k.axis(rows.clone())?, k.axis(columns.clone())?);
    let matrix = Param::row_major(TensorType::new(DType::F32, vec![rows, columns.clone()]));
    let vector = Param::row_major(TensorType::new(DType::F32, vec![columns.clone()]));
    let (x, r, g) = (k.input(matrix.clone()), k.input(matrix.clone()), k.input(vector));
    let (h_out, y_out) = (k.output(matrix.clone()), k.output(matrix));
    let at = [Dim::axis(row), Dim::axis(column)];

    let (x, r, g) = (k.load(x, &at)?, k.load(r, &at)?, k.load(g, &[Dim::axis(column)])?);
    let h = k.map(&[x, r], |_, v| v[0] + v[1])?;
    let square = k.map(&[h], |_, v| v[0] * v[0])?;
    let sum = k.reduce(Monoid::Sum, &[column], square)?;
    let scale = k.map(&[sum], |scope, v| {
        let mean = v[0] / scope.size(columns).cast(DType::F32);
        scope.one(v[0]) / (mean + scope.float(v[0], 1e-6)).apply(Scalar::Sqrt)
    })?;
    let y = k.map(&[h, scale, g], |_, v| v[0] * v[1] * v[2])?;
    k.store(h_out, &at, h);
    k.store(y_out, &at, y);
    // A worker owns a row: it is read once, and lies in registers while it is folded.
    k.finish(Schedule::Row { along: AxisSet::of(column), placement: Placement::Registers })
}

fn main() -> Result<()> {
    let kernel = add_rms_norm()?;
    println!("{kernel}\n");
    let env: Env = [(Symbol::name("rows"), 200), (Symbol::name("columns"), 1000)].into_iter().collect();
    let draw = |seed, sizes: &[usize]| Literal::seeded(DType::F32, sizes, Seeded { seed, low: -2.0, high: 2.0 });
    let inputs = [draw(1, &[200, 1000])?, draw(2, &[200, 1000])?, draw(3, &[1000])?];
    let buffers: Vec<Buffer> = inputs.iter().map(Buffer::from_literal).collect();
    let expected = interp::run(&kernel, &buffers, &env, &interp::Options::default())?;

    let agrees = |device: &str, outputs: &[Literal]| -> Result<()> {
        for (k, (expected, actual)) in expected.iter().zip(outputs).enumerate() {
            let within = Agreement::Within(Tolerance::of_kernel(&kernel, k, &env));
            let agreed = compare(&expected.to_literal()?, actual, &within);
            agreed.map_err(|why| Error::bug(format!("output {k} on {device}: {why}")))?;
        }
        println!("{device} agrees with the interpreter of kernels");
        Ok(())
    };
    let plan = PlanOptions::on(DeviceSpec::find("cpu")?);
    let processor = machine::processor(plan.clone(), None, Limits::default())?;
    agrees("cpu", &processor.load_kernel(kernel.clone(), &env)?.run(&inputs)?)?;
    match gpu::open(plan, Limits::default()) {
        Ok(device) => agrees("cuda", &device.load_kernel(kernel.clone(), &env)?.run(&inputs)?),
        Err(why) => {
            println!("cuda: {}", why.message());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_runs() {
        super::main().unwrap();
    }
}
