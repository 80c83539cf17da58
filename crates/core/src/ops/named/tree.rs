//! Ensembles of decision trees: all rows walk down all trees at once, level by level.
//!
//! Nodes and leaves are numbered through, leaves behind nodes; a leaf leads to itself, so trees of different depth end
//! together.

use super::classify::{Labels, binary};
use super::feature::{PostTransform, rows_of};
use super::time_loop::{Step, Stepped, over_time};
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::{Builder, Tensor};
use crate::ops::prim::{Gather, Monoid};
use crate::tensor::{DType, Dim, Literal, Shape, Symbol};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "TreeEnsemble",
        domain: "ai.onnx.ml",
        since: 5,
        attributes: &[
            "aggregate_function",
            "leaf_targetids",
            "leaf_weights",
            "membership_values",
            "n_targets",
            "nodes_falseleafs",
            "nodes_falsenodeids",
            "nodes_featureids",
            "nodes_hitrates",
            "nodes_missing_value_tracks_true",
            "nodes_modes",
            "nodes_splits",
            "nodes_trueleafs",
            "nodes_truenodeids",
            "post_transform",
            "tree_roots",
        ],
        doc: "the sum (or mean, least, largest) of the leaves that a row reaches in decision trees",
        expand: tree_ensemble,
    },
    NamedOp {
        name: "TreeEnsembleRegressor",
        domain: "ai.onnx.ml",
        since: 1,
        attributes: &[
            "aggregate_function",
            "base_values",
            "base_values_as_tensor",
            "n_targets",
            "nodes_falsenodeids",
            "nodes_featureids",
            "nodes_hitrates",
            "nodes_hitrates_as_tensor",
            "nodes_missing_value_tracks_true",
            "nodes_modes",
            "nodes_nodeids",
            "nodes_treeids",
            "nodes_truenodeids",
            "nodes_values",
            "nodes_values_as_tensor",
            "post_transform",
            "target_ids",
            "target_nodeids",
            "target_treeids",
            "target_weights",
            "target_weights_as_tensor",
        ],
        doc: "the same with leaves among the nodes and several votes by leaf",
        expand: tree_ensemble_regressor,
    },
    NamedOp {
        name: "TreeEnsembleClassifier",
        domain: "ai.onnx.ml",
        since: 1,
        attributes: &[
            "base_values",
            "base_values_as_tensor",
            "class_ids",
            "class_nodeids",
            "class_treeids",
            "class_weights",
            "class_weights_as_tensor",
            "classlabels_int64s",
            "classlabels_strings",
            "nodes_falsenodeids",
            "nodes_featureids",
            "nodes_hitrates",
            "nodes_hitrates_as_tensor",
            "nodes_missing_value_tracks_true",
            "nodes_modes",
            "nodes_nodeids",
            "nodes_treeids",
            "nodes_truenodeids",
            "nodes_values",
            "nodes_values_as_tensor",
            "post_transform",
        ],
        doc: "the label of the class with most votes of the leaves that a row reaches, and all votes",
        expand: tree_ensemble_classifier,
    },
];

/// How a node compares its feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    LessOrEqual,
    Less,
    GreaterOrEqual,
    Greater,
    Equal,
    NotEqual,
    Member,
}

impl Mode {
    const ALL: [Mode; 7] =
        [Mode::LessOrEqual, Mode::Less, Mode::GreaterOrEqual, Mode::Greater, Mode::Equal, Mode::NotEqual, Mode::Member];

    fn from_name(name: &str) -> Option<Mode> {
        let names = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER"];
        let short = name.strip_prefix("BRANCH_")?;
        names.iter().position(|n| *n == short).map(|k| Mode::ALL[k])
    }
}

/// An inner node.
#[derive(Clone, Debug)]
struct Node {
    feature: i64,
    split: f64,
    mode: Mode,
    /// whether NaN counts as yes
    missing_is_yes: bool,
    /// where to go on yes and no, in the numbering of nodes and leaves
    next: [usize; 2],
    /// what a feature is compared with if the mode is membership
    members: Vec<f64>,
}

