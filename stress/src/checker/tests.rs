//! Tests of each rule, with invented records.

use super::check;
use crate::history::{Claim, Operation};
use crate::operation_kind::OperationKind as Kind;
use crate::outcome::Outcome::{self, Confirmed, Dropped, Failed, Refused, Taken, Unknown};
use crate::records::{
    Change, Completed, Granted, JobEvent, JobRow, Migrated, Records, SectionRow, Worked, Written,
};
use crate::violation::Rule;

/// A committed operation on slot 7, and its outcome as its caller saw it.
fn section(records: &mut Records, op: i64, booked: bool, ticks: (i64, i64), outcome: Outcome) {
    operation(records, op, Kind::Wait, Some(ticks), Some(outcome));
    records.sections.push(SectionRow {
        number: 7,
        op,
        booked,
        entered: ticks.0,
        departed: ticks.1,
    });
}

fn operation(
    records: &mut Records,
    op: i64,
    kind: Kind,
    ticks: Option<(i64, i64)>,
    outcome: Option<Outcome>,
) {
    let (entered, departed) = ticks.unzip();
    let operation = Operation {
        kind,
        number: 7,
        entered,
        departed,
        outcome,
        ..Operation::default()
    };
    records.history.operations.insert(op, operation);
}

fn granted(records: &mut Records, token: i64, tick: i64, was_free: bool) {
    let lease = 0;
    records.granted.push(Granted {
        lease,
        token,
        was_free,
        tick,
    });
}

fn written(records: &mut Records, op: i64, token: i64, tick: i64, outcome: Option<Outcome>) {
    operation(records, op, Kind::Lease, None, outcome);
    let lease = 0;
    records.written.push(Written {
        lease,
        token,
        op,
        tick,
    });
}

/// The time of a holder, which no check compares with its token.
fn claim(records: &mut Records, op: i64, lease: i64, (from, to): (i64, i64)) {
    let token = 0;
    let claim = Claim {
        lease,
        token,
        from,
        to,
    };
    records.history.claims.push((op, claim));
}

fn broken(records: &Records) -> Vec<Rule> {
    check(records).iter().map(|found| found.rule).collect()
}

/// A slot that is booked and then found booked, and a lease that changes its holder.
fn sound() -> Records {
    let mut records = Records::default();
    section(&mut records, 1, true, (10, 12), Confirmed);
    section(&mut records, 2, false, (13, 14), Taken);
    operation(&mut records, 3, Kind::Poll, None, Some(Refused));
    operation(&mut records, 4, Kind::Owned, Some((15, 15)), None);
    granted(&mut records, 1, 20, true);
    written(&mut records, 5, 1, 21, Some(Confirmed));
    granted(&mut records, 2, 22, true);
    written(&mut records, 6, 2, 23, Some(Unknown));
    records
}

#[test]
fn nothing_is_found_where_no_rule_is_broken() {
    assert_eq!(broken(&sound()), []);
}

#[test]
fn overlapping_holders_are_found_even_if_rolled_back() {
    for ticks in [(11, 11), (9, 10), (9, 99)] {
        let mut records = sound();
        operation(&mut records, 9, Kind::Never, Some(ticks), Some(Failed));
        assert!(broken(&records).contains(&Rule::TooMany), "{ticks:?}");
    }
}

#[test]
fn two_holders_of_one_lease_are_found() {
    let mut records = sound();
    claim(&mut records, 5, 0, (30, 40));
    claim(&mut records, 6, 0, (35, 45));
    assert_eq!(broken(&records), [Rule::TooMany]);
    records.history.claims[1].1.from = 41;
    assert_eq!(broken(&records), []);
}

#[test]
fn a_missing_booking_is_lost_if_confirmed_or_seen() {
    let mut records = sound();
    records.sections.retain(|section| section.op != 1);
    assert_eq!(broken(&records), [Rule::Lost, Rule::Lost]);
    let mut records = sound();
    records.written.retain(|written| written.op != 5);
    assert_eq!(broken(&records), [Rule::Lost]);
}

#[test]
fn a_double_booking_is_found_even_without_an_overlap() {
    let mut records = sound();
    section(&mut records, 9, true, (17, 18), Confirmed);
    assert_eq!(broken(&records), [Rule::Doubled]);
}

#[test]
fn work_done_twice_or_confirmed_but_missing_is_found() {
    let mut records = sound();
    for op in [8, 9] {
        operation(&mut records, op, Kind::Complete, None, Some(Confirmed));
        records.completed.push(Completed { number: 17, op });
    }
    assert_eq!(broken(&records), [Rule::Doubled]);
    records.completed.pop();
    assert_eq!(broken(&records), [Rule::Lost]);
    operation(&mut records, 9, Kind::Complete, None, Some(Refused));
    assert_eq!(broken(&records), []);
}

