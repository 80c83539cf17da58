use super::*;
use crate::device::DeviceSpec;
use crate::fuse::{Chooser, PlanOptions, plan};
use crate::tile::StepId;

/// A softmax whose maximum is a result, a sort of it through a view, and a branch.
const SAMPLE: &str = "graph g(x: f32[n, 4], c: bool[]) {
  %2 = reduce.max x axes=[1] : f32[n]
  %3 = view %2[i0] : f32[n, 4]
  %4 = map(x, %3) exp(a - b) : f32[n, 4]
  %5 = reduce.sum %4 axes=[1] : f32[n]
  %6 = view %5[i0] : f32[n, 4]
  %7 = map(%4, %6) a / b : f32[n, 4]
  %8 = view %7[i1, i0] : f32[4, n]
  %9 = sort %8 axis=0 : f32[4, n], i64[4, n]
  %10 = if c capture=(%9) : f32[4, n]
    then graph then(x: f32[4, n]) { %1 = map(x) exp(a) : f32[4, n] return y = %1 }
    else graph else(x: f32[4, n]) { return y = x }
  return max = %2, sorted = %10, places = %9.1
}";

fn graph(text: &str) -> Graph {
    let graph = Graph::parse(text).unwrap();
    crate::graph::verify(&graph).unwrap();
    graph
}

/// The plan without any fusion.
fn apart(graph: &Graph) -> Plan {
    let options = PlanOptions { fuel: Some(0), ..PlanOptions::on(DeviceSpec::find("cpu").unwrap()) };
    plan(graph, &options).unwrap()
}

/// Breaks the unfused plan of the sample and returns the error.
fn broken(by: impl FnOnce(&mut Plan)) -> String {
    let graph = graph(SAMPLE);
    let mut plan = apart(&graph);
    plan.check(&graph).unwrap();
    by(&mut plan);
    plan.check(&graph).unwrap_err().to_string()
}

#[track_caller]
fn says(by: impl FnOnce(&mut Plan), place: &str, what: &str) {
    let error = broken(by);
    assert!(error.contains(place) && error.contains(what), "{error}");
}

/// The kernel that computes a node.
fn of(plan: &mut Plan, node: usize) -> &mut PlannedKernel {
    plan.kernels.iter_mut().find(|k| k.members.contains(&node)).unwrap()
}

fn edit(kernel: &mut PlannedKernel, by: impl FnOnce(&mut Kernel)) {
    by(Arc::make_mut(&mut kernel.kernel));
}

#[test]
fn plans_of_every_chooser_hold() {
    let graph = graph(SAMPLE);
    for spec in DeviceSpec::all() {
        for chooser in [Chooser::ByCost, Chooser::AtRandom(1), Chooser::AtRandom(2)] {
            let options = PlanOptions { chooser, ..PlanOptions::on(spec) };
            plan(&graph, &options).unwrap().check(&graph).unwrap();
        }
    }
}

#[test]
fn a_plan_is_for_one_graph() {
    says(|plan| plan.graph ^= 1, "", "made for another graph");
}

#[test]
fn members_are_nodes_that_are_computed() {
    says(|plan| plan.kernels[0].members = vec![99], "kernel 0", "%99 is not in the graph");
    says(|plan| of(plan, 2).members = vec![0, 2], "%0 (input)", "nothing computes it");
    says(|plan| of(plan, 4).members = vec![4, 2], "kernel", "not in order");
}

#[test]
fn values_are_stored_once_and_by_their_own_kernel() {
    says(|plan| of(plan, 4).outputs = vec![Value::new(5, 0)], "(map, %4 (map))", "%5 is stored, but none");
    says(|plan| of(plan, 4).outputs.push(Value::new(4, 0)), "%4 (map)", "%4 is stored here and by kernel 1");
    let twice = |plan: &mut Plan| {
        let copy = of(plan, 2).clone();
        plan.kernels.push(copy);
    };
    says(twice, "kernel 7 (row, %2 (reduce))", "%2 is stored here and by kernel 0");
}

#[test]
fn values_are_stored_before_they_are_read() {
    says(|plan| plan.kernels.swap(0, 1), "kernel 0 (map, %4 (map)): %2 (reduce)", "%2 is read, and kernel 1 stores it");
    let missing = |plan: &mut Plan| drop(plan.kernels.remove(0));
    says(missing, "kernel 0 (map, %4 (map)): %2 (reduce)", "%2 is read, and nothing stores it");
}