/// What a leaf adds to one target.
#[derive(Clone, Copy, Debug)]
struct Vote {
    target: i64,
    weight: f64,
}

/// Trees in one numbering: nodes, then leaves.
#[derive(Debug)]
struct Forest {
    nodes: Vec<Node>,
    leaves: Vec<Vec<Vote>>,
    roots: Vec<usize>,
    targets: i64,
}

/// How the votes of the trees become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Average,
    Sum,
    Min,
    Max,
}

impl Aggregate {
    const ALL: [Aggregate; 4] = [Aggregate::Average, Aggregate::Sum, Aggregate::Min, Aggregate::Max];
}

impl Forest {
    /// The longest way from a root to a leaf; an error where a way never ends or leads outside.
    fn depth(&self) -> Result<usize> {
        let mut depths = vec![None; self.nodes.len()];
        let mut open = vec![false; self.nodes.len()];
        let mut todo: Vec<(usize, bool)> = self.roots.iter().map(|r| (*r, false)).collect();
        let outside = || Error::invalid("a decision tree leads to a node that does not exist");
        while let Some((at, left)) = todo.pop() {
            if at >= self.nodes.len() {
                if at >= self.nodes.len() + self.leaves.len() {
                    return Err(outside());
                }
                continue;
            }
            let next = self.nodes[at].next;
            if left {
                let below = next.iter().map(|n| depths.get(*n).copied().flatten().unwrap_or(0)).max();
                depths[at] = Some(below.unwrap_or(0) + 1);
            } else if depths[at].is_none() {
                if std::mem::replace(&mut open[at], true) {
                    return Err(Error::invalid("a decision tree leads back to itself"));
                }
                todo.push((at, true));
                todo.extend(next.iter().map(|n| (*n, false)));
            }
        }
        Ok(self.roots.iter().map(|r| depths.get(*r).copied().flatten().unwrap_or(0)).max().unwrap_or(0))
    }

