//! The checker: finds broken rules in the records of one run, after the load has stopped. It does
//! not depend on how the load was generated.

mod jobs;

use crate::migration::is_in_transaction;
use crate::operation_kind::Subject;
use crate::outcome::Outcome;
use crate::records::{Granted, Records, Written};
use crate::violation::{Rule, Violation};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

/// Every violation that the records show.
pub(crate) fn check(records: &Records) -> Vec<Violation> {
    let mut found = Found(Vec::new());
    found.too_many_holders(records);
    found.bookings(records);
    found.writes(records);
    found.migrations(records);
    found.tokens(records);
    found.jobs(records);
    found.0
}

/// The time that one operation spent inside a critical section, as two ticks; or that a claim of a
/// job lasted.
#[derive(Clone, Copy)]
struct Stay {
    from: i64,
    to: i64,
    op: i64,
}

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, op } = self;
        write!(f, "{op} from {from} to {to}")
    }
}

/// The stays of each subject, by operation.
#[derive(Default)]
struct Stays(BTreeMap<(Subject, i64), HashMap<i64, Stay>>);

impl Stays {
    fn add(&mut self, subject: Subject, number: i64, op: i64, (from, to): (i64, i64)) {
        let stays = self.0.entry((subject, number)).or_default();
        stays.insert(op, Stay { from, to, op });
    }
}

struct Found(Vec<Violation>);

impl Found {
    fn add(&mut self, rule: Rule, what: String) {
        self.0.push(Violation::new(rule, what));
    }

    /// Stays of one subject must not overlap, or at most as many as there are permits. Operations
    /// that were rolled back count too: both of their ticks were drawn by a session that held the
    /// lock.
    fn too_many_holders(&mut self, records: &Records) {
        let mut stays = Stays::default();
        for (op, operation) in &records.history.operations {
            if let Some(from) = operation.entered {
                let to = operation.departed.unwrap_or(from);
                stays.add(operation.kind.subject(), operation.number, *op, (from, to));
            }
        }
        for section in &records.sections {
            let ticks = (section.entered, section.departed);
            let subject = records.subject(section.op);
            stays.add(subject, section.number, section.op, ticks);
        }
        for (op, claim) in &records.history.claims {
            let subject = match records.subject(*op) {
                Subject::Tenant => Subject::Tenant,
                _ => Subject::Lease,
            };
            stays.add(subject, claim.lease, *op, (claim.from, claim.to));
        }
        // One lock protects all versions. One operation can apply several.
        let mut versions: Vec<Stay> = Vec::new();
        for migrated in &records.migrated {
            let (from, to, op) = (migrated.entered, migrated.departed, migrated.op);
            versions.push(Stay { from, to, op });
        }
        self.at_once(Subject::Version, 0, versions);
        for ((subject, number), stays) in stays.0 {
            self.at_once(subject, number, stays.into_values().collect());
        }
    }

    fn at_once(&mut self, subject: Subject, number: i64, mut stays: Vec<Stay>) {
        stays.sort_unstable_by_key(|stay| stay.from);
        let mut inside: Vec<Stay> = Vec::new();
        for stay in stays {
            inside.retain(|before| stay.from <= before.to);
            inside.push(stay);
            if inside.len() > subject.capacity() {
                let all: Vec<String> = inside.iter().map(Stay::to_string).collect();
                let what = format!("{} {number}: {}", subject.name(), all.join(" and "));
                self.add(Rule::TooMany, what);
            }
        }
    }

    fn bookings(&mut self, records: &Records) {
        let (mut by_op, mut by_slot) = (HashMap::new(), BTreeMap::<i64, Vec<i64>>::new());
        for section in &records.sections {
            let subject = records.subject(section.op);
            if section.booked || subject == Subject::Room {
                *by_op.entry(section.op).or_insert(0) += 1;
            }
            if section.booked {
                by_slot.entry(section.number).or_default().push(section.op);
            }
        }
        for (slot, ops) in &by_slot {
            if ops.len() > 1 {
                self.add(Rule::Doubled, format!("slot {slot} is booked by {ops:?}"));
            }
        }
        for section in &records.sections {
            let operation = records.history.operations.get(&section.op);
            let was_refused = operation.is_none_or(|operation| {
                let outcome = operation.outcome;
                operation.number != section.number
                    || outcome.is_some_and(|outcome| !may_be(outcome))
            });
            if was_refused {
                self.add(Rule::Ghost, format!("{section:?}, of which {operation:?}"));
            }
        }
        for (op, operation) in &records.history.operations {
            let subject = operation.kind.subject();
            if !matches!(subject, Subject::Slot | Subject::Room) {
                continue;
            }
            let count = by_op.get(op).copied().unwrap_or(0);
            self.is_there(*op, operation.outcome, count);
            if operation.outcome == Some(Outcome::Taken) && subject == Subject::Slot {
                let slot = operation.number;
                if count > 0 {
                    let what = format!("{op} reported that slot {slot} is taken");
                    self.add(Rule::Ghost, what);
                }
                if !by_slot.contains_key(&slot) {
                    let what = format!("the booking that {op} saw in slot {slot}");
                    self.add(Rule::Lost, what);
                }
            }
        }
    }

