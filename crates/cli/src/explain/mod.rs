//! `fuseline explain`: which kernels a model becomes, and why.

mod analyze;
mod compare;
mod json;
mod lock;
mod text;
mod tune;

use fuseline::compile::{PlannedProgram, plan_simplified, simplified};
use fuseline::error::{Error, Kind};
use fuseline::explain::{DecisionRow, Explanation};
use fuseline::fuse::{DecisionId, Pins, PlanOptions, Verdict};
use fuseline::graph::Graph;
use fuseline::lower::Hints;
use fuseline::passes::Step;
use fuseline::program::Program;
use fuseline::tensor::{Env, Symbol};
use fuseline_session::plan::text::{Remedies, View};
use fuseline_session::plan::{self, Setting, size_list};

use crate::arguments::Explain;
use crate::failure::{Failure, Outcome};
use crate::file;
use crate::given_inputs;
use crate::model::Model;
use crate::screen;
use crate::settle_sizes::settle_sizes;
use crate::waiting::Waiting;
use crate::written_plan::{PlanWishes, WrittenPlan};

/// Explains a model.
pub fn explain(arguments: &Explain) -> Outcome {
    if let Some(path) = &arguments.lock {
        let read = [arguments.model.file(), arguments.inputs.file.as_deref()];
        file::check(path, file::Content::Plan, read.into_iter().flatten())?;
    }
    let written = arguments.plan.as_deref().map(WrittenPlan::read).transpose()?;
    let model = Model::open(&arguments.model, arguments.dtype, &arguments.limits)?;
    let mut observe = |step: &Step<'_>| {
        if arguments.verbose {
            print_step(step);
        }
    };
    let mut request = Request::new(&model, arguments, written.as_ref(), &mut observe)?;
    let story = request.tell(&request.options, &mut observe);
    // Import and the first plan have one time; what else is planned has what the import has left.
    request.options.budget = arguments.limits.budget_of_each();
    let story = match &written {
        Some(plan) => story.map_err(|failure| plan.failed(failure))?,
        None => story?,
    };
    let story = request.complete(&arguments.only_fuse, story)?;
    let flipped = match arguments.flip {
        Some(id) => Some(compare::flip(&request, &story, id)?),
        None => None,
    };
    let shown = flipped.as_ref().and_then(|f| f.after.as_ref()).unwrap_or(&story);
    if arguments.verbose {
        print_program(&shown.planned.program);
    }
    if let Some(path) = &arguments.lock {
        let mut lock = lock::noted_lock(&request, shown);
        if arguments.tune {
            lock.tuned = tune::tuned(&request, arguments)?;
        }
        file::write(path, lock.to_string().as_bytes())?;
    }
    let measured = match arguments.analyze {
        true => Some(analyze::measure(&request, arguments)?),
        false => None,
    };
    match (&flipped, arguments.json) {
        (Some(flipped), true) => screen::print_json(&json::of_flip(&request, &story, flipped)),
        (Some(flipped), false) => screen::print(&text::of_flip(&request, &story, flipped)),
        (None, true) => {
            let mut value = plan::json::of_plan(&request.setting(), &story.explanation);
            if let Some(measured) = &measured {
                value["measured"] = analyze::to_json(measured);
            }
            screen::print_json(&value)
        }
        (None, false) => {
            let view = view(arguments.verbose, arguments.top);
            let told = plan::text::of_plan(&request.setting(), &story.explanation, &view);
            let measured = measured.as_ref().map_or(String::new(), |m| analyze::to_text(m, &request.options.spec));
            screen::print(&format!("{told}{measured}"))
        }
    }
}

/// What is to be planned.
struct Request<'m> {
    model: &'m Model,
    /// after the passes
    graph: Graph,
    options: PlanOptions,
    /// the sizes that were given
    given: Vec<(String, i64)>,
    /// free sizes that nobody gave, with what was taken
    assumed: Vec<(String, i64)>,
}