    /// The leaf `[rows, trees]` that every row of `x` reaches in every tree.
    fn reach<'b>(&self, x: Tensor<'b>) -> Result<Tensor<'b>> {
        let builder = x.builder();
        let roots: Vec<i64> = self.roots.iter().map(|r| *r as i64).collect();
        let start = builder.constant(Literal::i64s(&roots)).expand(vec![x.dim(0)?, Dim::from(roots.len())]);
        let depth = Dim::from(self.depth()?);
        let ends = over_time(builder, "TreeEnsemble", &depth, &[start], |inside, state| {
            Ok(Stepped { state: vec![self.descend(inside, inside.capture(x)?, state[0])?], slices: vec![] })
        })?;
        Ok(ends[0] - self.nodes.len() as i64)
    }

    /// One level down.
    fn descend<'r>(&self, inside: &Step<'r, '_>, x: Tensor<'r>, at: Tensor<'r>) -> Result<Tensor<'r>> {
        let (region, dtype, shape) = (inside.region, x.dtype()?, at.shape()?);
        let leaves = self.leaves.len();
        let ints = |of: &dyn Fn(&Node) -> i64, leaf: &dyn Fn(usize) -> i64| {
            let values = self.nodes.iter().map(of).chain((0..leaves).map(|k| leaf(self.nodes.len() + k)));
            pick(region.constant(Literal::i64s(&values.collect::<Vec<_>>())), at)
        };
        let feature = ints(&|n| n.feature, &|_| 0)?;
        let map = vec![Dim::axis(0), Symbol::Read(0).into()];
        let value = x.gather(Gather { shape, map }, &[feature]);
        let splits: Vec<f64> = self.nodes.iter().map(|n| n.split).chain((0..leaves).map(|_| 0.0)).collect();
        let split = pick(region.constant(Literal::from_f64s(dtype, [splits.len()], &splits)?), at)?;
        let mut modes: Vec<Mode> = self.nodes.iter().map(|n| n.mode).collect();
        modes.sort_unstable();
        modes.dedup();
        let mode = ints(&|n| n.mode as i64, &|_| 0)?;
        let mut yes = region.int(DType::Bool, 0);
        for (k, kind) in modes.into_iter().enumerate() {
            let holds = self.compare(region, kind, value, split, at)?;
            yes = if k == 0 { holds } else { mode.equal(kind as i64).select(holds, yes) };
        }
        if self.nodes.iter().any(|n| n.missing_is_yes) {
            yes = yes.or(value.is_nan().and(ints(&|n| i64::from(n.missing_is_yes), &|_| 0)?.equal(1i64)));
        }
        let next = |k: usize| ints(&|n| n.next[k] as i64, &|leaf| leaf as i64);
        Ok(yes.select(next(0)?, next(1)?))
    }

    fn compare<'r>(
        &self,
        region: &'r Builder,
        mode: Mode,
        value: Tensor<'r>,
        split: Tensor<'r>,
        at: Tensor<'r>,
    ) -> Result<Tensor<'r>> {
        Ok(match mode {
            Mode::LessOrEqual => value.le(split),
            Mode::Less => value.lt(split),
            Mode::GreaterOrEqual => value.ge(split),
            Mode::Greater => value.gt(split),
            Mode::Equal => value.equal(split),
            Mode::NotEqual => value.not_equal(split),
            Mode::Member => {
                // Sets are filled up with NaN, which equals nothing.
                let most = self.nodes.iter().map(|n| n.members.len()).max().unwrap_or(0);
                let rows = self.nodes.len() + self.leaves.len();
                let mut sets = vec![f64::NAN; rows * most];
                for (k, node) in self.nodes.iter().enumerate() {
                    sets[k * most..k * most + node.members.len()].copy_from_slice(&node.members);
                }
                let table = region.constant(Literal::from_f64s(value.dtype()?, [rows, most], &sets)?);
                let shape: Shape = at.shape()?.dims().iter().cloned().chain([Dim::from(most)]).collect();
                let map = vec![Symbol::Read(0).into(), Dim::axis(2)];
                let set = table.gather(Gather { shape: shape.clone(), map }, &[at.insert_axes(&[2]).expand(shape)]);
                value.insert_axes(&[2]).equal(set).reduce(Monoid::Max, &[2])
            }
        })
    }

    /// The scores `[rows, targets]` of the leaves that were reached.
    fn vote<'b>(&self, leaf: Tensor<'b>, dtype: DType, aggregate: Aggregate) -> Result<Tensor<'b>> {
        let builder = leaf.builder();
        let most = self.leaves.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let (monoid, neutral) = match aggregate {
            Aggregate::Sum | Aggregate::Average => (Monoid::Sum, 0.0),
            Aggregate::Min => (Monoid::Min, dtype.max_float().unwrap_or(f64::INFINITY)),
            Aggregate::Max => (Monoid::Max, -dtype.max_float().unwrap_or(f64::INFINITY)),
        };
        let mut targets = vec![-1; self.leaves.len() * most];
        let mut weights = vec![0.0; targets.len()];
        for (k, votes) in self.leaves.iter().enumerate() {
            for (j, vote) in votes.iter().enumerate() {
                targets[k * most + j] = vote.target;
                weights[k * most + j] = vote.weight;
            }
        }
        let sizes = [self.leaves.len(), most];
        let target = builder.constant(Literal::i64s(&targets).reshaped(sizes)?).take(0, leaf).insert_axes(&[3]);
        let weight = builder.constant(Literal::from_f64s(dtype, sizes, &weights)?).take(0, leaf).insert_axes(&[3]);
        let own = target.equal(builder.coordinate(0, &vec![Dim::int(self.targets)].into()));
        let mut scores = own.select(weight, neutral).reduce(monoid, &[1, 2]);
        if matches!(aggregate, Aggregate::Min | Aggregate::Max) {
            // What no leaf votes for has the score of an empty sum, not of an empty extreme.
            scores = own.reduce(Monoid::Max, &[1, 2]).select(scores, 0.0);
        }
        Ok(if aggregate == Aggregate::Average { scores / self.roots.len() as f64 } else { scores })
    }
}

