//! Why a model becomes the kernels that it becomes.

use std::borrow::Cow;

use fuseline::compile::simplified;
use fuseline::device::DeviceSpec;
use fuseline::error::Result;
use fuseline::explain::Explanation;
use fuseline::fuse::PlanOptions;
use fuseline::tensor::{Env, Symbol};
use fuseline_frontend::Tensors;
use fuseline_frontend::onnx::import::Pins;
use serde_json::Value;

use crate::model::{Content, Model};
use crate::plan::text::View;
use crate::plan::{self, Setting};
use crate::session::Options;

/// A plan in words.
#[derive(Debug)]
pub struct Explained {
    model: String,
    plan: PlanOptions,
    given: Vec<(String, i64)>,
    assumed: Vec<(String, i64)>,
    explanation: Explanation,
}

impl Explained {
    /// The plan of a model on a device, for the values that are pinned and the sizes that are known; other free sizes are
    /// assumed.
    pub fn of(model: &Model, options: &Options, target: &DeviceSpec, pins: &Pins, sizes: Env) -> Result<Explained> {
        let known = |name: String| sizes.get(&Symbol::name(&name)).map(|size| (name, size));
        let given: Vec<(String, i64)> = model.free_sizes().into_iter().filter_map(known).collect();
        let assumed = model.typical_sizes(&sizes);
        // A session can be asked any number of times.
        let budget = options.import.budget.fork();
        let is_pinned = !pins.values.is_empty() || !pins.sizes.is_empty() || !pins.parts.is_empty();
        let (graph, all) = match &model.content {
            Content::Onnx(onnx) if is_pinned => {
                (Cow::Owned(onnx.graph_for(pins, &budget)?), model.with_typical_sizes(&sizes))
            }
            _ => model.graph_to_plan(&Tensors::new(), &sizes)?,
        };
        let mut plan = options.plan(target, all);
        plan.budget = budget;
        let planned = options.planned(graph.clone().into_owned(), &plan)?;
        let mut explanation = Explanation::of(&planned, &plan)?;
        let graph = simplified(graph.into_owned(), &plan, &mut |_| {})?;
        if options.fuses {
            explanation.price_rewrites(&planned, &graph, &plan)?;
        }
        explanation.price_apart(&graph, &plan)?;
        Ok(Explained { model: model.name.clone(), plan, given, assumed, explanation })
    }

    fn setting(&self) -> Setting<'_> {
        Setting { model: &self.model, options: &self.plan, given: &self.given, assumed: &self.assumed }
    }

    /// For programs: what `fuseline explain --json` prints.
    pub fn to_json(&self) -> Value {
        plan::json::of_plan(&self.setting(), &self.explanation)
    }

    /// For people: what `fuseline explain` prints.
    pub fn to_text(&self, view: &View) -> String {
        plan::text::of_plan(&self.setting(), &self.explanation, view)
    }
}
