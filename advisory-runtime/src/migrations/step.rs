//! What a run of migrations does, step by step, as a program can show it.

use std::fmt;
use std::time::Duration;

/// One step of a run, in the order in which they happen. It prints itself as a line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Another process runs migrations, or has the key for something else. Said again every second.
    ///
    /// ``waiting for process 4711 (`booking-service`, since 12 s)``
    #[non_exhaustive]
    Waiting {
        /// Who holds the lock. Empty where it is a prepared transaction, or was released meanwhile.
        holders: Vec<Holder>,
    },
    /// This process has the lock.
    ///
    /// `the lock is held: 3 migrations are pending`
    #[non_exhaustive]
    Locked {
        /// How many migrations are pending now. None, if another process has run them meanwhile.
        pending: usize,
        /// How long the lock took.
        waited: Duration,
    },
    /// A migration begins.
    ///
    /// ``running `2026-01-01-000000_accounts` (1 of 3)``
    #[non_exhaustive]
    Running {
        /// Its name: the name of its folder.
        migration: String,
        /// Which of the pending ones it is, from 1.
        number: usize,
        /// How many are pending.
        of: usize,
    },
    /// It has been applied.
    ///
    /// `` `2026-01-01-000000_accounts` done in 80 ms``
    #[non_exhaustive]
    Done {
        /// Its name.
        migration: String,
        /// How long it took.
        took: Duration,
    },
}

/// A process of the server whose session holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its process id, as `pg_terminate_backend` takes it.
    pub pid: i32,
    /// Its `application_name`; often empty, unless the address sets it (`?application_name=booking-service`).
    pub application: String,
    /// For how long this run has seen it hold the lock.
    pub since: Duration,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { holders } if holders.is_empty() => {
                f.write_str("waiting for the lock of the migrations")
            }
            Self::Waiting { holders } => write!(f, "waiting for {}", Holders(holders)),
            Self::Locked { pending: 1, .. } => {
                f.write_str("the lock is held: 1 migration is pending")
            }
            Self::Locked { pending, .. } => {
                write!(f, "the lock is held: {pending} migrations are pending")
            }
            Self::Running {
                migration,
                number,
                of,
            } => write!(f, "running `{migration}` ({number} of {of})"),
            Self::Done { migration, took } => write!(f, "`{migration}` done in {}", Took(*took)),
        }
    }
}

/// ``process 4711 (`booking-service`, since 12 s)``, and without a time in the first second.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = Duration::from_secs(self.since.as_secs());
        write!(f, "process {}", self.pid)?;
        match (&*self.application, since) {
            ("", Duration::ZERO) => Ok(()),
            ("", since) => write!(f, " (since {})", Took(since)),
            (application, Duration::ZERO) => write!(f, " (`{application}`)"),
            (application, since) => write!(f, " (`{application}`, since {})", Took(since)),
        }
    }
}

/// Several holders, in one sentence.
pub(super) struct Holders<'h>(pub(super) &'h [Holder]);

impl fmt::Display for Holders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, holder) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" and ")?;
            }
            holder.fmt(f)?;
        }
        Ok(())
    }
}

/// A time in the unit that a reader wants.
pub(super) struct Took(pub(super) Duration);

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match self.0.as_millis() {
            milliseconds @ 0..1_000 => write!(f, "{milliseconds} ms"),
            1_000..10_000 if self.0.subsec_millis() > 0 => {
                write!(f, "{:.1} s", self.0.as_secs_f64())
            }
            ..600_000 => write!(f, "{seconds} s"),
            _ => write!(f, "{} min", seconds / 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Holder, Step, Took};
    use std::time::Duration;

    fn holder(pid: i32, application: &str, since: u64) -> Holder {
        Holder {
            pid,
            application: application.to_owned(),
            since: Duration::from_millis(since),
        }
    }

    #[test]
    fn each_step_is_a_line() {
        let migration = || "2026-01-01-000000_accounts".to_owned();
        let waiting = |holders| Step::Waiting { holders }.to_string();
        assert_eq!(
            waiting(vec![holder(4711, "booking-service", 12_300)]),
            "waiting for process 4711 (`booking-service`, since 12 s)"
        );
        assert_eq!(
            waiting(vec![holder(1, "", 999), holder(2, "", 2_500)]),
            "waiting for process 1 and process 2 (since 2 s)"
        );
        assert_eq!(
            waiting(Vec::new()),
            "waiting for the lock of the migrations"
        );
        let waited = Duration::ZERO;
        let locked = |pending| Step::Locked { pending, waited }.to_string();
        assert_eq!(locked(1), "the lock is held: 1 migration is pending");
        assert_eq!(locked(3), "the lock is held: 3 migrations are pending");
        let running = Step::Running {
            migration: migration(),
            number: 1,
            of: 3,
        };
        assert_eq!(
            running.to_string(),
            "running `2026-01-01-000000_accounts` (1 of 3)"
        );
        let done = Step::Done {
            migration: migration(),
            took: Duration::from_millis(80),
        };
        assert_eq!(
            done.to_string(),
            "`2026-01-01-000000_accounts` done in 80 ms"
        );
    }

    #[test]
    fn a_time_has_the_unit_that_a_reader_wants() {
        let took = |milliseconds| Took(Duration::from_millis(milliseconds)).to_string();
        assert_eq!(took(999), "999 ms");
        assert_eq!(took(1_250), "1.2 s");
        assert_eq!(took(3_000), "3 s");
        assert_eq!(took(10_900), "10 s");
        assert_eq!(took(3_600_000), "60 min");
    }
}