/// The elements of a table at these places.
fn pick<'r>(table: Tensor<'r>, at: Tensor<'r>) -> Result<Tensor<'r>> {
    Ok(table.gather(Gather { shape: at.shape()?, map: vec![Symbol::Read(0).into()] }, &[at]))
}

fn place(n: i64) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::invalid(format!("a decision tree leads to node {n}")))
}

fn needed<'a>(call: &Call<'a, '_>, name: &str, count: Option<usize>) -> Result<&'a [i64]> {
    let list = call.ints(name)?.ok_or_else(|| Error::invalid(format!("{} needs attribute {name}", call.op.name)))?;
    match count.filter(|n| *n != list.len()) {
        Some(n) => Err(Error::invalid(format!("attribute {name} holds {} values, wanted {n}", list.len()))),
        None => Ok(list),
    }
}

fn tensor_of(call: &Call<'_, '_>, name: &str, count: Option<usize>) -> Result<Vec<f64>> {
    let tensor = call.tensor(name)?;
    let values = tensor.ok_or_else(|| Error::invalid(format!("{} needs attribute {name}", call.op.name)))?.to_f64s();
    match count.filter(|n| *n != values.len()) {
        Some(n) => Err(Error::invalid(format!("attribute {name} holds {} values, wanted {n}", values.len()))),
        None => Ok(values),
    }
}

fn tree_ensemble<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let features = needed(call, "nodes_featureids", None)?;
    let count = features.len();
    let list = |name: &str| needed(call, name, Some(count));
    let (yes, no) = (list("nodes_truenodeids")?, list("nodes_falsenodeids")?);
    let (yes_leaf, no_leaf) = (list("nodes_trueleafs")?, list("nodes_falseleafs")?);
    let (splits, modes) = (tensor_of(call, "nodes_splits", Some(count))?, tensor_of(call, "nodes_modes", Some(count))?);
    let missing = call.ints("nodes_missing_value_tracks_true")?;
    let members = call.tensor("membership_values")?.map_or_else(Vec::new, Literal::to_f64s);
    let mut sets = members.split(|x| x.is_nan());
    let mut nodes = Vec::with_capacity(count);
    for k in 0..count {
        let mode = Mode::ALL.get(modes[k] as usize).copied();
        let mode = mode.ok_or_else(|| Error::invalid(format!("mode {} of a decision tree", modes[k])))?;
        let members = if mode == Mode::Member { sets.next().unwrap_or(&[]).to_vec() } else { Vec::new() };
        let next = |to: i64, leaf: i64| Ok::<usize, Error>(place(to)? + if leaf != 0 { count } else { 0 });
        nodes.push(Node {
            feature: features[k],
            split: splits[k],
            mode,
            missing_is_yes: missing.and_then(|m| m.get(k)).is_some_and(|m| *m != 0),
            next: [next(yes[k], yes_leaf[k])?, next(no[k], no_leaf[k])?],
            members,
        });
    }
    let targets = needed(call, "leaf_targetids", None)?;
    let weights = tensor_of(call, "leaf_weights", Some(targets.len()))?;
    let leaves = targets.iter().zip(&weights).map(|(t, w)| vec![Vote { target: *t, weight: *w }]).collect();
    let roots = needed(call, "tree_roots", None)?.iter().map(|r| place(*r)).collect::<Result<_>>()?;
    let targets = call.int("n_targets")?.unwrap_or_else(|| targets.iter().max().map_or(1, |t| t + 1));
    let forest = Forest { nodes, leaves, roots, targets };
    let aggregate = call.int_or("aggregate_function", 1)?;
    let aggregate = usize::try_from(aggregate).ok().and_then(|k| Aggregate::ALL.get(k).copied());
    let aggregate = aggregate.ok_or_else(|| Error::invalid("attribute aggregate_function of TreeEnsemble"))?;
    let transform = match call.int_or("post_transform", 0)? {
        0 => PostTransform::None,
        1 => PostTransform::Softmax,
        2 => PostTransform::Logistic,
        3 => PostTransform::SoftmaxZero,
        other => return Err(call.unsupported("post_transform", other)),
    };
    let x = rows_of(call.input(0)?)?;
    Ok(vec![transform.apply(forest.vote(forest.reach(x)?, x.dtype()?, aggregate)?)])
}

