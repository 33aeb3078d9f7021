//! The records of one run: what the clients wrote, and what the database contains.

use crate::connection::Failure;
use crate::history::History;
use crate::named::named;
use crate::operation_kind::Subject;
use crate::server::Server;
use std::path::PathBuf;

/// Structs that are rows, with the query that returns them.
macro_rules! rows {
    ($($(#[$meta:meta])* $row:ident = $query:literal {
        $($(#[$doc:meta])* $field:ident: $type:ty,)*
    })*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $row {
            $($(#[$doc])* pub(crate) $field: $type,)*
        }

        impl $row {
            async fn all(server: &Server, url: &str) -> Result<Vec<Self>, Failure> {
                let rows = server.rows(url, $query).await?.into_iter().map(|row| {
                    let mut columns = row.iter();
                    $(let $field = columns.next().ok_or("a missing column")?.parse()?;)*
                    Ok(Self { $($field),* })
                });
                rows.collect()
            }
        }
    )* };
}

rows! {
    /// A committed operation on a slot or a room.
    SectionRow = "SELECT slot, op, booked::text, entered, departed FROM stress.section" {
        number: i64,
        op: i64,
        booked: bool,
        entered: i64,
        departed: i64,
    }
    /// A committed write under a lease.
    Written = "SELECT lease, token, op, tick FROM stress.written" {
        lease: i64,
        token: i64,
        op: i64,
        tick: i64,
    }
    /// Completed work, and the operation that completed it.
    Completed = "SELECT number, op FROM stress.completed" {
        number: i64,
        op: i64,
    }
    /// A committed migration.
    Migrated = "SELECT version, op, entered, departed FROM stress.migrated" {
        version: i64,
        op: i64,
        entered: i64,
        departed: i64,
    }
    /// A job at the end.
    JobRow = "SELECT id, attempts, fails, (completed_at IS NOT NULL)::text, \
              (failed_at IS NOT NULL)::text FROM stress.job" {
        id: i64,
        attempts: i64,
        /// How many of its attempts fail.
        fails: i64,
        is_completed: bool,
        has_failed: bool,
    }
    /// A change of a job, as the trigger of its table recorded it.
    JobEvent = "SELECT job, tenant, event, coalesce(until, 0), at, tick FROM stress.job_event" {
        job: i64,
        tenant: i64,
        change: Change,
        /// When the claim expires, by the server's clock in microseconds; 0 if it has ended.
        until: i64,
        at: i64,
        tick: i64,
    }
    /// A job, and the operation that completed it in the transaction of its writes.
    Worked = "SELECT job, op FROM stress.worked" {
        job: i64,
        op: i64,
    }
    /// A grant of a lease, as the trigger of its table recorded it, which contains only hashes.
    Granted = "SELECT lease, token, was_free::text, granted.tick \
               FROM stress.granted, generate_series(0, 99) AS lease \
               WHERE key_hash = sha256(convert_to('leased:' || lease, 'UTF8'))" {
        lease: i64,
        token: i64,
        /// Whether the previous grant had expired, by the server's clock.
        was_free: bool,
        tick: i64,
    }
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

#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) history: History,
    pub(crate) sections: Vec<SectionRow>,
    pub(crate) written: Vec<Written>,
    pub(crate) granted: Vec<Granted>,
    pub(crate) completed: Vec<Completed>,
    pub(crate) migrated: Vec<Migrated>,
    pub(crate) jobs: Vec<JobRow>,
    pub(crate) job_events: Vec<JobEvent>,
    pub(crate) worked: Vec<Worked>,
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
        let mut history = History::default();
        for log in logs {
            // A worker that was killed before it began has no history.
            if log.exists() {
                history.read(log)?;
            }
        }
        Ok(Self {
            history,
            sections: SectionRow::all(server, url).await?,
            written: Written::all(server, url).await?,
            granted: Granted::all(server, url).await?,
            completed: Completed::all(server, url).await?,
            migrated: Migrated::all(server, url).await?,
            jobs: JobRow::all(server, url).await?,
            job_events: JobEvent::all(server, url).await?,
            worked: Worked::all(server, url).await?,
            ..Self::default()
        })
    }
}
