//! Who is asked before a rewrite is applied, and what was answered.

use std::fmt;
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use super::magnitude::may_move;
use super::peel::Action;
use super::step::Step;
use crate::device::Machine;
use crate::graph::{Graph, OriginSet};
use crate::lower::Hints;
use crate::tensor::Dim;

/// A place in a graph where a rewrite applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// the rewrite
    pub rule: &'static str,
    /// the node whose work moves
    pub producer: usize,
    /// the node that it moves past, or into
    pub consumer: usize,
    /// arithmetic operations that a run does less (negative: more)
    pub flops_saved: Dim,
    /// bytes that a run moves less where every map runs by itself (negative: more)
    pub bytes_saved: Dim,
    /// whether it is plain that a run cannot take longer with it
    pub is_sure: bool,
    /// what happens, in words
    pub what: String,
}

/// Why a rewrite that fits is not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// whoever gives permission said no
    NotAllowed,
    /// another node reads the value that would no longer be computed
    UsedElsewhere,
    /// an integer sum could leave the range of its type, or its length is not known
    MayOverflow,
    /// a factor that would move past a sum is so large or small, or so little is known of it, that it may be what keeps the sum in range
    LeavesRange,
    /// a plan with it takes longer
    Slower,
}

impl Refusal {
    /// Every one.
    pub const ALL: &'static [Refusal] =
        &[Refusal::NotAllowed, Refusal::UsedElsewhere, Refusal::MayOverflow, Refusal::LeavesRange, Refusal::Slower];

    /// A word for it, for programs that read reports.
    pub fn code(self) -> &'static str {
        match self {
            Refusal::NotAllowed => "pinned",
            Refusal::UsedElsewhere => "used-elsewhere",
            Refusal::MayOverflow => "may-overflow",
            Refusal::LeavesRange => "leaves-range",
            Refusal::Slower => "slower",
        }
    }

    /// Whether no choice of the user can change it.
    pub fn is_illegal(self) -> bool {
        !matches!(self, Refusal::NotAllowed | Refusal::Slower)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NotAllowed => "switched off",
            Refusal::UsedElsewhere => "another part of the computation needs the value as it is",
            Refusal::MayOverflow => "the integer sum may overflow",
            Refusal::LeavesRange => {
                "a factor that is not known to lie within 2^-20 … 2^20 may be what keeps the sum in range"
            }
            Refusal::Slower => "a plan with it takes longer, or as long",
        })
    }
}

/// A site that was looked at, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// the same in every run for the same place of a model
    pub id: u64,
    /// the rewrite
    pub rule: &'static str,
    /// where the producer comes from
    pub producer: OriginSet,
    /// where the consumer comes from
    pub consumer: OriginSet,
    /// see [`Site::flops_saved`]
    pub flops_saved: Dim,
    /// see [`Site::bytes_saved`]
    pub bytes_saved: Dim,
    /// see [`Site::is_sure`]
    pub is_sure: bool,
    /// see [`Site::what`]
    pub what: String,
    /// why it was not applied; `None`: it was
    pub refused: Option<Refusal>,
}

/// Says why a rewrite is not applied, if it is not.
type Judge<'p> = dyn FnMut(&Application) -> Option<Refusal> + 'p;

/// Gives permission for each application of a rewrite and keeps the list of those that were looked at.
pub struct Permit<'p> {
    decide: Box<Judge<'p>>,
    record: Record,
    /// numbers for sizes, and the kind of the device, where rewrites hang on them
    hints: Hints,
    machine: Machine,
}

/// What was looked at so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    applications: Vec<Application>,
    /// Applications of sites that rule, origins and types do not tell apart, in the order of the graph.
    alike: FxHashMap<u64, Alike>,
}

#[derive(Clone, Debug, Default)]
struct Alike {
    applications: Vec<usize>,
    next: usize,
}

impl<'p> Permit<'p> {
    /// Permission by a function, which sees each application once.
    pub fn by(mut decide: impl FnMut(&Application) -> bool + 'p) -> Permit<'p> {
        Permit::judged(move |application| (!decide(application)).then_some(Refusal::NotAllowed))
    }

    /// Permission by a function that says why not. What it refuses for another reason than [`Refusal::NotAllowed`], it is asked again.
    pub fn judged(decide: impl FnMut(&Application) -> Option<Refusal> + 'p) -> Permit<'p> {
        Permit { decide: Box::new(decide), record: Record::default(), hints: Hints::default(), machine: Machine::Cpu }
    }

    /// The same permission, after what was looked at before.
    pub(crate) fn after(self, record: Record) -> Permit<'p> {
        Permit { record, ..self }
    }

    /// The same permission, for a device and sizes.
    pub fn for_plans(self, machine: Machine, hints: &Hints) -> Permit<'p> {
        Permit { machine, hints: hints.clone(), ..self }
    }

    pub(super) fn machine(&self) -> Machine {
        self.machine
    }

