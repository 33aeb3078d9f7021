//! One error of each variant, for tests of a program's error handling.

use crate::error::{BusyLock, PoolError};
use crate::lease::{self, Table};
use crate::{Error, claim};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::borrow::Cow;
use std::time::Duration;

type Name = Cow<'static, str>;

/// Returns one [`Error`] of each variant, in the order of the declaration, for unit tests of your
/// error handling. Other crates cannot build the variants.
///
/// Their locks, times and sources are made up.
///
/// # Examples
///
/// ```
/// use advisory_runtime::{Error, testing};
///
/// fn status(error: &Error) -> u16 {
///     if error.is_busy() { 503 } else { 500 }
/// }
///
/// let mut errors = testing::lock_errors().into_iter();
/// let full = errors.find(|error| matches!(error, Error::QueueFull { .. }));
/// assert_eq!(full.map(|error| status(&error)), Some(503));
/// ```
#[must_use]
pub fn lock_errors() -> Vec<Error> {
    let lock = || "room:<room>".into();
    let answered = |error: fn(Name, DieselError) -> Error| error(lock(), source());
    vec![
        Error::NotAvailable {
            lock: lock(),
            busy: BusyLock::new(&[]),
        },
        Error::TimedOut {
            lock: lock(),
            busy: BusyLock::new(&[]),
            waited: Duration::from_millis(2003),
            source: Some(source()),
        },
        Error::QueueFull {
            lock: lock(),
            limit: 64,
        },
        Error::SelfDeadlock { lock: lock() },
        Error::TaskDeadlock {
            lock: lock(),
            cycle: "`pay` (src/pay.rs:9) waits for `room:<room>`, which `book` (src/book.rs:4) holds; `refund` \
                    (src/book.rs:12) waits for `account:<id>`, which `open` (src/pay.rs:3) holds"
                .to_owned(),
        },
        answered(|lock, source| Error::Cancelled { lock, source }),
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
        Error::UnsupportedServer,
        Error::NotCoordinator,
        Error::Pool(pool()),
        answered(|lock, source| Error::Deadlock { lock, source }),
        Error::LockTableFull {
            lock: lock(),
            source: answer("out of shared memory"),
        },
        answered(|lock, source| Error::RolledBack { lock, source }),
        Error::TransactionEnded { lock: lock() },
        answered(|lock, source| Error::CommitUnknown { lock, source }),
        Error::StaleSnapshot { lock: lock() },
        Error::ForeignTransaction { lock: lock() },
        answered(|lock, source| Error::InFailedTransaction { lock, source }),
        Error::NoKeys {
            lock: "room:<rooms*>".into(),
            slice: "rooms",
        },
        Error::TooManyKeys {
            lock: "room:<rooms*>".into(),
            keys: 200,
            max: 64,
        },
        Error::InvalidPermits {
            lock: "export".into(),
            permits: 0,
        },
        Error::BrokenConnection { lock: lock() },
        Error::NotInTransaction { lock: lock() },
        Error::NotHeld { lock: lock() },
        Error::Database(answer(
            "duplicate key value violates unique constraint \"booking_room_key\"",
        )),
    ]
}

/// Like [`lock_errors`], for [`lease::Error`].
#[must_use]
pub fn lease_errors() -> Vec<lease::Error> {
    use lease::Error;
    let lock = || "report:<month>".into();
    let answered = |error: fn(Name, DieselError) -> Error| error(lock(), source());
    let table = || "public.advisory_lease".to_owned();
    let of_table = |error: fn(String, DieselError) -> Error| error(table(), source());
    let reason = "a reason that names what to write";
    vec![
        Error::Held {
            lock: lock(),
            busy: Table::new().busy_key([0; 32]),
            waited: Duration::from_millis(2003),
        },
        Error::Done {
            lock: lock(),
            remaining: Duration::from_secs(86_400),
        },
        Error::Lost {
            lock: lock(),
            source: None,
        },
        Error::HoldExceeded {
            lock: lock(),
            max_hold: Duration::from_secs(30),
        },
        Error::RolledBack {
            lock: lock(),
            source: DieselError::RollbackTransaction,
        },
        answered(|lock, source| Error::CommitUnknown { lock, source }),
        Error::SelfDeadlock { lock: lock() },
        Error::InTransaction { lock: lock() },
        Error::NotInTransaction { lock: lock() },
        Error::NotHeld { lock: lock() },
        Error::KeyTooLong {
            lock: lock(),
            bytes: 900,
            max: 512,
        },
        Error::Invalid {
            lock: lock(),
            reason,
        },
        Error::InvalidHolder {
            holder: "worker".repeat(50),
            reason: "it has more than 255 bytes",
        },
        Error::InvalidTable {
            table: "Leases".to_owned(),
            reason,
        },
        of_table(|table, source| Error::MissingTable { table, source }),
        of_table(|table, source| Error::MissingRights { table, source }),
        Error::NoRuntime {
            lock: lock(),
            reason: "there is no tokio runtime",
        },
        Error::Standby { lock: lock() },
        Error::BrokenConnection { lock: lock() },
        Error::Pool(pool()),
        Error::Database(answer(
            "null value in column \"total\" violates not-null constraint",
        )),
    ]
}

