//! The text of a user's own error does not affect how a call's end is reported: neither that of a
//! deferred trigger at the commit, nor one that the body ignores.

use crate::blocking_calls;
use crate::calls::book;
use advisory_runtime::{Error, Isolation, Request, advisory_lock, session, xact};
use advisory_tests::Database;
use advisory_tests::bookings::{committed, database, execute, in_transaction, insert};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use diesel_async::AsyncPgConnection;

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

#[tokio::test]
async fn a_deferred_triggers_error_is_reported_as_it_is() {
    let db = refusing().await;
    let mut conn = db.connect().await;
    for text in TEXTS {
        for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
            let request = Request::new(1).isolation(isolation);
            let mut held = xact::begin(&mut conn, request).await.unwrap();
            insert(held.conn(), 7, text).await.unwrap();
            let error = held.finish(Ok::<_, Error>(())).await.unwrap_err();
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

#[tokio::test]
async fn a_deferred_triggers_error_is_reported_as_it_is_to_a_thread() {
    let db = refusing().await;
    let mut conn = db.establish();
    for text in TEXTS {
        let error = blocking_calls::book(&mut conn, 7, text).unwrap_err();
        assert_is_the_users(&Error::from(error), text);
        assert!(
            blocking_calls::book(&mut conn, 8, "Grace").unwrap(),
            "{text}"
        );
        db.run("DELETE FROM booking WHERE room = 8").await;
    }
    assert_eq!(committed(&db, 7).await, 0);
    db.until_quiet().await;
}

fn raise(text: &str) -> String {
    format!("DO $do$ BEGIN RAISE EXCEPTION '%', $text${text}$text$; END $do$")
}

/// Raises, ignores it, and returns `Ok`.
#[advisory_lock(key = "room:<room>", name = "room")]
async fn ignore(conn: &mut AsyncPgConnection, room: i64, text: &str) -> QueryResult<()> {
    insert(conn, room, "Ada").await?;
    execute(conn, &raise(text)).await.unwrap_err();
    Ok(())
}

#[tokio::test]
async fn an_ignored_error_is_a_rollback_whatever_its_text() {
    let db = database().await;
    let mut conn = db.connect().await;
    for text in TEXTS {
        let error = Error::from(ignore(&mut conn, 9, text).await.unwrap_err());
        assert!(
            matches!(error, Error::RolledBack { .. }),
            "{text}: {error:?}"
        );
        // Inside a transaction, which stays usable.
        let nested = in_transaction(&mut conn, async |conn| {
            let error = Error::from(ignore(conn, 9, text).await.unwrap_err());
            insert(conn, 10, "outer").await?;
            Ok::<_, DieselError>(error)
        })
        .await;
        assert!(
            matches!(nested, Ok(Error::RolledBack { .. })),
            "{text}: {nested:?}"
        );
        // Under a session-level lock a failed statement affects no other.
        let mut held = session::acquire(&mut conn, 1).await.unwrap();
        execute(held.conn(), &raise(text)).await.unwrap_err();
        held.finish(Ok::<_, Error>(())).await.unwrap();
    }
    assert_eq!(committed(&db, 9).await, 0);
    assert_eq!(
        usize::try_from(committed(&db, 10).await).unwrap(),
        TEXTS.len()
    );
    db.until_quiet().await;
}

/// The timeouts of a bounded call are restored from settings that the body can overwrite.
#[tokio::test]
async fn a_restored_setting_with_a_text_of_its_own_is_a_rollback() {
    #[advisory_lock(key = "bounded:<id>", max_hold = "1h")]
    async fn bounded(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
        let set = "SET LOCAL advisory.idle_in_transaction_session_timeout_1 = 'advisory:transaction-ended'";
        execute(conn, set).await.map(drop)
    }
    let db = database().await;
    let mut conn = db.connect().await;
    let error = in_transaction(&mut conn, async |conn| {
        Ok::<_, DieselError>(Error::from(bounded(conn, 1).await.unwrap_err()))
    })
    .await
    .unwrap();
    assert!(matches!(error, Error::RolledBack { .. }), "{error:?}");
    db.until_quiet().await;
}