#[test]
fn what_should_not_have_happened_is_found() {
    for outcome in [Refused, Failed, Dropped] {
        let mut records = sound();
        section(&mut records, 9, false, (17, 18), outcome);
        assert_eq!(broken(&records), [Rule::Ghost], "{outcome:?}");
        let mut records = sound();
        written(&mut records, 9, 2, 24, Some(outcome));
        assert_eq!(broken(&records), [Rule::Ghost], "{outcome:?}");
    }
    let mut records = sound();
    records.history.operations.remove(&1);
    assert!(broken(&records).contains(&Rule::Ghost));
}

#[test]
fn a_token_that_does_not_grow_and_a_stale_write_are_found() {
    let mut records = sound();
    granted(&mut records, 2, 30, true);
    assert_eq!(broken(&records), [Rule::Token]);
    let mut records = sound();
    granted(&mut records, 3, 30, false);
    assert_eq!(broken(&records), [Rule::Token]);
    let mut records = sound();
    written(&mut records, 9, 1, 25, None);
    assert_eq!(broken(&records), [Rule::Token]);
}

/// A committed operation on room 7.
fn sat(records: &mut Records, op: i64, ticks: (i64, i64)) {
    section(records, op, false, ticks, Confirmed);
    records.history.operations.entry(op).or_default().kind = Kind::Permits;
}

#[test]
fn as_many_as_there_are_permits_may_be_in_a_room_and_no_more() {
    let mut records = sound();
    for (op, ticks) in [
        (21, (10, 20)),
        (22, (11, 30)),
        (23, (12, 13)),
        (24, (14, 40)),
    ] {
        sat(&mut records, op, ticks);
    }
    assert_eq!(broken(&records), []);
    sat(&mut records, 25, (19, 19));
    assert_eq!(broken(&records), [Rule::TooMany]);
    records.sections.retain(|section| section.op != 21);
    assert!(broken(&records).contains(&Rule::Lost));
}

/// Operation 31 has confirmed that it applied version 2.
fn migrated(records: &mut Records, op: i64, version: i64, ticks: (i64, i64)) {
    operation(records, op, Kind::Migrate, None, Some(Confirmed));
    records.history.applied.push((op, version));
    records.migrated.push(Migrated {
        version,
        op,
        entered: ticks.0,
        departed: ticks.1,
    });
}

#[test]
fn overlapping_lost_and_doubled_migrations_are_found() {
    let mut records = sound();
    migrated(&mut records, 31, 2, (50, 51));
    migrated(&mut records, 32, 3, (52, 53));
    // A migration outside a transaction can run again if its process was killed.
    migrated(&mut records, 33, 3, (54, 55));
    assert_eq!(broken(&records), []);
    records.migrated[2].entered = 53;
    assert_eq!(broken(&records), [Rule::TooMany]);
    records.migrated.pop();
    assert_eq!(broken(&records), [Rule::Lost]);
    migrated(&mut records, 33, 2, (54, 55));
    assert_eq!(broken(&records), [Rule::Lost, Rule::Doubled]);
    operation(&mut records, 33, Kind::Migrate, None, Some(Refused));
    assert!(broken(&records).contains(&Rule::Ghost));
}

fn event(records: &mut Records, job: i64, change: Change, at: i64, until: i64) {
    records.job_events.push(JobEvent {
        job,
        tenant: 3,
        change,
        until,
        at,
        tick: i64::try_from(records.job_events.len()).unwrap(),
    });
}

fn claimed(records: &mut Records, job: i64, at: i64) {
    event(records, job, Change::Claimed, at, at + 10);
}

fn ended(records: &mut Records, id: i64, change: Change, at: i64, attempts: i64) {
    event(records, id, change, at, 0);
    records.jobs.push(JobRow {
        id,
        attempts,
        fails: 0,
        is_completed: change == Change::Completed,
        has_failed: change == Change::Failed,
    });
}

/// Job 1 is done in its second attempt, and job 2 fails in its third one.
fn sound_jobs() -> Records {
    let mut records = sound();
    claimed(&mut records, 1, 100);
    event(&mut records, 1, Change::Renewed, 109, 119);
    event(&mut records, 1, Change::Released, 110, 0);
    // Its worker dies.
    claimed(&mut records, 1, 120);
    claimed(&mut records, 1, 130);
    ended(&mut records, 1, Change::Completed, 131, 2);
    for at in [100, 110, 120] {
        claimed(&mut records, 2, at);
        if at < 120 {
            event(&mut records, 2, Change::Retried, at + 5, 0);
        }
    }
    ended(&mut records, 2, Change::Failed, 130, 3);
    operation(&mut records, 41, Kind::JobOnce, None, Some(Confirmed));
    records.worked.push(Worked { job: 1, op: 41 });
    records
}

#[test]
fn jobs_that_are_done_or_have_failed_break_no_rule() {
    assert_eq!(broken(&sound_jobs()), []);
}

#[test]
fn a_job_that_is_claimed_twice_at_once_is_found() {
    let mut records = sound_jobs();
    // The second claim comes before the first one is released.
    records.job_events[2].tick = 4;
    records.job_events[3].tick = 2;
    records.job_events[4].tick = 3;
    records.job_events[3].at = 118;
    assert!(broken(&records).contains(&Rule::TooMany));
}