fn tree_ensemble_regressor<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let mut forest = forest_of(call, "target")?;
    if let Some(targets) = call.int("n_targets")? {
        forest.targets = targets;
    }
    let aggregate = match call.str_or("aggregate_function", "SUM")? {
        "AVERAGE" => Aggregate::Average,
        "SUM" => Aggregate::Sum,
        "MIN" => Aggregate::Min,
        "MAX" => Aggregate::Max,
        other => return Err(Error::invalid(format!("attribute aggregate_function = \"{other}\""))),
    };
    Ok(vec![PostTransform::of(call)?.apply(votes(call, &forest, aggregate)?)])
}

fn tree_ensemble_classifier<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (mut forest, labels) = (forest_of(call, "class")?, Labels::of(call, "classlabels_int64s")?);
    let transform = PostTransform::of(call)?;
    let voted = || forest.leaves.iter().flatten();
    let several = voted().any(|vote| vote.target != 0);
    if several || labels.count != 2 {
        forest.targets = labels.count as i64;
        let scores = votes(call, &forest, Aggregate::Sum)?;
        return Ok(vec![labels.of_largest(scores), transform.apply(scores)]);
    }
    // All votes are for one class, which stands for the second label: as a probability where no vote is against it.
    let is_share = voted().all(|vote| vote.weight >= 0.0);
    if !matches!(transform, PostTransform::None | PostTransform::Logistic) {
        return Err(call.unsupported("post_transform", format!("{transform:?} of one score for two classes")));
    }
    forest.targets = 1;
    let score = votes(call, &forest, Aggregate::Sum)?;
    let (threshold, against) = if is_share { (0.5, -score + 1.0) } else { (0.0, -score) };
    Ok(binary(&labels, score, threshold, against, transform))
}

/// The scores `[rows, targets]` of operand 0, base values added.
fn votes<'b>(call: &Call<'_, 'b>, forest: &Forest, aggregate: Aggregate) -> Result<Tensor<'b>> {
    let x = rows_of(call.input(0)?)?;
    let x = if x.dtype()?.is_float() { x } else { x.cast(DType::F32) };
    // What is given as a tensor is of double precision.
    let precise = call.attributes.keys().any(|name| name.ends_with("_as_tensor"));
    let dtype = if precise { DType::F64 } else { DType::F32 };
    let mut scores = forest.vote(forest.reach(x)?, dtype, aggregate)?;
    if let Some(base) = numbers(call, "base_values")?.filter(|base| !base.is_empty()) {
        if base.len() as i64 != forest.targets {
            return Err(call.unsupported("base_values", format!("{base:?} for {} scores", forest.targets)));
        }
        scores = scores + call.builder.constant(Literal::from_f64s(dtype, [base.len()], &base)?);
    }
    Ok(scores.cast(DType::F32))
}

