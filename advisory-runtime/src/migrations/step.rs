//! The steps of a run, for a program that shows them.

use std::fmt;
use std::time::Duration;
#[cfg(feature = "tracing")]
use std::time::Instant;

/// One step of a run. Its `Display` is a line for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Another session holds the lock. Repeated every second.
    ///
    /// ``waiting for process 4711 (`booking-service`, for 12 s)``
    #[non_exhaustive]
    Waiting {
        /// The holders. Empty for a prepared transaction, and if the lock was released meanwhile.
        holders: Vec<Holder>,
    },
    /// This process has the lock.
    ///
    /// `the lock is held: 3 migrations are pending`
    #[non_exhaustive]
    Locked {
        /// The number of migrations that are still pending: 0 if another process has run them.
        pending: usize,
        /// The number of migrations that this run reverts; see
        /// [`Migrator::revert_last`](super::Migrator::revert_last).
        reverts: usize,
        /// The time that this process waited for the lock.
        waited: Duration,
    },
    /// A migration begins.
    ///
    /// ``running `2026-01-01-000000_accounts` (1 of 3)``
    #[non_exhaustive]
    Running {
        /// Its name, which is that of its folder.
        migration: String,
        /// Its number among the pending migrations, from 1.
        number: usize,
        /// The number of pending migrations.
        of: usize,
    },
    /// A migration failed because a program that does not take this lock has applied it. The list
    /// of pending migrations is read again.
    ///
    /// `` `2026-01-01-000000_accounts` was applied by another program``
    #[non_exhaustive]
    Skipped {
        /// Its name.
        migration: String,
    },
    /// A migration begins to be reverted.
    ///
    /// ``reverting `2026-01-01-000000_accounts` (1 of 1)``
    #[non_exhaustive]
    Reverting {
        /// Its name.
        migration: String,
        /// Its number among those that this run reverts, from 1: the last one first.
        number: usize,
        /// The number of migrations that this run reverts.
        of: usize,
    },
    /// A migration was applied, or reverted.
    ///
    /// `` `2026-01-01-000000_accounts` done in 80 ms``
    #[non_exhaustive]
    Done {
        /// Its name.
        migration: String,
        /// The duration of the step.
        took: Duration,
    },
}

/// A server process whose session holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its process id, as `pg_terminate_backend` takes it.
    pub pid: i32,
    /// Its `application_name`: empty unless the URL sets it (`?application_name=booking-service`).
    pub application: String,
    /// The time that this run has seen it hold the lock.
    pub since: Duration,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { holders } if holders.is_empty() => {
                f.write_str("waiting for the lock of the migrations")
            }
            Self::Waiting { holders } => write!(f, "waiting for {}", joined(holders)),
            Self::Locked {
                pending, reverts, ..
            } => {
                let (count, state) = match reverts {
                    0 => (pending, "pending"),
                    _ => (reverts, "reverted"),
                };
                let are = if *count == 1 { " is" } else { "s are" };
                write!(f, "the lock is held: {count} migration{are} {state}")
            }
            Self::Running {
                migration,
                number,
                of,
            } => write!(f, "running `{migration}` ({number} of {of})"),
            Self::Skipped { migration } => {
                write!(f, "`{migration}` was applied by another program")
            }
            Self::Reverting {
                migration,
                number,
                of,
            } => write!(f, "reverting `{migration}` ({number} of {of})"),
            Self::Done { migration, took } => {
                write!(f, "`{migration}` done in {}", self::took(*took))
            }
        }
    }
}

/// ``process 4711 (`booking-service`, for 12 s)``, without the time in the first second.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = Duration::from_secs(self.since.as_secs());
        write!(f, "process {}", self.pid)?;
        match (&*self.application, since) {
            ("", Duration::ZERO) => Ok(()),
            ("", since) => write!(f, " (for {})", took(since)),
            (application, Duration::ZERO) => write!(f, " (`{application}`)"),
            (application, since) => write!(f, " (`{application}`, for {})", took(since)),
        }
    }
}

pub(super) fn joined(holders: &[Holder]) -> String {
    let holders: Vec<_> = holders.iter().map(Holder::to_string).collect();
    holders.join(" and ")
}

/// A duration in a unit that suits it.
pub(super) fn took(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match duration.as_millis() {
        milliseconds @ 0..1_000 => format!("{milliseconds} ms"),
        1_000..10_000 if duration.subsec_millis() > 0 => format!("{:.1} s", duration.as_secs_f64()),
        ..600_000 => format!("{seconds} s"),
        _ => format!("{} min", seconds / 60),
    }
}

type Callback = Box<dyn FnMut(&Step) + Send>;

/// Reports the steps of a run: to the user's callback, and as events.
#[derive(Default)]
pub(super) struct OnStep {
    pub(super) callback: Option<Callback>,
    /// The holders in the last event, and its time.
    #[cfg(feature = "tracing")]
    waiting: Option<(Vec<i32>, Instant)>,
}

/// The interval at which an event repeats its holders.
#[cfg(feature = "tracing")]
const EVENT: Duration = Duration::from_secs(30);

impl OnStep {
    pub(super) fn report(&mut self, step: &Step) {
        #[cfg(feature = "tracing")]
        self.record(step);
        if let Some(callback) = &mut self.callback {
            callback(step);
        }
    }

    #[cfg(feature = "tracing")]
    fn record(&mut self, step: &Step) {
        let milliseconds = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match step {
            Step::Waiting { holders } => {
                let pids: Vec<i32> = holders.iter().map(|holder| holder.pid).collect();
                let is_repeated =
                    |(known, at): &(Vec<i32>, Instant)| *known == pids && at.elapsed() < EVENT;
                if !self.waiting.as_ref().is_some_and(is_repeated) {
                    tracing::info!(pids = ?pids, "{step}");
                    self.waiting = Some((pids, Instant::now()));
                }
            }
            Step::Locked {
                pending,
                reverts,
                waited,
            } => {
                tracing::info!(pending, reverts, waited_ms = milliseconds(waited), "{step}");
            }
            Step::Running { migration, .. }
            | Step::Skipped { migration }
            | Step::Reverting { migration, .. } => tracing::info!(migration, "{step}"),
            Step::Done { migration, took } => {
                tracing::info!(migration, took_ms = milliseconds(took), "{step}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Holder, Step, took};
    use std::time::Duration;

    #[test]
    fn holders_are_joined_and_a_migration_is_counted() {
        let holder = |pid, application: &str, since| Holder {
            pid,
            application: application.to_owned(),
            since: Duration::from_millis(since),
        };
        let waiting = |holders| Step::Waiting { holders }.to_string();
        let both = vec![holder(1, "booking", 12_300), holder(2, "", 999)];
        let expected = "waiting for process 1 (`booking`, for 12 s) and process 2";
        assert_eq!(waiting(both), expected);
        assert_eq!(waiting(vec![]), "waiting for the lock of the migrations");
        let waited = Duration::ZERO;
        let locked = |pending| {
            Step::Locked {
                pending,
                reverts: 0,
                waited,
            }
            .to_string()
        };
        assert_eq!(locked(1), "the lock is held: 1 migration is pending");
        assert_eq!(locked(3), "the lock is held: 3 migrations are pending");
    }

    #[test]
    fn a_duration_has_a_suitable_unit() {
        let took = |milliseconds| took(Duration::from_millis(milliseconds));
        let all = [999, 1_250, 3_000, 10_900, 3_600_000].map(took);
        assert_eq!(all, ["999 ms", "1.2 s", "3 s", "10 s", "60 min"]);
    }
}