    /// A size as a number.
    pub(super) fn size(&self, dim: &Dim) -> f64 {
        self.hints.size(dim)
    }

    /// Permission for everything.
    pub fn everything() -> Permit<'p> {
        Permit::by(|_| true)
    }

    /// Permission for nothing.
    pub fn nothing() -> Permit<'p> {
        Permit::by(|_| false)
    }

    /// What was looked at so far, in order.
    pub fn applications(&self) -> &[Application] {
        &self.record.applications
    }

    /// What was looked at, in order.
    pub fn into_applications(self) -> Vec<Application> {
        self.record.applications
    }

    /// What was looked at, for a permission that comes [after](Permit::after).
    pub(crate) fn into_record(self) -> Record {
        self.record
    }

    /// Says that a rewrite is about to go through a graph from the start: what it was refused before it will ask again.
    pub(super) fn start_over(&mut self) {
        self.record.alike.values_mut().for_each(|alike| alike.next = 0);
    }

    /// Whether a rewrite may be applied at a site of `graph`.
    pub(super) fn allow(&mut self, graph: &Graph, site: Site) -> bool {
        self.settle(graph, site, None).is_none()
    }

    /// As [`Permit::allow`], where factors move past a sum: not those that may be what keeps it in range.
    pub(super) fn allow_move(
        &mut self,
        graph: &Graph,
        site: Site,
        factors: impl IntoIterator<Item = (Action, Step)>,
    ) -> bool {
        let why = (!may_move(graph, factors)).then_some(Refusal::LeavesRange);
        self.settle(graph, site, why).is_none()
    }

    /// Records a site of `graph` at which a rewrite fits but must not be applied.
    pub(super) fn refuse(&mut self, graph: &Graph, site: Site, why: Refusal) {
        self.settle(graph, site, Some(why));
    }

    fn settle(&mut self, graph: &Graph, site: Site, refused: Option<Refusal>) -> Option<Refusal> {
        let kind = kind(graph, &site);
        let Record { applications, alike } = &mut self.record;
        let alike = alike.entry(kind).or_default();
        // Sites whose rewrite was applied are gone; what is there now are those that were refused, or new ones.
        let gone = |k: &usize| applications[*k].refused.is_none();
        while alike.applications.get(alike.next).is_some_and(gone) {
            alike.next += 1;
        }
        let known = alike.applications.get(alike.next).copied();
        let place = known.unwrap_or(applications.len());
        if known.is_none() {
            alike.applications.push(place);
            applications.push(Application {
                id: hash(&(kind, alike.next)),
                rule: site.rule,
                producer: graph.origin(site.producer).clone(),
                consumer: graph.origin(site.consumer).clone(),
                flops_saved: site.flops_saved,
                bytes_saved: site.bytes_saved,
                is_sure: site.is_sure,
                what: site.what,
                refused,
            });
        }
        alike.next += 1;
        let application = &mut applications[place];
        // What the graph forbade before it may allow now; what was not allowed stays so.
        if refused.is_none() && application.refused != Some(Refusal::NotAllowed) {
            application.refused = (self.decide)(application);
        }
        application.refused
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("applications", &self.record.applications).finish_non_exhaustive()
    }
}

/// What stays the same of a site when the graph around it changes: rule, origins, types.
fn kind(graph: &Graph, site: &Site) -> u64 {
    let mut hasher = FxHasher::default();
    site.rule.hash(&mut hasher);
    for node in [site.producer, site.consumer] {
        graph.nodes()[node].types().hash(&mut hasher);
        graph.origin(node).iter().for_each(|origin| origin.hash(&mut hasher));
    }
    hasher.finish()
}

fn hash(x: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    x.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Builder;
    use crate::tensor::{DType, Shape};

    #[test]
    fn a_refused_site_keeps_its_answer_when_others_are_gone() {
        let b = Builder::new("alike");
        let x = b.input("x", DType::F32, Shape::new([2usize]));
        let values = [x.exp(), x.exp().exp(), x.exp().exp().exp()];
        b.output("y", values[2]);
        let graph = b.finish().unwrap();
        let site = |consumer: usize| Site {
            rule: "test",
            producer: 0,
            consumer,
            flops_saved: Dim::int(1),
            bytes_saved: Dim::int(0),
            is_sure: false,
            what: String::new(),
        };
        let mut asked = 0;
        let mut permit = Permit::by(|_| {
            asked += 1;
            asked != 2
        });
        permit.start_over();
        let answers = [1, 2, 3].map(|consumer| permit.allow(&graph, site(consumer)));
        assert_eq!(answers, [true, false, true]);
        permit.start_over();
        assert!(!permit.allow(&graph, site(2)), "it was refused before");
        assert!(permit.allow(&graph, site(3)), "a new one");
        assert_eq!(permit.applications().len(), 4);
        let mut ids: Vec<u64> = permit.applications().iter().map(|a| a.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 4);
    }
}