/// Like [`lock_errors`], for [`claim::Error`].
#[must_use]
pub fn claim_errors() -> Vec<claim::Error> {
    use claim::Error;
    let claim = || "sync_jobs (worker-7#0199d0a4-7c1e-4b7e-9a53-0d6a8a3b1f52)".to_owned();
    vec![
        Error::Lost {
            claim: claim(),
            source: None,
        },
        Error::CommitUnknown {
            claim: claim(),
            source: source(),
        },
        Error::InTransaction { claim: claim() },
        Error::BrokenConnection { claim: claim() },
        Error::StaleSnapshot {
            claim: "sync_jobs".to_owned(),
        },
        Error::Pool(pool()),
        Error::Database(answer("column \"locked_until\" does not exist")),
    ]
}

fn answer(message: &str) -> DieselError {
    DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(message.to_owned()))
}

fn source() -> DieselError {
    answer("what the server said")
}

fn pool() -> PoolError {
    PoolError::new("Timeout occurred while waiting for a slot to become available")
}

#[cfg(test)]
mod tests {
    use super::{claim_errors, lease_errors, lock_errors};
    use crate::error::{ProductError, into_diesel};
    use crate::find::find;
    use crate::{Error, claim, lease};
    use diesel::result::{DatabaseErrorKind, Error as DieselError};

    /// An answer with every field.
    struct Full;

    impl diesel::result::DatabaseErrorInformation for Full {
        fn message(&self) -> &'static str {
            "the server's words"
        }
        fn details(&self) -> Option<&str> {
            Some("details")
        }
        fn hint(&self) -> Option<&str> {
            Some("hint")
        }
        fn table_name(&self) -> Option<&str> {
            Some("table")
        }
        fn column_name(&self) -> Option<&str> {
            Some("column")
        }
        fn constraint_name(&self) -> Option<&str> {
            Some("constraint")
        }
        fn statement_position(&self) -> Option<i32> {
            Some(7)
        }
    }

    /// Kinds are compared by their names: not every Diesel 2.3 compares them.
    fn name(kind: DatabaseErrorKind) -> String {
        format!("{kind:?}")
    }

    #[expect(clippy::panic, reason = "an assertion")]
    fn check<E: ProductError>(error: E, kind: DatabaseErrorKind) {
        let own = error.to_string();
        assert!(
            matches!(error.database(), Some(DieselError::DatabaseError(found, _)) if name(*found) == name(kind)),
            "{error:?}"
        );
        let diesel = into_diesel(error);
        assert_eq!(diesel.to_string(), format!("{own}: the server's words"));
        let DieselError::DatabaseError(found, answer) = &diesel else {
            panic!("{diesel:?}");
        };
        assert_eq!(name(*found), name(kind));
        let rest = [
            answer.details(),
            answer.hint(),
            answer.table_name(),
            answer.column_name(),
            answer.constraint_name(),
        ];
        assert_eq!(
            rest,
            ["details", "hint", "table", "column", "constraint"].map(Some)
        );
        assert_eq!(answer.statement_position(), Some(7));
        assert_eq!(find::<E>(&diesel).expect("it is inside").to_string(), own);
        let again = E::from(diesel);
        assert_eq!(again.to_string(), own, "{again:?}");
        assert!(again.into_database().is_err());
    }

    #[test]
    fn an_error_with_the_databases_answer_becomes_it_and_comes_back() {
        for kind in [
            DatabaseErrorKind::ClosedConnection,
            DatabaseErrorKind::SerializationFailure,
            DatabaseErrorKind::UnableToSendCommand,
            DatabaseErrorKind::UniqueViolation,
        ] {
            let source = || DieselError::DatabaseError(kind, Box::new(Full));
            let (lock, lost) = ("room:<room>".into(), Some(source()));
            check(Error::LockLost { lock, source: lost }, kind);
            let (lock, lost) = ("room:<room>".into(), Some(source()));
            check(lease::Error::Lost { lock, source: lost }, kind);
            let (claim, source) = ("sync_jobs (worker)".to_owned(), source());
            check(claim::Error::CommitUnknown { claim, source }, kind);
        }
        let foreign = DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(Full));
        assert!(Error::find(&foreign).is_none());
        assert!(matches!(Error::from(foreign), Error::Database(_)));
    }

    #[test]
    fn each_variant_with_an_error_of_the_database_gives_it() {
        fn give<E: ProductError>(errors: Vec<E>) {
            for error in errors {
                let shown = format!("{error:?}");
                let has_one = ["DatabaseError(", "RollbackTransaction"];
                let has_one = has_one.iter().any(|one| shown.contains(one));
                assert_eq!(error.database().is_some(), has_one, "{shown}");
            }
        }
        give(lock_errors());
        give(lease_errors());
        give(claim_errors());
    }
}
