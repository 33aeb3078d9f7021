//! Tests of each rule, with invented evidence.

use super::check;
use crate::evidence::{Evidence, Granted, Migrated, Visited, Written};
use crate::history::{Claim, Told};
use crate::outcome::Outcome;
use crate::violation::Rule;
use crate::way::Way;

/// A committed visit of slot 7, and its outcome as its caller saw it.
fn visit(evidence: &mut Evidence, op: i64, booked: bool, ticks: (i64, i64), outcome: Outcome) {
    told(evidence, op, Way::Wait, Some(ticks), Some(outcome));
    evidence.visited.push(Visited {
        number: 7,
        op,
        booked,
        entered: ticks.0,
        departed: ticks.1,
    });
}

fn told(
    evidence: &mut Evidence,
    op: i64,
    way: Way,
    ticks: Option<(i64, i64)>,
    outcome: Option<Outcome>,
) {
    let told = Told {
        way,
        number: 7,
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
    told(evidence, op, Way::Lease, None, outcome);
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

/// A slot that is booked and then found booked, and a lease that changes its holder.
fn sound() -> Evidence {
    let mut evidence = Evidence::default();
    visit(&mut evidence, 1, true, (10, 12), Outcome::Confirmed);
    visit(&mut evidence, 2, false, (13, 14), Outcome::Taken);
    told(&mut evidence, 3, Way::Poll, None, Some(Outcome::Refused));
    told(&mut evidence, 4, Way::Owned, Some((15, 15)), None);
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
fn overlapping_holders_are_found_even_if_rolled_back() {
    for ticks in [(11, 11), (9, 10), (9, 99)] {
        let mut evidence = sound();
        told(
            &mut evidence,
            9,
            Way::Never,
            Some(ticks),
            Some(Outcome::Failed),
        );
        assert!(broken(&evidence).contains(&Rule::TooMany), "{ticks:?}");
    }
}

#[test]
fn two_holders_of_one_lease_are_found() {
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
    assert_eq!(broken(&evidence), [Rule::TooMany]);
    evidence.history.claims[1].1.from = 41;
    assert_eq!(broken(&evidence), []);
}

#[test]
fn a_missing_booking_is_lost_if_confirmed_or_seen() {
    let mut evidence = sound();
    evidence.visited.retain(|visited| visited.op != 1);
    assert_eq!(broken(&evidence), [Rule::Lost, Rule::Lost]);
    let mut evidence = sound();
    evidence.written.retain(|written| written.op != 5);
    assert_eq!(broken(&evidence), [Rule::Lost]);
}

#[test]
fn a_double_booking_is_found_without_overlapping_visits() {
    let mut evidence = sound();
    visit(&mut evidence, 9, true, (17, 18), Outcome::Confirmed);
    assert_eq!(broken(&evidence), [Rule::Doubled]);
}

#[test]
fn work_done_twice_or_confirmed_but_missing_is_found() {
    let mut evidence = sound();
    for op in [8, 9] {
        told(
            &mut evidence,
            op,
            Way::Complete,
            None,
            Some(Outcome::Confirmed),
        );
        evidence.completed.push((17, op));
    }
    assert_eq!(broken(&evidence), [Rule::Doubled]);
    evidence.completed.pop();
    assert_eq!(broken(&evidence), [Rule::Lost]);
    told(
        &mut evidence,
        9,
        Way::Complete,
        None,
        Some(Outcome::Refused),
    );
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
fn a_token_that_does_not_grow_and_a_stale_write_are_found() {
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

/// A committed visit of room 7.
fn sat(evidence: &mut Evidence, op: i64, ticks: (i64, i64)) {
    visit(evidence, op, false, ticks, Outcome::Confirmed);
    evidence.history.told.entry(op).or_default().way = Way::Permits;
}

#[test]
fn as_many_as_there_are_permits_may_be_in_a_room_and_no_more() {
    let mut evidence = sound();
    for (op, ticks) in [
        (21, (10, 20)),
        (22, (11, 30)),
        (23, (12, 13)),
        (24, (14, 40)),
    ] {
        sat(&mut evidence, op, ticks);
    }
    assert_eq!(broken(&evidence), []);
    sat(&mut evidence, 25, (19, 19));
    assert_eq!(broken(&evidence), [Rule::TooMany]);
    evidence.visited.retain(|visited| visited.op != 21);
    assert!(broken(&evidence).contains(&Rule::Lost));
}

/// Operation 31 has confirmed that it applied version 2.
fn migrated(evidence: &mut Evidence, op: i64, version: i64, ticks: (i64, i64)) {
    told(evidence, op, Way::Migrate, None, Some(Outcome::Confirmed));
    evidence.history.applied.push((op, version));
    evidence.migrated.push(Migrated {
        version,
        op,
        entered: ticks.0,
        departed: ticks.1,
    });
}

#[test]
fn overlapping_lost_and_doubled_migrations_are_found() {
    let mut evidence = sound();
    migrated(&mut evidence, 31, 2, (50, 51));
    migrated(&mut evidence, 32, 3, (52, 53));
    // A migration outside a transaction can run again if its process was killed.
    migrated(&mut evidence, 33, 3, (54, 55));
    assert_eq!(broken(&evidence), []);
    evidence.migrated[2].entered = 53;
    assert_eq!(broken(&evidence), [Rule::TooMany]);
    evidence.migrated.pop();
    assert_eq!(broken(&evidence), [Rule::Lost]);
    migrated(&mut evidence, 33, 2, (54, 55));
    assert_eq!(broken(&evidence), [Rule::Lost, Rule::Doubled]);
    told(
        &mut evidence,
        33,
        Way::Migrate,
        None,
        Some(Outcome::Refused),
    );
    assert!(broken(&evidence).contains(&Rule::Ghost));
}
