//! Was a rule broken? Found in the evidence of one run, after the load has stopped; it knows nothing of how the load was made.

use crate::evidence::{Evidence, Granted, Written};
use crate::outcome::Outcome;
use crate::violation::{Rule, Violation};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Every breach of a rule that the evidence shows.
pub(crate) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Found(Vec::new());
    found.two_holders(evidence);
    found.bookings(evidence);
    found.writes(evidence);
    found.tokens(evidence);
    found.0
}

/// From one tick to another somebody was inside.
#[derive(Clone, Copy)]
struct Stay {
    from: i64,
    to: i64,
    op: i64,
}

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, op } = self;
        write!(f, "operation {op} from {from} to {to}")
    }
}

struct Found(Vec<Violation>);

impl Found {
    fn add(&mut self, rule: Rule, what: String) {
        self.0.push(Violation::new(rule, what));
    }

    /// Stays in one slot, or under one lease, one after the other. What was rolled back counts too: both ticks were drawn by a
    /// session that had the lock, as far as its client has heard them.
    fn two_holders(&mut self, evidence: &Evidence) {
        let mut stays: BTreeMap<(&str, i64), HashMap<i64, Stay>> = BTreeMap::new();
        for (op, told) in &evidence.history.told {
            if let Some(from) = told.entered {
                let to = told.departed.unwrap_or(from);
                let stay = Stay { from, to, op: *op };
                let slot = stays.entry(("slot", told.slot)).or_default();
                slot.insert(*op, stay);
            }
        }
        for visited in &evidence.visited {
            let stay = Stay {
                from: visited.entered,
                to: visited.departed,
                op: visited.op,
            };
            let slot = stays.entry(("slot", visited.slot)).or_default();
            slot.insert(visited.op, stay);
        }
        for (op, claim) in &evidence.history.claims {
            let stay = Stay {
                from: claim.from,
                to: claim.to,
                op: *op,
            };
            let job = stays.entry(("job", claim.job)).or_default();
            job.insert(*op, stay);
        }
        for ((what, number), stays) in stays {
            let mut stays: Vec<Stay> = stays.into_values().collect();
            stays.sort_unstable_by_key(|stay| stay.from);
            let mut last: Option<Stay> = None;
            for stay in stays {
                if let Some(last) = last.filter(|last| stay.from <= last.to) {
                    let what = format!("{what} {number}: {last} and {stay}");
                    self.add(Rule::TwoHolders, what);
                }
                if last.is_none_or(|last| last.to < stay.to) {
                    last = Some(stay);
                }
            }
        }
    }

    fn bookings(&mut self, evidence: &Evidence) {
        let (mut by_op, mut by_slot) = (HashMap::new(), BTreeMap::<i64, Vec<i64>>::new());
        for visited in evidence.visited.iter().filter(|visited| visited.booked) {
            *by_op.entry(visited.op).or_insert(0) += 1;
            by_slot.entry(visited.slot).or_default().push(visited.op);
        }
        for (slot, ops) in &by_slot {
            if ops.len() > 1 {
                self.add(Rule::Doubled, format!("slot {slot} is booked by {ops:?}"));
            }
        }
        for visited in &evidence.visited {
            let told = evidence.history.told.get(&visited.op);
            let was_refused = told.is_none_or(|told| {
                let outcome = told.outcome;
                told.slot != visited.slot || outcome.is_some_and(|outcome| !may_be(outcome))
            });
            if was_refused {
                self.add(Rule::Ghost, format!("{visited:?}, of which {told:?}"));
            }
        }
        for (op, told) in &evidence.history.told {
            if told.slot < 0 {
                continue;
            }
            let count = by_op.get(op).copied().unwrap_or(0);
            self.is_there(*op, told.outcome, count);
            if told.outcome == Some(Outcome::Taken) {
                if count > 0 {
                    let what = format!("{op} was told that slot {} is taken", told.slot);
                    self.add(Rule::Ghost, what);
                }
                if !by_slot.contains_key(&told.slot) {
                    let what = format!("the booking that {op} saw in slot {}", told.slot);
                    self.add(Rule::Lost, what);
                }
            }
        }
    }

