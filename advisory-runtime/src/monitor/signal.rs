//! Ending what holds a lock or waits for one.

use super::backend::PG_MONITOR;
use diesel::sql_types::Text;

/// What became of a request to end a backend's statement or session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// Its statement was asked to end; or its session has ended, and its locks are free.
    Done,
    /// Its session was asked to end, and has not within five seconds.
    Asked,
    /// There is no such backend any more, or the process id is another's now. Nothing was ended.
    Gone,
    /// This role may not. Nothing was ended.
    #[non_exhaustive]
    Refused {
        /// The role whose members may: `pg_signal_backend`; `superuser`, for a backend of a superuser; or `pg_monitor`, where this
        /// role does not see enough of the backend to tell it from another one.
        needs: &'static str,
    },
}

#[derive(diesel::QueryableByName)]
#[diesel(check_for_backend(diesel::pg::Pg))]
pub(super) struct Answer {
    #[diesel(sql_type = Text)]
    answer: String,
}

impl Signal {
    pub(super) fn of(answers: &[Answer]) -> Self {
        match answers.first().map(|answer| answer.answer.as_str()) {
            Some("done") => Self::Done,
            Some("asked") => Self::Asked,
            Some("superuser") => Self::Refused { needs: "superuser" },
            Some("pg_signal_backend") => Self::Refused {
                needs: "pg_signal_backend",
            },
            Some(PG_MONITOR) => Self::Refused { needs: PG_MONITOR },
            _ => Self::Gone,
        }
    }
}