#[test]
fn members_are_what_is_needed() {
    says(|plan| of(plan, 5).members = vec![2, 5], "%2 (reduce)", "nothing that is stored needs it");
    says(|plan| of(plan, 7).inputs[0] = Value::new(2, 0), "%7 (map)", "%2 is read, and none of its nodes needs that");
    says(|plan| of(plan, 9).members = vec![8, 9], "%9 (sort)", "not alone");
    says(|plan| of(plan, 9).outputs.truncate(1), "%9 (sort)", "stored instead of [%9, %9.1]");
    says(|plan| of(plan, 9).inputs = vec![Value::new(7, 0)], "%9 (sort)", "[%7] are read instead of [%8]");
}

#[test]
fn kernels_fit_their_values() {
    says(|plan| of(plan, 4).inputs.truncate(1), "%4 (map)", "values are read, by 2 parameters");
    let narrow = |plan: &mut Plan| edit(of(plan, 4), |k| k.inputs[0].ty = graph(SAMPLE).ty(Value::new(2, 0)).clone());
    says(narrow, "%0 (input)", "%0 is f32[n, 4], and read as f32[n]");
    let host = |plan: &mut Plan| of(plan, 4).kind = Kind::Row;
    says(host, "%4 (map)", "its schedule is map");
    let other = |plan: &mut Plan| {
        let sort = of(plan, 9).kernel.clone();
        of(plan, 10).kernel = sort;
    };
    says(other, "%10 (if)", "its kernel is another one");
    says(|plan| edit(of(plan, 4), |k| k.stores[0].value = StepId(9)), "%4 (map)", "there is no step %9");
}

#[test]
fn sizes_are_bound_before_they_are_mentioned() {
    // %3 looks at the values through a view that mentions the size; nothing of its own does.
    let text = "graph g(x: f32[8], k: i64[]) {
      %2 = bind $0 = k : i64[]
      %3 = view x[min(i0 + $0, 7)] : f32[2]
      %4 = map(%3) exp(a) : f32[2]
      return y = %4
    }";
    let graph = graph(text);
    let mut plan = apart(&graph);
    plan.check(&graph).unwrap();
    plan.kernels.reverse();
    let error = plan.check(&graph).unwrap_err().to_string();
    assert!(error.contains("kernel 0 (map, %4 (map))") && error.contains("no earlier kernel binds $0"), "{error}");
    plan.kernels.pop();
    assert!(plan.check(&graph).unwrap_err().to_string().contains("binds $0"));
}

#[test]
fn regions_have_plans_of_their_own() {
    says(|plan| drop(of(plan, 10).regions.pop()), "%10 (if)", "1 plans for 2 regions");
    says(|plan| of(plan, 10).regions.swap(0, 1), "%10 (if): region then", "made for another graph");
    says(|plan| of(plan, 10).regions[0].kernels.clear(), "region then: output \"y\", %1 (map)", "no kernel stores %1");
    let moved = |plan: &mut Plan| {
        let regions = std::mem::take(&mut of(plan, 10).regions);
        of(plan, 4).regions = regions;
    };
    says(moved, "%4 (map)", "2 plans for 0 regions");
}

#[test]
fn results_are_stored() {
    let last = |plan: &mut Plan| drop(plan.kernels.pop());
    says(last, "output \"sorted\", %10 (if)", "no kernel stores %10");
    let text = "graph g(x: f32[n, 4], k: i64[]) {
      %2 = bind $0 = k : i64[]
      require n == $0 \"test\"
      return y = x
    }";
    let graph = graph(text);
    let mut plan = apart(&graph);
    plan.check(&graph).unwrap();
    plan.kernels.clear();
    assert!(plan.check(&graph).unwrap_err().to_string().contains("constraint (test)"));
}

#[test]
fn opaque_nodes_may_have_sizes_that_their_operands_do_not_bind() {
    let text = "graph g(x: f32[n], y: f32[2*n + 1], k: i64[], c: bool[]) {
      %4 = bind $0 = k : i64[]
      %5 = sort y axis=0 : f32[2*n + 1], i64[2*n + 1]
      %6 = if c capture=(y) : f32[$0]
        then graph then(y: f32[2*n + 1]) { %1 = view y[min(i0 + n, 2*n)] : f32[$0] return z = %1 }
        else graph else(y: f32[2*n + 1]) { %1 = view y[min(i0, n)] : f32[$0] return z = %1 }
      return a = %5, b = %6
    }";
    let graph = graph(text);
    apart(&graph).check(&graph).unwrap();
}
