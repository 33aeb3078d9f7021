//! A lock's error as Diesel's: it keeps what the database has answered, and the lock's error is found in it.

use crate::bookings::execute;
use crate::errors::{FromDiesel, busy, diesel_only};
use advisory_runtime::Error;
use diesel::result::{DatabaseErrorKind, Error as DieselError};

/// What an application finds that maps Diesel's errors by their kind, or by the server's words.
fn kind_and_words(error: &DieselError) -> (DatabaseErrorKind, &str) {
    match error {
        DieselError::DatabaseError(kind, answer) => (*kind, answer.message()),
        other => panic!("not the database's answer: {other:?}"),
    }
}

#[tokio::test]
async fn what_the_database_has_answered_keeps_its_kind_and_its_words_and_holds_the_locks_error() {
    let (_db, _holder, mut conn) = busy().await;
    let conn = &mut conn;
    let FromDiesel(error) = diesel_only(conn, 7).await.unwrap_err();
    let (kind, words) = kind_and_words(&error);
    assert!(matches!(kind, DatabaseErrorKind::Unknown), "{kind:?}");
    assert!(words.contains("`room:<room>`"), "{words}");
    assert!(
        words.ends_with(": canceling statement due to lock timeout"),
        "{words}"
    );
    assert!(matches!(
        Error::find(&error).as_deref(),
        Some(Error::TimedOut { .. })
    ));

    execute(conn, "SET lock_timeout = 0").await.unwrap();
    execute(conn, "SET statement_timeout = '200ms'")
        .await
        .unwrap();
    let FromDiesel(error) = diesel_only(conn, 7).await.unwrap_err();
    let (kind, words) = kind_and_words(&error);
    assert!(matches!(kind, DatabaseErrorKind::Unknown), "{kind:?}");
    assert!(
        words.ends_with(": canceling statement due to statement timeout"),
        "{words}"
    );
    assert!(matches!(
        Error::find(&error).as_deref(),
        Some(Error::Cancelled { .. })
    ));
}

/// An answer with everything that a server's can have.
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

#[test]
fn every_error_with_the_databases_answer_becomes_that_answer_and_comes_back() {
    for kind in [
        DatabaseErrorKind::ClosedConnection,
        DatabaseErrorKind::SerializationFailure,
        DatabaseErrorKind::UnableToSendCommand,
        DatabaseErrorKind::UniqueViolation,
    ] {
        let source = || DieselError::DatabaseError(kind, Box::new(Full));
        let lock = || std::borrow::Cow::Borrowed("room:<room>");
        let errors = [
            Error::Cancelled {
                lock: lock(),
                source: source(),
            },
            Error::Deadlock {
                lock: lock(),
                source: source(),
            },
            Error::RolledBack {
                lock: lock(),
                source: source(),
            },
            Error::CommitUnknown {
                lock: lock(),
                source: source(),
            },
            Error::LockLost {
                lock: lock(),
                source: Some(source()),
            },
            Error::MissingTable {
                table: "advisory_lease".to_owned(),
                source: source(),
            },
            Error::MissingRights {
                table: "advisory_lease".to_owned(),
                source: source(),
            },
        ];
        for error in errors {
            let own = error.to_string();
            assert!(
                matches!(error.database(), Some(DieselError::DatabaseError(found, _)) if name(*found) == name(kind))
            );
            let diesel = DieselError::from(error);
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
            assert_eq!(Error::find(&diesel).unwrap().to_string(), own);
            let again = Error::from(diesel);
            assert_eq!(again.to_string(), own, "{again:?}");
            assert!(!matches!(again, Error::Database(_)), "{again:?}");
        }
    }
    let foreign = DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(Full));
    assert!(Error::find(&foreign).is_none());
    assert!(matches!(Error::from(foreign), Error::Database(_)));
}