/// A list of floats, or the tensor that newer versions give in its place.
fn numbers(call: &Call<'_, '_>, name: &str) -> Result<Option<Vec<f64>>> {
    match call.floats(name)? {
        Some(list) => Ok(Some(list.to_vec())),
        None => Ok(call.tensor(&format!("{name}_as_tensor"))?.map(Literal::to_f64s)),
    }
}

/// As [`numbers`], of which there must be so many.
fn numbers_needed(call: &Call<'_, '_>, name: &str, count: usize) -> Result<Vec<f64>> {
    let given = numbers(call, name)?.filter(|list| list.len() == count);
    given.ok_or_else(|| Error::invalid(format!("{} needs {count} values of attribute {name}", call.op.name)))
}

/// Trees whose nodes are named by tree and number, and whose leaves lie among them; `votes` is how the attributes of votes begin.
fn forest_of(call: &Call<'_, '_>, votes: &str) -> Result<Forest> {
    let trees = needed(call, "nodes_treeids", None)?;
    let count = trees.len();
    let list = |name: &str| needed(call, name, Some(count));
    let (ids, features) = (list("nodes_nodeids")?, list("nodes_featureids")?);
    let (yes, no) = (list("nodes_truenodeids")?, list("nodes_falsenodeids")?);
    let values = numbers_needed(call, "nodes_values", count)?;
    let modes = call.strs("nodes_modes")?.filter(|m| m.len() == count);
    let modes = modes.ok_or_else(|| Error::invalid(format!("attribute nodes_modes of {}", call.op.name)))?;
    let missing = call.ints("nodes_missing_value_tracks_true")?;
    // The place of every node among the inner ones or among the leaves, by tree and number.
    let inner = modes.iter().filter(|m| *m != "LEAF").count();
    let (mut inner_seen, mut leaves_seen) = (0, 0);
    let mut places = rustc_hash::FxHashMap::default();
    let mut roots: indexmap::IndexMap<i64, usize> = indexmap::IndexMap::new();
    for k in 0..count {
        let counter = if modes[k] == "LEAF" { &mut leaves_seen } else { &mut inner_seen };
        let at = *counter + if modes[k] == "LEAF" { inner } else { 0 };
        *counter += 1;
        places.insert((trees[k], ids[k]), at);
        roots.entry(trees[k]).or_insert(at);
    }
    let find = |tree: i64, id: i64| {
        let place = places.get(&(tree, id)).copied();
        place.ok_or_else(|| Error::invalid(format!("tree {tree} has no node {id}")))
    };
    let mut nodes = Vec::with_capacity(inner);
    for k in (0..count).filter(|k| modes[*k] != "LEAF") {
        let mode = Mode::from_name(&modes[k]);
        nodes.push(Node {
            feature: features[k],
            split: values[k],
            mode: mode.ok_or_else(|| call.unsupported("nodes_modes", &modes[k]))?,
            missing_is_yes: missing.and_then(|m| m.get(k)).is_some_and(|m| *m != 0),
            next: [find(trees[k], yes[k])?, find(trees[k], no[k])?],
            members: Vec::new(),
        });
    }
    let mut leaves = vec![Vec::new(); leaves_seen];
    let of_vote = |what: &str, count| needed(call, &format!("{votes}_{what}"), count);
    let targets = of_vote("ids", None)?;
    let (target_trees, target_nodes) =
        (of_vote("treeids", Some(targets.len()))?, of_vote("nodeids", Some(targets.len()))?);
    let weights = numbers_needed(call, &format!("{votes}_weights"), targets.len())?;
    for k in 0..targets.len() {
        let leaf = find(target_trees[k], target_nodes[k])?.checked_sub(inner);
        let leaf = leaf.ok_or_else(|| Error::invalid("a vote stands at a node that is no leaf"))?;
        leaves[leaf].push(Vote { target: targets[k], weight: weights[k] });
    }
    let targets = targets.iter().max().map_or(1, |t| t.saturating_add(1));
    Ok(Forest { nodes, leaves, roots: roots.into_values().collect(), targets })
}