/// A plan, and the plan in words.
struct Story {
    planned: PlannedProgram,
    explanation: Explanation,
}

impl<'m> Request<'m> {
    fn new(
        model: &'m Model,
        arguments: &Explain,
        written: Option<&WrittenPlan>,
        observe: &mut dyn FnMut(&Step<'_>),
    ) -> Outcome<Request<'m>> {
        let mut env = model.bind_sizes(&arguments.sizes)?;
        let inputs = given_inputs::read(model, &arguments.inputs, &mut env)?;
        let name = |name: String| env.get(&Symbol::name(&name)).map(|size| (name, size));
        let given: Vec<(String, i64)> = model.free_sizes().into_iter().filter_map(name).collect();
        let mut assumed = model.typical_sizes(&env);
        let mut all = env.clone();
        for (name, size) in &assumed {
            all.bind(Symbol::name(name), *size);
        }
        // As every run does.
        settle_sizes(model, &mut all, &mut assumed);
        let graph = match model.graph(&inputs, &env) {
            // What cannot be built for every size can perhaps be built for these.
            Err(error) if error.kind() == Kind::NeedsValue && !assumed.is_empty() => {
                let remedy = format!("these sizes were assumed: {}; give others with --sizes", size_list(&assumed));
                model.graph(&inputs, &all).map_err(|error| Failure::from(error).or_help(&remedy))?
            }
            other => other.map_err(|error| model.failed(error))?,
        };
        let graph = model.fitted(graph, &inputs, &all);
        let options = plan_options(arguments, written, all)?;
        let graph = {
            let _waiting = Waiting::for_(&format!("simplifying {}", model.name));
            simplified(graph.into_owned(), &options, observe)?
        };
        Ok(Request { model, graph, options, given, assumed })
    }

