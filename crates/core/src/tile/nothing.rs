//! Positions of nothing: there is no largest of no elements.

use super::{AxisSet, Kernel, Op};
use crate::error::{Context, Result};
use crate::tensor::Env;

impl Kernel {
    /// Refuses sizes at which something that is stored needs a position among no elements. Of a kernel of a plan, that is known of the
    /// graph: what it stores may be needed by nobody.
    pub fn check_positions(&self, env: &Env) -> Result<()> {
        let sizes = self.axes.iter().map(|dim| dim.eval(env)).collect::<Result<Vec<i64>>>()?;
        let is_nothing = |axes: AxisSet| axes.iter().any(|axis| sizes[axis] == 0);
        let mut needed = vec![false; self.steps.len()];
        self.stores
            .iter()
            .filter(|store| !is_nothing(store.axes()))
            .for_each(|store| needed[store.value.index()] = true);
        for (k, step) in self.steps.iter().enumerate().rev().filter(|(_, step)| !is_nothing(step.axes)) {
            if !needed[k] {
                continue;
            }
            match &step.op {
                Op::Reduce { monoid, .. } if monoid.is_position() && is_nothing(step.op.folds()) => {
                    return Err(monoid.of_nothing()).at(|| format!("step %{k} ({})", step.op.name()));
                }
                // Other folds of nothing are numbers, whatever they would fold.
                op if is_nothing(op.folds()) => {}
                op => op.operands().into_iter().for_each(|operand| needed[operand.index()] = true),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::tensor::{Env, Symbol};
    use crate::tile::parse;

    #[test]
    fn positions_are_wanted_of_something() {
        let text = "kernel { axes i0: m, i1: n in x: f32[m, n] out y: i64[m], z: f32[m] %0 = load x[i0, i1] \
            %1 = reduce.argmax %0 over [i1] %2 = reduce.sum %0 over [i1] store y[i0] = %1 store z[i0] = %2 }";
        let kernel = parse(text).unwrap();
        let env = |m, n| -> Env { [(Symbol::name("m"), m), (Symbol::name("n"), n)].into_iter().collect() };
        let error = kernel.check_positions(&env(3, 0)).unwrap_err();
        assert_eq!(
            (error.message(), error.path()),
            ("argmax over an axis without elements", &["step %1 (reduce)".to_string()][..])
        );
        [(0, 0), (0, 3), (3, 1)].into_iter().for_each(|(m, n)| kernel.check_positions(&env(m, n)).unwrap());
    }
}
