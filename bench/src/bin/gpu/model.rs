//! A whole network on the device: what a start takes, what a run takes, and where the time goes, launch by launch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use fuseline::compile::plan_program;
use fuseline::device::Executable;
use fuseline::error::{Error, Result};
use fuseline::explain::{KernelRow, kernel_rows};
use fuseline::fuse::PlanOptions;
use fuseline::tensor::Env;
use fuseline_cuda::run::LaunchProfile;
use fuseline_frontend::{Model, read_graph};

use crate::Arguments;
use crate::time::{noise, size};

/// Measures the networks that are named.
pub fn models(arguments: &Arguments) -> Result<()> {
    let [file] = arguments.names.as_slice() else { return Err(Error::invalid("wanted one network")) };
    let mut clock = Clock(Instant::now());
    let device = arguments.device()?;
    clock.note("the device and its libraries");
    let graph = if file.ends_with(".ir") { read_graph(file)? } else { Model::open(file)?.graph()?.clone() };
    clock.note("the graph");
    let env: Env = arguments.sizes.split(',').filter_map(size).collect();
    let mut options = PlanOptions::on(arguments.spec()?);
    options.hints.env = env.clone();
    options.precision = arguments.precision;
    let planned = plan_program(graph.clone(), &options, &mut |_| {})?;
    clock.note("the plan");
    let mut session = device.load(&planned)?;
    clock.note(&format!("what is prepared once ({} texts compiled so far)", session.making().0));
    let inputs = noise(&graph, &env)?;
    session.run(&inputs)?;
    let (texts, making) = session.making();
    clock.note(&format!(
        "the first run ({texts} texts compiled so far; making kernels took {:.3} s)",
        making.as_secs_f64()
    ));
    session.run(&inputs)?;
    clock.note("the second run, with copies from and to the host");
    if arguments.tune {
        for tuned in session.tune(&inputs)?.unwrap_or_default() {
            let (before, after) = tuned.us;
            println!("{before:10.1} µs as usual, {after:.1} by {}: kernel {}", tuned.choice, tuned.kernel);
        }
        clock.note("all ways of products, measured");
        session = device.load(&planned)?;
    }
    let Some(timing) = session.time(&inputs, arguments.runs)? else {
        println!("the host stands between kernels: {:?}", session.refused());
        return Ok(());
    };
    let mut sorted = timing.us.clone();
    sorted.sort_by(f64::total_cmp);
    println!("{:10.1} µs a run on the device, at the least {:.1}", timing.median(), sorted[0]);
    let launches = session.profile(&inputs, arguments.runs.min(11))?.unwrap_or_default();
    let rows = kernel_rows(planned.program.run(), &planned.run, &options);
    let kernels = &planned.run.kernels;
    let first = |k: usize| (0..k).find(|other| Arc::ptr_eq(&kernels[*other].kernel, &kernels[k].kernel)).unwrap_or(k);
    print_launches(&launches, &rows, &first);
    Ok(())
}

/// Says what took how long.
struct Clock(Instant);

impl Clock {
    fn note(&mut self, what: &str) {
        println!("{:10.3} s {what}", self.0.elapsed().as_secs_f64());
        self.0 = Instant::now();
    }
}

/// Equal launches in one line each, those with the most time first.
fn print_launches(launches: &[LaunchProfile], rows: &[KernelRow], first: &dyn Fn(usize) -> usize) {
    let mut groups: BTreeMap<(usize, &str), Vec<&LaunchProfile>> = BTreeMap::new();
    for launch in launches {
        groups.entry((first(launch.kernel), &launch.name)).or_default().push(launch);
    }
    let total = |group: &[&LaunchProfile]| group.iter().map(|launch| launch.us).sum::<f64>();
    let mut groups: Vec<((usize, &str), Vec<&LaunchProfile>)> = groups.into_iter().collect();
    groups.sort_by(|a, b| total(&b.1).total_cmp(&total(&a.1)));
    let all: f64 = launches.iter().map(|launch| launch.us).sum();
    println!("{:10.1} µs in {} launches, one by one", all, launches.len());
    println!("   times  µs each  share predicted  blocks x threads  registers   shared  occupancy  launch of kernel");
    for ((kernel, name), group) in groups {
        let (us, row) = (total(&group), &rows[kernel]);
        let resources = group[0].resources.map_or_else(
            || format!("{:>50}", "cuBLASLt"),
            |r| {
                let spilled = if r.spilled > 0 { format!("+{}B", r.spilled) } else { String::new() };
                let grid = format!("{}x{}", r.grid.blocks, r.grid.threads);
                let registers = format!("{}{spilled}", r.registers);
                format!("{grid:>17} {registers:>10} {:>8} {:>9.0} %", r.shared, 100.0 * r.occupancy)
            },
        );
        let (count, each, share) = (group.len(), us / group.len() as f64, 100.0 * us / all);
        println!("{count:8} {each:8.2} {share:5.1}% {:9.2} {resources}  {name} of {}", row.us, row.pattern);
    }
}