    fn writes(&mut self, evidence: &Evidence) {
        let mut by_op = HashMap::new();
        let written = evidence.written.iter().map(|written| written.op);
        for op in written.chain(evidence.completed.iter().map(|(_, op)| *op)) {
            *by_op.entry(op).or_insert(0) += 1;
            let told = evidence.history.told.get(&op);
            let outcome = told.and_then(|told| told.outcome);
            if told.is_none() || outcome.is_some_and(|outcome| !may_be(outcome)) {
                self.add(Rule::Ghost, format!("the write of {op}, of which {told:?}"));
            }
        }
        let mut by_number = BTreeMap::<i64, Vec<i64>>::new();
        for (number, op) in &evidence.completed {
            by_number.entry(*number).or_default().push(*op);
        }
        for (number, ops) in by_number.iter().filter(|(_, ops)| ops.len() > 1) {
            let what = format!("work {number} was completed by {ops:?}");
            self.add(Rule::Doubled, what);
        }
        for (op, told) in &evidence.history.told {
            if told.slot < 0 {
                let count = by_op.get(op).copied().unwrap_or(0);
                self.is_there(*op, told.outcome, count);
            }
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

    fn tokens(&mut self, evidence: &Evidence) {
        let mut by_job: BTreeMap<i64, (Vec<Granted>, Vec<Written>)> = BTreeMap::new();
        for granted in &evidence.granted {
            by_job.entry(granted.job).or_default().0.push(*granted);
        }
        for written in &evidence.written {
            by_job.entry(written.job).or_default().1.push(*written);
        }
        for (grants, writes) in by_job.values_mut() {
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

/// Whether something may be there of an operation that came to this.
const fn may_be(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Confirmed | Outcome::Taken | Outcome::Unknown
    )
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::evidence::{Evidence, Granted, Visited, Written};
    use crate::history::{Claim, Told};
    use crate::outcome::Outcome;
    use crate::violation::Rule;

    /// A visit of slot 7 that was committed, and what its caller was told.
    fn visit(evidence: &mut Evidence, op: i64, booked: bool, ticks: (i64, i64), outcome: Outcome) {
        told(evidence, op, 7, Some(ticks), Some(outcome));
        evidence.visited.push(Visited {
            slot: 7,
            op,
            booked,
            entered: ticks.0,
            departed: ticks.1,
        });
    }

    fn told(
        evidence: &mut Evidence,
        op: i64,
        slot: i64,
        ticks: Option<(i64, i64)>,
        outcome: Option<Outcome>,
    ) {
        let told = Told {
            slot,
            entered: ticks.map(|ticks| ticks.0),
            departed: ticks.map(|ticks| ticks.1),
            outcome,
            ..Told::default()
        };
        evidence.history.told.insert(op, told);
    }

    fn granted(evidence: &mut Evidence, token: i64, tick: i64, was_free: bool) {
        let job = 0;
        evidence.granted.push(Granted {
            job,
            token,
            was_free,
            tick,
        });
    }

    fn written(evidence: &mut Evidence, op: i64, token: i64, tick: i64, outcome: Option<Outcome>) {
        told(evidence, op, -1, None, outcome);
        let job = 0;
        evidence.written.push(Written {
            job,
            token,
            op,
            tick,
        });
    }

    fn broken(evidence: &Evidence) -> Vec<Rule> {
        check(evidence).iter().map(|found| found.rule).collect()
    }

    /// A slot that is booked and then found so, and a lease that passes on.
    fn sound() -> Evidence {
        let mut evidence = Evidence::default();
        visit(&mut evidence, 1, true, (10, 12), Outcome::Confirmed);
        visit(&mut evidence, 2, false, (13, 14), Outcome::Taken);
        told(&mut evidence, 3, 7, None, Some(Outcome::Refused));
        told(&mut evidence, 4, 7, Some((15, 15)), None);
        granted(&mut evidence, 1, 20, true);
        written(&mut evidence, 5, 1, 21, Some(Outcome::Confirmed));
        granted(&mut evidence, 2, 22, true);
        written(&mut evidence, 6, 2, 23, Some(Outcome::Unknown));
        evidence
    }

    #[test]
    fn nothing_is_found_where_no_rule_is_broken() {
        assert_eq!(broken(&sound()), []);
    }

    #[test]
    fn who_was_inside_while_another_was_is_found_though_it_was_rolled_back() {
        for ticks in [(11, 11), (9, 10), (9, 99)] {
            let mut evidence = sound();
            told(&mut evidence, 9, 7, Some(ticks), Some(Outcome::Failed));
            assert!(broken(&evidence).contains(&Rule::TwoHolders), "{ticks:?}");
        }
    }

    #[test]
    fn two_who_believe_in_one_lease_are_found() {
        let mut evidence = sound();
        for (op, token, from, to) in [(5, 1, 30, 40), (6, 2, 35, 45)] {
            let job = 0;
            let claim = Claim {
                job,
                token,
                from,
                to,
            };
            evidence.history.claims.push((op, claim));
        }
        assert_eq!(broken(&evidence), [Rule::TwoHolders]);
        evidence.history.claims[1].1.from = 41;
        assert_eq!(broken(&evidence), []);
    }

    #[test]
    fn a_confirmed_booking_that_is_not_there_is_lost_and_so_is_one_that_somebody_saw() {
        let mut evidence = sound();
        evidence.visited.retain(|visited| visited.op != 1);
        assert_eq!(broken(&evidence), [Rule::Lost, Rule::Lost]);
        let mut evidence = sound();
        evidence.written.retain(|written| written.op != 5);
        assert_eq!(broken(&evidence), [Rule::Lost]);
    }

    #[test]
    fn a_slot_that_is_booked_twice_is_found_though_the_visits_did_not_meet() {
        let mut evidence = sound();
        visit(&mut evidence, 9, true, (17, 18), Outcome::Confirmed);
        assert_eq!(broken(&evidence), [Rule::Doubled]);
    }

    #[test]
    fn work_that_is_completed_twice_or_was_confirmed_and_is_not_there_is_found() {
        let mut evidence = sound();
        for op in [8, 9] {
            told(&mut evidence, op, -1_000, None, Some(Outcome::Confirmed));
            evidence.completed.push((17, op));
        }
        assert_eq!(broken(&evidence), [Rule::Doubled]);
        evidence.completed.pop();
        assert_eq!(broken(&evidence), [Rule::Lost]);
        told(&mut evidence, 9, -1_000, None, Some(Outcome::Refused));
        assert_eq!(broken(&evidence), []);
    }

    #[test]
    fn what_should_not_have_happened_is_found() {
        for outcome in [Outcome::Refused, Outcome::Failed, Outcome::Dropped] {
            let mut evidence = sound();
            visit(&mut evidence, 9, false, (17, 18), outcome);
            assert_eq!(broken(&evidence), [Rule::Ghost], "{outcome:?}");
            let mut evidence = sound();
            written(&mut evidence, 9, 2, 24, Some(outcome));
            assert_eq!(broken(&evidence), [Rule::Ghost], "{outcome:?}");
        }
        let mut evidence = sound();
        evidence.history.told.remove(&1);
        assert!(broken(&evidence).contains(&Rule::Ghost));
    }

    #[test]
    fn a_token_that_does_not_grow_and_a_write_under_an_old_one_are_found() {
        let mut evidence = sound();
        granted(&mut evidence, 2, 30, true);
        assert_eq!(broken(&evidence), [Rule::Token]);
        let mut evidence = sound();
        granted(&mut evidence, 3, 30, false);
        assert_eq!(broken(&evidence), [Rule::Token]);
        let mut evidence = sound();
        written(&mut evidence, 9, 1, 25, None);
        assert_eq!(broken(&evidence), [Rule::Token]);
    }
}
