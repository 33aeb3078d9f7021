//! The text of a user's own error does not affect how a call's end is reported: neither that of a
//! deferred trigger at the commit, nor one that the body ignores.

use super::super::{
    Conn, acquire, begin, book, connect, end, execute, in_transaction, insert, locked, run,
};
use advisory_runtime::{Error, Isolation, Request};
use advisory_tests::bookings::{committed, database};
use advisory_tests::{Database, assert_error};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use std::time::Duration;

/// The texts that this crate searches for in the answers to its own statements, and the server's
/// texts instead of them.
const TEXTS: [&str; 15] = [
    "note not allowed: SAVEPOINT pizza",
    "SAVEPOINT",
    "la orden SAVEPOINT",
    "SAVEPOINT can only be used in transaction blocks.",
    "advisory:transaction-ended",
    "invalid input syntax for type integer: \"advisory:transaction-ended\"",
    "advisory:not-available",
    "advisory:lock-lost",
    "advisory:stale-snapshot",
    "advisory:foreign-transaction",
    "advisory:standby",
    "advisory:pooled-session",
    "SET TRANSACTION [NOT] DEFERRABLE must be called before any query",
    "SET TRANSACTION ISOLATION LEVEL must be called before any query",
    "canceling statement due to lock timeout",
];

/// A table whose rows are refused when they are committed, with the guest as the error's text.
async fn refusing() -> Database {
    let db = database().await;
    db.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '%', NEW.guest; END $$;
         CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON booking DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW WHEN (NEW.room = 7) EXECUTE FUNCTION refuse()",
    )
    .await;
    db
}

fn assert_is_the_users(error: &Error, text: &str) {
    assert!(
        matches!(error, Error::Database(DieselError::DatabaseError(_, answer)) if answer.message() == text),
        "{text}: {error:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_triggers_error_is_reported_as_it_is() {
    let db = refusing().await;
    let mut conn = connect(&db).await;
    for text in TEXTS {
        for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
            let request = Request::new(1).isolation(isolation);
            let mut held = begin(&mut conn, request).await.unwrap();
            insert(held.conn(), 7, text).await.unwrap();
            let error = end(held, Ok::<_, Error>(())).await.unwrap_err();
            assert_is_the_users(&error, text);
        }
        let error = book(&mut conn, 7, text).await.unwrap_err();
        assert_is_the_users(&Error::from(error), text);
        assert!(book(&mut conn, 8, "Grace").await.unwrap(), "{text}");
        db.run("DELETE FROM booking WHERE room = 8").await;
    }
    assert_eq!(committed(&db, 7).await, 0);
    db.until_quiet().await;
}

fn raise(text: &str) -> String {
    format!("DO $do$ BEGIN RAISE EXCEPTION '%', $text${text}$text$; END $do$")
}

/// Raises, ignores it, and returns `Ok`.
async fn ignore(conn: &mut Conn, room: i64, text: &str) -> QueryResult<()> {
    locked(conn, room, async |conn| {
        insert(conn, room, "Ada").await?;
        execute(conn, &raise(text)).await.unwrap_err();
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ignored_error_is_a_rollback_whatever_its_text() {
    let db = database().await;
    let mut conn = connect(&db).await;
    for text in TEXTS {
        assert_error!(ignore(&mut conn, 9, text).await, RolledBack, "{text}");
        // Inside a transaction, which stays usable.
        let nested = in_transaction(&mut conn, async |conn| {
            let error = Error::from(ignore(conn, 9, text).await.unwrap_err());
            insert(conn, 10, "outer").await?;
            Ok::<_, DieselError>(error)
        })
        .await;
        assert_error!(nested.unwrap(), RolledBack, "{text}");
        // Under a session-level lock a failed statement affects no other.
        let mut held = acquire(&mut conn, 1).await.unwrap();
        execute(held.conn(), &raise(text)).await.unwrap_err();
        end(held, Ok::<_, Error>(())).await.unwrap();
    }
    assert_eq!(committed(&db, 9).await, 0);
    assert_eq!(
        usize::try_from(committed(&db, 10).await).unwrap(),
        TEXTS.len()
    );
    db.until_quiet().await;
}

/// The timeouts of a bounded call are restored from settings that the body can overwrite.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_setting_with_a_text_of_its_own_is_a_rollback() {
    const SET: &str =
        "SET LOCAL advisory.idle_in_transaction_session_timeout_1 = 'advisory:transaction-ended'";
    let db = database().await;
    let mut conn = connect(&db).await;
    let error = in_transaction(&mut conn, async |conn| {
        let request = Request::new(1).max_hold(Duration::from_secs(3600));
        let mut held = begin(conn, request).await.unwrap();
        run(held.conn(), SET).await;
        Ok::<_, DieselError>(end(held, Ok::<_, Error>(())).await)
    });
    assert_error!(error.await.unwrap(), RolledBack);
    db.until_quiet().await;
}
