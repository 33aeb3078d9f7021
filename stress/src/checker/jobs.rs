//! The rules of jobs: each is done once or has failed after its last attempt, and no more of a
//! tenant run than its limit.

use super::{Found, Stay};
use crate::job::ATTEMPTS;
use crate::operation_kind::{OperationKind, Subject};
use crate::records::{Change, JobEvent, JobRow, Records, Worked};
use crate::violation::Rule;
use std::collections::{BTreeMap, HashMap};

impl Found {
    pub(super) fn jobs(&mut self, records: &Records) {
        let mut by_job: BTreeMap<i64, Vec<JobEvent>> = BTreeMap::new();
        for event in &records.job_events {
            by_job.entry(event.job).or_default().push(*event);
        }
        let mut by_tenant: BTreeMap<i64, Vec<Stay>> = BTreeMap::new();
        for events in by_job.values_mut() {
            // The row was locked, so the ticks of its changes are in their order.
            events.sort_unstable_by_key(|event| event.tick);
            let tenures = self.tenures(events);
            if records.is_reachable {
                self.expiries(events);
            }
            // At its end the next one may begin.
            let tenures = tenures.into_iter().map(|stay| Stay {
                to: stay.to - 1,
                ..stay
            });
            let tenant = by_tenant.entry(events[0].tenant).or_default();
            tenant.extend(tenures);
        }
        for (tenant, tenures) in by_tenant {
            self.at_once(Subject::Tenant, tenant, tenures);
        }
        for row in &records.jobs {
            let events = by_job.get(&row.id).map_or(&[][..], Vec::as_slice);
            self.job(row, events);
        }
        if records.has_one_cause {
            let mut rows = records.jobs.iter();
            while let Some(row) = rows.find(|row| row.fails == 0 && row.has_failed) {
                self.add(Rule::Failed, format!("{row:?}"));
            }
        }
        for (op, _) in records.history.absent.iter().filter(|(_, held)| !held) {
            let operation = records.history.operations.get(op);
            let kind = operation.map_or("", |operation| operation.kind.name());
            let what = format!("the row of operation {op} ({kind}), while its body ran");
            self.add(Rule::Expired, what);
        }
        self.works(records);
    }

    /// A job of which two attempts in a row have expired: nobody could end them. One can expire on
    /// a busy machine, or while a change of the table waits for its lock.
    fn expiries(&mut self, events: &[JobEvent]) {
        let (mut until, mut count) = (i64::MAX, 0);
        for event in events {
            if event.change != Change::Renewed {
                count = if event.at >= until { count + 1 } else { 0 };
                if count == 2 {
                    self.add(Rule::Expired, format!("two attempts before {event:?}"));
                }
            }
            until = match event.change {
                Change::Claimed | Change::Renewed => event.until,
                _ => i64::MAX,
            };
        }
    }

    /// The claims of one job. Two of them must not overlap, and none comes after the end.
    fn tenures(&mut self, events: &[JobEvent]) -> Vec<Stay> {
        let mut tenures: Vec<Stay> = Vec::new();
        let (mut is_held, mut is_over) = (false, false);
        for event in events {
            if is_over {
                self.add(Rule::Doubled, format!("{event:?} after its end"));
            }
            match event.change {
                Change::Claimed => {
                    let before = tenures.last().filter(|_| is_held);
                    if let Some(before) = before.filter(|before| before.to > event.at) {
                        self.add(Rule::TooMany, format!("{event:?} during {before}"));
                    }
                    tenures.push(Stay {
                        op: event.job,
                        from: event.at,
                        to: event.until,
                    });
                    is_held = true;
                }
                Change::Renewed => {
                    if let Some(last) = tenures.last_mut() {
                        last.to = event.until;
                    }
                }
                _ => {
                    if let Some(last) = tenures.last_mut().filter(|_| is_held) {
                        last.to = last.to.min(event.at);
                    }
                    is_held = false;
                    is_over |= matches!(event.change, Change::Completed | Change::Failed);
                }
            }
        }
        tenures
    }

    fn job(&mut self, row: &JobRow, events: &[JobEvent]) {
        if !row.is_completed && !row.has_failed {
            self.add(Rule::Starved, format!("{row:?}"));
        }
        let count = |change| events.iter().filter(|event| event.change == change).count();
        let attempts = count(Change::Claimed).checked_sub(count(Change::Released));
        let is_counted = attempts.and_then(|count| i64::try_from(count).ok()) == Some(row.attempts);
        let last = i64::from(ATTEMPTS);
        if !is_counted || row.attempts > last || (row.has_failed && row.attempts != last) {
            self.add(Rule::Attempts, format!("{row:?} after {events:?}"));
        }
        for (is_so, change) in [
            (row.is_completed, Change::Completed),
            (row.has_failed, Change::Failed),
        ] {
            if count(change) != usize::from(is_so) {
                self.add(Rule::Doubled, format!("{row:?} after {events:?}"));
            }
        }
    }

    /// What bodies have written in the transactions that completed their jobs.
    fn works(&mut self, records: &Records) {
        let completed = records.jobs.iter().filter(|job| job.is_completed);
        let completed: HashMap<i64, _> = completed.map(|job| (job.id, job)).collect();
        let (mut by_op, mut by_job) = (HashMap::new(), BTreeMap::<i64, Vec<i64>>::new());
        for Worked { job, op } in records.worked.iter().copied() {
            *by_op.entry(op).or_insert(0) += 1;
            by_job.entry(job).or_default().push(op);
            self.is_possible(records, op, &"the body");
        }
        for (job, ops) in by_job {
            if ops.len() > 1 {
                self.add(Rule::Doubled, format!("job {job} was done by {ops:?}"));
            }
            if !completed.contains_key(&job) {
                self.add(Rule::Lost, format!("the end of job {job}, done by {ops:?}"));
            }
        }
        for (op, operation) in &records.history.operations {
            if operation.kind == OperationKind::JobOnce {
                let count = by_op.get(op).copied().unwrap_or(0);
                self.is_there(*op, operation.outcome, count);
            }
        }
    }
}