#[test]
fn more_running_jobs_of_a_tenant_than_its_limit_are_found() {
    // Job 1 runs until 110, and job 2 until 105.
    for (from, rules) in [(105, &[][..]), (104, &[Rule::TooMany])] {
        let mut records = sound_jobs();
        claimed(&mut records, 3, from);
        ended(&mut records, 3, Change::Completed, 107, 1);
        assert_eq!(broken(&records), rules, "{from}");
    }
}

#[test]
fn a_renewed_claim_counts_until_its_end() {
    let mut records = sound_jobs();
    claimed(&mut records, 3, 200);
    event(&mut records, 3, Change::Renewed, 209, 219);
    let renewal = records.job_events.len() - 1;
    ended(&mut records, 3, Change::Completed, 215, 1);
    for job in [4, 5] {
        claimed(&mut records, job, 212);
        ended(&mut records, job, Change::Completed, 213, 1);
    }
    assert_eq!(broken(&records), [Rule::TooMany]);
    records.job_events[renewal].until = 211;
    assert_eq!(broken(&records), []);
}

#[test]
fn works_on_jobs_of_a_tenant_overlap_up_to_its_limit() {
    let mut records = sound_jobs();
    for (op, from) in [(42, 50), (43, 51), (44, 60)] {
        operation(&mut records, op, Kind::Job, None, Some(Taken));
        claim(&mut records, op, 3, (from, from + 5));
    }
    assert_eq!(broken(&records), []);
    records.history.claims[2].1.from = 55;
    assert_eq!(broken(&records), [Rule::TooMany]);
}

#[test]
fn a_job_that_is_claimed_or_done_after_its_end_is_doubled() {
    let mut records = sound_jobs();
    claimed(&mut records, 2, 200);
    assert!(broken(&records).contains(&Rule::Doubled));
    let mut records = sound_jobs();
    operation(&mut records, 42, Kind::JobOnce, None, Some(Unknown));
    records.worked.push(Worked { job: 1, op: 42 });
    assert_eq!(broken(&records), [Rule::Doubled]);
    records.worked[1].job = 2;
    assert_eq!(broken(&records), [Rule::Lost]);
    records.worked.clear();
    assert_eq!(broken(&records), [Rule::Lost]);
    let mut records = sound_jobs();
    records.jobs[1].is_completed = true;
    assert_eq!(broken(&records), [Rule::Doubled]);
    let mut records = sound_jobs();
    records.history.operations.get_mut(&41).unwrap().outcome = Some(Dropped);
    assert_eq!(broken(&records), [Rule::Ghost]);
}

#[test]
fn a_wrong_count_of_attempts_is_found() {
    for (job, attempts) in [(0, 1), (0, 3), (1, 2), (1, 4)] {
        let mut records = sound_jobs();
        records.jobs[job].attempts = attempts;
        assert_eq!(broken(&records), [Rule::Attempts], "{job} {attempts}");
    }
    // It fails before its last attempt.
    let mut records = sound_jobs();
    records
        .job_events
        .retain(|event| event.job != 2 || event.at >= 115);
    records.jobs[1].attempts = 1;
    assert_eq!(broken(&records), [Rule::Attempts]);
}

#[test]
fn a_job_that_is_neither_done_nor_failed_is_starved() {
    let mut records = sound_jobs();
    records
        .job_events
        .retain(|event| event.change != Change::Failed);
    records.jobs[1].has_failed = false;
    assert_eq!(broken(&records), [Rule::Starved]);
}

#[test]
fn a_claim_that_expires_while_everybody_lives_is_found() {
    let mut records = sound_jobs();
    records.is_reachable = true;
    assert_eq!(broken(&records), []);
    // Nobody ends the attempts of job 2.
    let is_end = |event: &JobEvent| event.job == 2 && event.change == Change::Retried;
    records.job_events.retain(|event| !is_end(event));
    let found = broken(&records);
    assert!(
        !found.is_empty() && found.iter().all(|rule| *rule == Rule::Expired),
        "{found:?}"
    );
    records.is_reachable = false;
    records.history.absent = vec![(41, true)];
    assert_eq!(broken(&records), []);
    records.history.absent.push((42, false));
    assert_eq!(broken(&records), [Rule::Expired]);
}

#[test]
fn an_end_after_a_renewal_is_not_an_expiry() {
    let mut records = sound_jobs();
    records.is_reachable = true;
    // One attempt expires, and the next one is renewed.
    claimed(&mut records, 3, 200);
    claimed(&mut records, 3, 211);
    event(&mut records, 3, Change::Renewed, 220, 230);
    let renewal = records.job_events.len() - 1;
    ended(&mut records, 3, Change::Completed, 225, 2);
    assert_eq!(broken(&records), []);
    records.job_events[renewal].until = 224;
    assert_eq!(broken(&records), [Rule::Expired]);
}

#[test]
fn a_job_that_fails_because_of_its_neighbour_is_found() {
    let mut records = sound_jobs();
    records.has_one_cause = true;
    assert_eq!(broken(&records), [Rule::Failed]);
    records.jobs[1].fails = 3;
    assert_eq!(broken(&records), []);
}