    fn writes(&mut self, records: &Records) {
        let mut by_op = HashMap::new();
        let written = records.written.iter().map(|written| written.op);
        for op in written.chain(records.completed.iter().map(|completed| completed.op)) {
            *by_op.entry(op).or_insert(0) += 1;
            self.is_possible(records, op, &"a write");
        }
        let mut by_number = BTreeMap::<i64, Vec<i64>>::new();
        for completed in &records.completed {
            let ops = by_number.entry(completed.number).or_default();
            ops.push(completed.op);
        }
        for (number, ops) in by_number.iter().filter(|(_, ops)| ops.len() > 1) {
            let what = format!("work {number} was completed by {ops:?}");
            self.add(Rule::Doubled, what);
        }
        for (op, operation) in &records.history.operations {
            if matches!(operation.kind.subject(), Subject::Lease | Subject::Work) {
                let count = by_op.get(op).copied().unwrap_or(0);
                self.is_there(*op, operation.outcome, count);
            }
        }
    }

    fn migrations(&mut self, records: &Records) {
        let migrated = &records.migrated;
        for row in migrated {
            self.is_possible(records, row.op, row);
        }
        for (op, version) in &records.history.applied {
            let mut rows = migrated.iter();
            if !rows.any(|row| row.op == *op && row.version == *version) {
                let what = format!("operation {op} reported that it has applied {version}");
                self.add(Rule::Lost, what);
            }
        }
        // Migrations in a transaction are recorded as applied in the same transaction.
        let mut versions = HashSet::new();
        for row in migrated.iter().filter(|row| is_in_transaction(row.version)) {
            if !versions.insert(row.version) {
                self.add(Rule::Doubled, format!("{row:?} was applied before"));
            }
        }
    }

    /// Something was written by an operation that no client began, or that reported no effect.
    fn is_possible(&mut self, records: &Records, op: i64, what: &dyn fmt::Debug) {
        let operation = records.history.operations.get(&op);
        let outcome = operation.and_then(|operation| operation.outcome);
        if operation.is_none() || outcome.is_some_and(|outcome| !may_be(outcome)) {
            self.add(
                Rule::Ghost,
                format!("{what:?} of {op}, of which {operation:?}"),
            );
        }
    }

    fn is_there(&mut self, op: i64, outcome: Option<Outcome>, count: usize) {
        if count > 1 {
            self.add(
                Rule::Doubled,
                format!("operation {op} is there {count} times"),
            );
        }
        if count == 0 && outcome == Some(Outcome::Confirmed) {
            self.add(Rule::Lost, format!("operation {op} was confirmed"));
        }
    }

    fn tokens(&mut self, records: &Records) {
        let mut by_key: BTreeMap<i64, (Vec<Granted>, Vec<Written>)> = BTreeMap::new();
        for granted in &records.granted {
            by_key.entry(granted.lease).or_default().0.push(*granted);
        }
        for written in &records.written {
            by_key.entry(written.lease).or_default().1.push(*written);
        }
        for (grants, writes) in by_key.values_mut() {
            grants.sort_unstable_by_key(|granted| granted.tick);
            for granted in grants.iter().filter(|granted| !granted.was_free) {
                self.add(Rule::Token, format!("{granted:?} while it was held"));
            }
            for pair in grants.windows(2) {
                if pair[1].token <= pair[0].token {
                    self.add(Rule::Token, format!("{:?} behind {:?}", pair[1], pair[0]));
                }
            }
            for written in writes {
                let before = grants.partition_point(|granted| granted.tick < written.tick);
                let current = before.checked_sub(1).map(|last| grants[last]);
                if current.is_none_or(|current| current.token != written.token) {
                    self.add(Rule::Token, format!("{written:?} under {current:?}"));
                }
            }
        }
    }
}

/// Whether writes of an operation with this outcome may exist.
const fn may_be(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Confirmed | Outcome::Taken | Outcome::Unknown
    )
}

#[cfg(test)]
mod tests;
