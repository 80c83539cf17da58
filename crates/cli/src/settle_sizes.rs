//! Sizes that nobody gave, such that the model takes them.

use std::time::{Duration, Instant};

use fuseline::error::Kind;
use fuseline::tensor::{Env, Symbol};
use fuseline_frontend::Tensors;
use fuseline_session::model::Model;

/// How long other sizes are looked for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Replaces sizes that were assumed where these break what the model wants of its sizes (a reshape into heads that only pictures of one
/// height have) and one other number mends it. Otherwise they stay, and the run says what does not fit. Whether the model is
/// known to take them all.
pub fn settle_sizes(model: &Model, env: &mut Env, assumed: &mut [(String, i64)]) -> bool {
    if assumed.is_empty() {
        return false;
    }
    match look(model, env) {
        Fit::Fits => return true,
        Fit::Unknown => return false,
        Fit::Broken => {}
    }
    let start = Instant::now();
    // What a batch, pictures and texts have, before everything else.
    let sizes = std::iter::once(1).chain((32..=640).step_by(16)).chain(2..=1024);
    let (given, names) = (env.clone(), &*assumed);
    let tries = sizes.flat_map(|size| names.iter().map(move |(name, _)| (name, size)));
    let tries = tries.take_while(|_| start.elapsed() < PATIENCE).map(|(name, size)| with(&given, name, size));
    let found = { tries }.find(|env| look(model, env) == Fit::Fits);
    let Some(found) = found else { return false };
    for (name, size) in assumed {
        *size = found.get(&Symbol::name(name)).unwrap_or(*size);
    }
    *env = found;
    true
}

/// What a model says to sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Fits,
    Broken,
    /// values of inputs decide, or the model cannot be imported at all
    Unknown,
}

fn look(model: &Model, env: &Env) -> Fit {
    match model.graph(&Tensors::new(), env) {
        Ok(graph) => {
            let mut sides = graph.constraints().iter().map(|each| (env.apply(&each.left), env.apply(&each.right)));
            if sides.any(|(left, right)| left.surely_differs(&right)) { Fit::Broken } else { Fit::Fits }
        }
        Err(error) if error.kind() == Kind::Invalid => Fit::Broken,
        Err(_) => Fit::Unknown,
    }
}

fn with(base: &Env, name: &str, size: i64) -> Env {
    let mut env = base.clone();
    env.bind(Symbol::name(name), size);
    env
}
