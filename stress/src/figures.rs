//! The figures of a run.

use crate::bug::Bug;
use crate::fault::Fault;
use crate::history::History;
use crate::operation_kind::OperationKind;
use crate::outcome::Outcome;
use crate::violation::{Rule, Violation};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The end of a fault, and the workers that were running then.
pub(crate) struct Ended {
    pub(crate) at: i64,
    pub(crate) workers: Vec<i64>,
}

#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) fault: Fault,
    pub(crate) bug: Option<Bug>,
    /// Why the run was skipped.
    pub(crate) left_out: Option<&'static str>,
    pub(crate) operations: usize,
    /// How often the load was stopped for the checker.
    pub(crate) episodes: usize,
    /// For each kind: the operations, and those that held their lock to the end.
    pub(crate) kinds: [(usize, usize); OperationKind::ALL.len()],
    pub(crate) outcomes: HashMap<Option<Outcome>, usize>,
    /// The messages of refused and failed operations.
    pub(crate) reasons: BTreeMap<String, usize>,
    pub(crate) injected: usize,
    /// The times from the end of a fault to the next success of each worker, sorted.
    pub(crate) recoveries: Vec<Duration>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) took: Duration,
}

impl Figures {
    pub(crate) fn new(
        (fault, bug): (Fault, Option<Bug>),
        history: &History,
        ended: &[Ended],
        violations: Vec<Violation>,
        took: Duration,
    ) -> Self {
        let mut figures = Self {
            violations,
            took,
            injected: if fault == Fault::Calm { 0 } else { ended.len() },
            operations: history.operations.len(),
            recoveries: recoveries(history, ended),
            fault,
            bug,
            ..Self::default()
        };
        for operation in history.operations.values() {
            *figures.outcomes.entry(operation.outcome).or_insert(0) += 1;
            let (all, granted) = &mut figures.kinds[operation.kind.index()];
            *all += 1;
            *granted += usize::from(operation.outcome.is_some_and(Outcome::is_granted));
            if operation
                .outcome
                .is_some_and(|outcome| !outcome.is_granted())
            {
                *figures.reasons.entry(operation.why.clone()).or_insert(0) += 1;
            }
        }
        figures
    }

    pub(crate) fn left_out(fault: Fault, bug: Option<Bug>, why: &'static str) -> Self {
        Self {
            fault,
            bug,
            left_out: Some(why),
            ..Self::default()
        }
    }

    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        self.outcomes.get(&Some(outcome)).copied().unwrap_or(0)
    }

    pub(crate) fn granted(&self) -> usize {
        self.count(Outcome::Confirmed) + self.count(Outcome::Taken)
    }

    /// Includes operations that were under way when their process was killed.
    pub(crate) fn unknown(&self) -> usize {
        let killed = self.outcomes.get(&None).copied().unwrap_or(0);
        self.count(Outcome::Unknown) + killed
    }

    pub(crate) fn broken(&self, rule: Rule) -> usize {
        let each = self.violations.iter();
        each.filter(|violation| violation.rule == rule).count()
    }

    pub(crate) fn median(&self) -> Option<Duration> {
        self.recoveries.get(self.recoveries.len() / 2).copied()
    }

    pub(crate) fn longest(&self) -> Option<Duration> {
        self.recoveries.last().copied()
    }

    pub(crate) fn json(&self) -> Value {
        let micros = |time: Option<Duration>| {
            time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
        };
        let violations: BTreeMap<&str, usize> = Rule::ALL
            .into_iter()
            .map(|rule| (rule.name(), self.broken(rule)))
            .collect();
        let kinds: BTreeMap<&str, Value> = OperationKind::ALL
            .into_iter()
            .map(|kind| {
                let (all, granted) = self.kinds[kind.index()];
                (kind.name(), json!({"operations": all, "granted": granted}))
            })
            .collect();
        // A run with a bug can have thousands.
        let shown: Vec<String> = self
            .violations
            .iter()
            .take(100)
            .map(|violation| format!("{}: {}", violation.rule.name(), violation.what))
            .collect();
        json!({
            "fault": self.fault.name(),
            "bug": self.bug.map(Bug::name),
            "left_out": self.left_out,
            "operations": self.operations,
            "episodes": self.episodes,
            "kinds": kinds,
            "confirmed": self.count(Outcome::Confirmed),
            "taken": self.count(Outcome::Taken),
            "refused": self.count(Outcome::Refused),
            "failed": self.count(Outcome::Failed),
            "dropped": self.count(Outcome::Dropped),
            "unknown": self.unknown(),
            "reasons": self.reasons,
            "injected": self.injected,
            "recovery_micros": {"median": micros(self.median()), "longest": micros(self.longest())},
            "violations": violations,
            "shown": shown,
            "seconds": self.took.as_secs_f64(),
        })
    }
}

/// The first success of each worker after the end of each fault.
fn recoveries(history: &History, ended: &[Ended]) -> Vec<Duration> {
    let mut successes: HashMap<i64, Vec<i64>> = HashMap::new();
    for (op, operation) in &history.operations {
        if operation.outcome.is_some_and(Outcome::is_granted) {
            successes.entry(op >> 32).or_default().push(operation.at);
        }
    }
    for times in successes.values_mut() {
        times.sort_unstable();
    }
    let mut recoveries = Vec::new();
    for end in ended {
        for worker in &end.workers {
            let times = successes.get(worker).map_or(&[][..], Vec::as_slice);
            let next = times.partition_point(|at| *at <= end.at);
            if let Some(at) = times.get(next) {
                let micros = u64::try_from(at - end.at).unwrap_or(0);
                recoveries.push(Duration::from_micros(micros));
            }
        }
    }
    recoveries.sort_unstable();
    recoveries
}
