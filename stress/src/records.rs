//! The records of one run: what the clients wrote, and what the database contains.

use crate::connection::{Failure, Row};
use crate::history::History;
use crate::named::named;
use crate::operation_kind::Subject;
use crate::server::Server;
use std::path::PathBuf;

/// A committed operation on a slot or a room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionRow {
    pub(crate) number: i64,
    pub(crate) op: i64,
    pub(crate) booked: bool,
    pub(crate) entered: i64,
    pub(crate) departed: i64,
}

/// A committed write under a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) lease: i64,
    pub(crate) token: i64,
    pub(crate) op: i64,
    pub(crate) tick: i64,
}

/// A committed migration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migrated {
    pub(crate) version: i64,
    pub(crate) op: i64,
    pub(crate) entered: i64,
    pub(crate) departed: i64,
}

/// A job at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobRow {
    pub(crate) id: i64,
    pub(crate) attempts: i64,
    /// How many of its attempts fail.
    pub(crate) fails: i64,
    pub(crate) is_completed: bool,
    pub(crate) has_failed: bool,
}

/// A change of a job, as the trigger of its table recorded it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobEvent {
    pub(crate) job: i64,
    pub(crate) tenant: i64,
    pub(crate) change: Change,
    /// When the claim expires, by the server's clock in microseconds.
    pub(crate) until: Option<i64>,
    pub(crate) at: i64,
    pub(crate) tick: i64,
}

named! {
    Change {
        Claimed = "claimed",
        Renewed = "renewed",
        /// The attempt was taken back.
        Released = "released",
        Retried = "retried",
        Completed = "completed",
        Failed = "failed",
    }
}

/// A grant of a lease, as the trigger of its table recorded it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) lease: i64,
    pub(crate) token: i64,
    /// Whether the previous grant had expired, by the server's clock.
    pub(crate) was_free: bool,
    pub(crate) tick: i64,
}

#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) history: History,
    pub(crate) sections: Vec<SectionRow>,
    pub(crate) written: Vec<Written>,
    pub(crate) granted: Vec<Granted>,
    /// Completed work, by number, and the operations that completed it.
    pub(crate) completed: Vec<(i64, i64)>,
    pub(crate) migrated: Vec<Migrated>,
    pub(crate) jobs: Vec<JobRow>,
    pub(crate) job_events: Vec<JobEvent>,
    /// Jobs, and the operations that completed them in the transaction of their writes.
    pub(crate) worked: Vec<(i64, i64)>,
    /// Whether all processes lived and the server answered, so that no claim may expire.
    pub(crate) is_reachable: bool,
    /// Whether processes end only by one job each, so that each other job must be done.
    pub(crate) has_one_cause: bool,
}

impl Records {
    /// The subject of an operation. An operation that no client began is a violation by itself.
    pub(crate) fn subject(&self, op: i64) -> Subject {
        let operation = self.history.operations.get(&op);
        operation.map_or(Subject::Slot, |operation| operation.kind.subject())
    }

    pub(crate) async fn gather(
        server: &Server,
        url: &str,
        logs: &[PathBuf],
    ) -> Result<Self, Failure> {
        let mut records = Self::default();
        for log in logs {
            // A worker that was killed before it began has no history.
            if log.exists() {
                records.history.read(log)?;
            }
        }
        for row in server.rows(url, VISITED).await? {
            records.sections.push(SectionRow {
                number: number(&row, 0)?,
                op: number(&row, 1)?,
                booked: row[2] == "t",
                entered: number(&row, 3)?,
                departed: number(&row, 4)?,
            });
        }
        for row in server.rows(url, WRITTEN).await? {
            records.written.push(Written {
                lease: number(&row, 0)?,
                token: number(&row, 1)?,
                op: number(&row, 2)?,
                tick: number(&row, 3)?,
            });
        }
        for row in server.rows(url, GRANTED).await? {
            records.granted.push(Granted {
                lease: number(&row, 0)?,
                token: number(&row, 1)?,
                was_free: row[2] == "t",
                tick: number(&row, 3)?,
            });
        }
        for row in server.rows(url, COMPLETED).await? {
            records.completed.push((number(&row, 0)?, number(&row, 1)?));
        }
        for row in server.rows(url, MIGRATED).await? {
            records.migrated.push(Migrated {
                version: number(&row, 0)?,
                op: number(&row, 1)?,
                entered: number(&row, 2)?,
                departed: number(&row, 3)?,
            });
        }
        for row in server.rows(url, JOBS).await? {
            records.jobs.push(JobRow {
                id: number(&row, 0)?,
                attempts: number(&row, 1)?,
                is_completed: row[2] == "t",
                has_failed: row[3] == "t",
                fails: number(&row, 4)?,
            });
        }
        for row in server.rows(url, JOB_EVENTS).await? {
            records.job_events.push(JobEvent {
                job: number(&row, 0)?,
                tenant: number(&row, 1)?,
                change: row[2].parse()?,
                until: row[3].parse().ok(),
                at: number(&row, 4)?,
                tick: number(&row, 5)?,
            });
        }
        for row in server.rows(url, WORKED).await? {
            records.worked.push((number(&row, 0)?, number(&row, 1)?));
        }
        Ok(records)
    }
}

const VISITED: &str = "SELECT slot, op, booked, entered, departed FROM stress.section";
const WRITTEN: &str = "SELECT lease, token, op, tick FROM stress.written";
const COMPLETED: &str = "SELECT number, op FROM stress.completed";
const MIGRATED: &str = "SELECT version, op, entered, departed FROM stress.migrated";
const JOBS: &str =
    "SELECT id, attempts, completed_at IS NOT NULL, failed_at IS NOT NULL, fails FROM stress.job";
const JOB_EVENTS: &str = "SELECT job, tenant, event, until, at, tick FROM stress.job_event";
const WORKED: &str = "SELECT job, op FROM stress.worked";
/// The table of leases contains only hashes.
const GRANTED: &str = "SELECT lease, token, was_free, granted.tick FROM stress.granted, generate_series(0, 99) AS lease \
     WHERE key_hash = sha256(convert_to('leased:' || lease, 'UTF8'))";

fn number(row: &Row, index: usize) -> Result<i64, Failure> {
    Ok(row[index].parse()?)
}