    /// What is planned, for those who show it.
    fn setting(&self) -> Setting<'_> {
        Setting { model: &self.model.name, options: &self.options, given: &self.given, assumed: &self.assumed }
    }

    /// Plans the model and puts the plan into words.
    fn tell(&self, options: &PlanOptions, observe: &mut dyn FnMut(&Step<'_>)) -> Outcome<Story> {
        let mut story = self.plan(options, observe)?;
        story.explanation.price_rewrites(&story.planned, &self.graph, options)?;
        story.explanation.price_apart(&self.graph, options)?;
        Ok(story)
    }

    /// As [`Request::tell`], without what each rewrite saves, and all of them.
    fn plan(&self, options: &PlanOptions, observe: &mut dyn FnMut(&Step<'_>)) -> Outcome<Story> {
        let planned = {
            let _waiting = Waiting::for_(&format!("planning {}", self.model.name));
            plan_simplified(self.graph.clone(), options, observe)?
        };
        let explanation = Explanation::of(&planned, options)?;
        Ok(Story { planned, explanation })
    }

    /// Where listed decisions were not taken because what they combine takes shape by others, lists those too and plans again. An
    /// id must be that of a decision: of this plan, or of the plan in which everything may be done.
    fn complete(&mut self, listed: &[DecisionId], story: Story) -> Outcome<Story> {
        let missing: Vec<DecisionId> = listed.iter().copied().filter(|id| !story.has_taken(*id)).collect();
        if missing.is_empty() {
            return Ok(story);
        }
        let free = PlanOptions { pins: Pins::default(), ..self.options.clone() };
        let whole = self.plan(&free, &mut |_| {})?;
        for id in &missing {
            let is_known = |story: &Story| story.explanation.decisions.iter().any(|d| d.id == *id);
            if !is_known(&story) && !is_known(&whole) {
                return Err(unknown(*id, &whole).at("--only-fuse"));
            }
            if whole.has_taken(*id) {
                self.list_foundations(*id, &whole)?;
            }
        }
        let story = self.tell(&self.options, &mut |_| {})?;
        let along = |row: &&DecisionRow| row.verdict == Verdict::Taken && !listed.contains(&row.id);
        let along: Vec<String> =
            story.explanation.decisions.iter().filter(along).map(|row| row.id.to_string()).collect();
        if !along.is_empty() {
            let [these, are] = if along.len() == 1 { ["this one", "is"] } else { ["these", "are"] };
            screen::tell(&format!(
                "note: what is listed rests on {these}, which {are} taken too: {}",
                along.join(", ")
            ));
        }
        for id in missing.into_iter().filter(|id| !story.has_taken(*id)) {
            screen::tell(&format!("note: {id} is not taken, also where everything may be done"));
        }
        Ok(story)
    }

    /// Lists what a decision of the plan in which everything may be done rests on: no more than makes it come up again.
    fn list_foundations(&mut self, id: DecisionId, whole: &Story) -> Outcome<()> {
        let listed = self.options.pins.only.clone().unwrap_or_default();
        for set in whole.planned.with_foundations(id) {
            self.options.pins.only = Some(listed.iter().copied().chain(set).collect());
            if self.plan(&self.options, &mut |_| {})?.has_taken(id) {
                break;
            }
        }
        Ok(())
    }
}

impl Story {
    fn has_taken(&self, id: DecisionId) -> bool {
        self.explanation.decisions.iter().any(|d| d.id == id && d.verdict == Verdict::Taken)
    }
}

/// As much as is asked for, in the columns of the terminal.
fn view(verbose: bool, top: usize) -> View {
    let remedies = Remedies { sizes: "choose them with --sizes", decisions: "--verbose and --json list all" };
    View { width: screen::width(), verbose, top, remedies }
}

fn plan_options(arguments: &Explain, written: Option<&WrittenPlan>, env: Env) -> Outcome<PlanOptions> {
    let budget = &arguments.limits.budget();
    let wishes = PlanWishes {
        target: arguments.target.as_deref(),
        usual: "cpu",
        numerics: arguments.numerics.map(|n| n.numerics()),
        precision: arguments.precision,
        budget,
    };
    let only = arguments.no_fuse.then(Vec::new);
    let only = only.or((!arguments.only_fuse.is_empty()).then(|| arguments.only_fuse.clone()));
    Ok(PlanOptions {
        hints: Hints { env, ..Hints::default() },
        fuel: arguments.fuel,
        pins: Pins { only: only.map(|ids| ids.into_iter().collect()), ..Pins::default() },
        policy: arguments.policy.of_plans(),
        ..WrittenPlan::options(written, &wishes)?
    })
}

fn print_step(step: &Step<'_>) {
    if step.changed {
        let title = screen::heading(&format!("After {} (round {})", step.pass, step.round + 1));
        // A reader that goes away is noticed when the report itself is printed.
        let _ = screen::print_code(&format!("{title}{}\n", step.graph));
    }
}

/// The graphs whose nodes a written plan numbers.
fn print_program(program: &Program) {
    for (title, graph) in [("What is computed once", program.prepare()), ("What every run computes", program.run())] {
        if !graph.outputs().is_empty() {
            let _ = screen::print_code(&format!("{}{graph}\n", screen::heading(title)));
        }
    }
}

/// An id that no decision has, with those that look like it.
fn unknown(id: DecisionId, story: &Story) -> Failure {
    let error = Error::invalid(format!("no decision of this plan is called {id}"));
    let wanted = id.to_string();
    let distance = |other: &str| wanted.bytes().zip(other.bytes()).filter(|(a, b)| a != b).count();
    let mut near: Vec<(usize, String)> =
        story.explanation.decisions.iter().map(|d| (distance(&d.id.to_string()), d.id.to_string())).collect();
    near.sort();
    let near: Vec<String> = near.into_iter().take(3).map(|(_, id)| id).collect();
    let help = match near.is_empty() {
        true => "the plan has no decisions at all".to_string(),
        false => format!("the nearest are {}; `fuseline explain MODEL` lists all", near.join(", ")),
    };
    Failure::with_help(error, help)
}
