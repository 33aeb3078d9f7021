//! What each error says: what happened, to what, and what to do.

use crate::Error;
use std::fmt;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAvailable { lock } => {
                write!(
                    f,
                    "{} is held by another session, and the call does not wait: try again later, or give it \
                     a `wait`",
                    Subject(lock)
                )
            }
            Self::QueueFull { lock, limit } => write!(
                f,
                "advisory lock `{lock}`: {limit} calls of this process wait for it already, as many as `queue` allows; try again later"
            ),
            Self::SelfDeadlock { lock } => write!(
                f,
                "{} is held by this task itself, outside of this call: pass its connection on, or take it once",
                Subject(lock)
            ),
            Self::Cancelled { lock, .. } => write!(
                f,
                "advisory lock `{lock}`: the wait was ended by a cancel request or by `statement_timeout`; write a `wait` below that \
                 one"
            ),
            Self::InTransaction { lock } => write!(
                f,
                "{} was asked for inside an open transaction: call the function outside of it",
                Subject(lock)
            ),
            Self::Standby { lock } => write!(
                f,
                "{} was asked for on a standby, where it keeps nobody out: connect to the primary",
                Subject(lock)
            ),
            Self::PooledSession { lock } => write!(
                f,
                "advisory lock `{lock}` needs a session of its own, and this connection goes through a pooler in transaction \
                 mode: connect to the server itself, or use `scope = \"xact\"` under READ COMMITTED"
            ),
            Self::UnsupportedServer { lock } => write!(
                f,
                "advisory lock `{lock}` was granted to two sessions at once, so the server's advisory locks keep nobody out: connect to \
                 PostgreSQL itself, past any pooler"
            ),
            Self::Pool(error) => write!(f, "the pool lent no connection: {error}"),
            Self::TimedOut { lock, waited, .. } => {
                write!(
                    f,
                    "{} is held by another session: gave up after {waited:.1?}; `cargo advisory locks` shows by \
                     which",
                    Subject(lock)
                )
            }
            Self::Deadlock { lock, .. } => write!(
                f,
                "advisory lock `{lock}`: the wait was ended to break a deadlock; call it again, and take locks in one \
                 order everywhere"
            ),
            Self::StaleSnapshot { lock } => write!(
                f,
                "advisory lock `{lock}` was asked for inside a REPEATABLE READ or SERIALIZABLE transaction, which would not \
                 see what the holder before wrote: take the lock outside of it, or begin it READ COMMITTED where it is the \
                 role's default that is stricter"
            ),
            Self::ForeignTransaction { lock } => write!(
                f,
                "advisory lock `{lock}`: a transaction is open that Diesel does not know of; begin it with Diesel's \
                 `transaction` instead of by SQL"
            ),
            Self::NoKeys { lock, slice } => write!(
                f,
                "advisory lock `{lock}`: `{slice}` is empty, so there is nothing to lock; return before the call"
            ),
            Self::TooManyKeys { lock, keys, max } => write!(
                f,
                "advisory lock `{lock}` would take {keys} locks, and {max} are allowed; take one lock on what they have in \
                 common, or write `max_keys = {keys}`"
            ),
            Self::BrokenConnection { lock } => write!(
                f,
                "{}: this connection is broken or closed; take another from the pool or \
                 connect anew",
                Subject(lock)
            ),
            Self::Database(error) => fmt::Display::fmt(error, f),
            Self::HoldExceeded { .. }
            | Self::LockLost { .. }
            | Self::RolledBack { .. }
            | Self::TransactionEnded { .. }
            | Self::CommitUnknown { .. } => self.fmt_end(f),
            Self::KeyTooLong { .. }
            | Self::InvalidLease { .. }
            | Self::InvalidTable { .. }
            | Self::InvalidHolder { .. }
            | Self::NoRuntime { .. }
            | Self::MissingTable { .. }
            | Self::NotInTransaction { .. } => self.fmt_lease(f),
        }
    }
}

impl Error {
    /// What is found out when the body has run.
    fn fmt_end(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HoldExceeded { lock, max_hold } => write!(
                f,
                "the call under {} took longer than {max_hold:?}: its open transaction was rolled back; do less \
                 under the lock, or raise `max_hold`",
                Subject(lock)
            ),
            Self::LockLost { lock, .. } => write!(
                f,
                "{} was lost before the work under it had ended: somebody else may have run beside it, so look at what \
                 it wrote before you run it again",
                if lock.starts_with(LEASE) {
                    Subject(lock).to_string()
                } else {
                    format!("`{lock}`")
                }
            ),
            Self::RolledBack { lock, .. } => write!(
                f,
                "the call under advisory lock `{lock}` returned `Ok`, but its transaction had failed: nothing was committed; \
                 return the error of the statement that failed"
            ),
            Self::TransactionEnded { lock } => write!(
                f,
                "the call under advisory lock `{lock}` ended its transaction itself: the lock was not held to the end; \
                 leave COMMIT and ROLLBACK out of it"
            ),
            Self::CommitUnknown { lock, .. } => write!(
                f,
                "the connection was lost while the call under advisory lock `{lock}` committed: it may be committed or not, so \
                 look for its effect before you run it again"
            ),
            // Said above.
            _ => Ok(()),
        }
    }

    /// What leases alone have.
    fn fmt_lease(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyTooLong { lock, bytes, max } => write!(
                f,
                "the key of {} has {bytes} bytes, and a lease's key has at most {max}: put a hash of the long part into it",
                Subject(lock)
            ),
            Self::InvalidLease { lock, reason } | Self::NoRuntime { lock, reason } => {
                let pattern = lock.strip_prefix(LEASE).unwrap_or(lock);
                write!(f, "`{pattern}` can't be leased: {reason}")
            }
            Self::InvalidTable { table, reason } => {
                write!(f, "the lease table `{table}`: {reason}")
            }
            Self::InvalidHolder { reason, .. } => {
                write!(
                    f,
                    "the name of this holder of leases can't be used: {reason}"
                )
            }
            Self::MissingTable { table, .. } => write!(
                f,
                "the database has no lease table `{table}`: run the SQL of `advisory_runtime::lease::Table::up` as a migration, or \
                 `Table::set_up` in development"
            ),
            Self::NotInTransaction { lock } => write!(
                f,
                "a write under the fencing token of {} needs a transaction: call `fence` or `complete` inside one",
                Subject(lock)
            ),
            // Said above.
            _ => Ok(()),
        }
    }
}

/// How the names of leases begin.
pub(crate) const LEASE: &str = "lease ";

/// A lock as its messages call it.
struct Subject<'l>(&'l str);

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.strip_prefix(LEASE) {
            Some(key) => write!(f, "lease `{key}`"),
            None => write!(f, "advisory lock `{}`", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Error;
    use diesel::result::{DatabaseErrorKind, Error as DieselError};
    use std::time::Duration;

    const PAGE: &str = include_str!("../docs/errors.md");

    fn answer(message: &str) -> DieselError {
        DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(message.to_owned()))
    }

    /// One of each, as the page shows them.
    fn gallery() -> Vec<Error> {
        let lock = || "room:<room>".into();
        let source = || answer("what the server said");
        vec![
            Error::NotAvailable { lock: lock() },
            Error::TimedOut {
                lock: lock(),
                waited: Duration::from_millis(2003),
                source: Some(source()),
            },
            Error::QueueFull {
                lock: lock(),
                limit: 64,
            },
            Error::SelfDeadlock { lock: lock() },
            Error::Cancelled {
                lock: lock(),
                source: source(),
            },
            Error::HoldExceeded {
                lock: lock(),
                max_hold: Duration::from_secs(30),
            },
            Error::LockLost {
                lock: lock(),
                source: None,
            },
            Error::InTransaction { lock: lock() },
            Error::Standby { lock: lock() },
            Error::PooledSession { lock: lock() },
            Error::UnsupportedServer { lock: lock() },
            Error::Pool("Timeout occurred while waiting for a slot to become available".into()),
            Error::Deadlock {
                lock: lock(),
                source: source(),
            },
            Error::RolledBack {
                lock: lock(),
                source: source(),
            },
            Error::TransactionEnded { lock: lock() },
            Error::CommitUnknown {
                lock: lock(),
                source: source(),
            },
            Error::StaleSnapshot { lock: lock() },
            Error::ForeignTransaction { lock: lock() },
            Error::NoKeys {
                lock: "room:<rooms*>".into(),
                slice: "rooms",
            },
            Error::TooManyKeys {
                lock: "room:<rooms*>".into(),
                keys: 200,
                max: 64,
            },
            Error::BrokenConnection { lock: lock() },
            Error::KeyTooLong {
                lock: "lease room:<room>".into(),
                bytes: 900,
                max: 512,
            },
            Error::InvalidLease {
                lock: lock(),
                reason: "a reason that names what to write",
            },
            Error::InvalidHolder {
                holder: "worker".repeat(50),
                reason: "it has more than 255 bytes",
            },
            Error::NoRuntime {
                lock: lock(),
                reason: "there is no tokio runtime",
            },
            Error::InvalidTable {
                table: "Leases".to_owned(),
                reason: "a reason that names what to write",
            },
            Error::MissingTable {
                table: "public.advisory_lease".to_owned(),
                source: source(),
            },
            Error::NotInTransaction {
                lock: "lease room:<room>".into(),
            },
            Error::Database(answer(
                "duplicate key value violates unique constraint \"booking_room_key\"",
            )),
        ]
    }

    /// The variants as they are declared, so that a new one fails here until the page has it.
    fn declared() -> Vec<String> {
        let source = include_str!("error.rs");
        let (_, body) = source.split_once("pub enum Error {").unwrap_or_default();
        let (body, _) = body.split_once("\n}").unwrap_or_default();
        let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
        let variants =
            lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
        variants.map(name).collect()
    }

    fn name(text: &str) -> String {
        text.chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect()
    }

    #[test]
    fn the_page_shows_each_error_as_it_prints_itself() {
        let shown: Vec<(String, String)> = PAGE
            .split("\n# ")
            .skip(1)
            .map(|part| {
                let text = part.split("```text\n").nth(1).unwrap_or_default();
                let (text, _) = text.split_once("\n```").unwrap_or_default();
                (
                    name(part),
                    text.split_whitespace().collect::<Vec<_>>().join(" "),
                )
            })
            .collect();
        let printed: Vec<(String, String)> = gallery()
            .iter()
            .map(|error| (name(&format!("{error:?}")), error.to_string()))
            .collect();
        assert_eq!(
            printed
                .iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>(),
            declared()
        );
        for (shown, printed) in shown.iter().zip(&printed) {
            assert_eq!(shown, printed);
        }
        assert_eq!(shown.len(), printed.len());
    }

    #[test]
    fn the_page_says_of_each_error_what_happened_and_what_to_do() {
        for part in PAGE.split("\n# ").skip(1) {
            for said in ["*What happened:* ", "*SQLSTATE:* ", "*What to do:* "] {
                assert!(part.contains(said), "{}: {said}", name(part));
            }
        }
    }
}
