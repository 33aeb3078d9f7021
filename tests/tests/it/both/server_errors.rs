//! What each of the server's errors becomes, by scope and by the point of the call where it comes.

use super::super::{
    Conn, IS_BLOCKING, LockGuard, acquire, batch, begin, begin_transaction, connect, end,
    establish, execute, lock, pid_of, rollback_transaction,
};
use advisory_runtime::{Error, Isolation, Request, Wait};
use advisory_tests::bookings::{committed, database};
use advisory_tests::statements::raise;
use advisory_tests::{Database, Proxy};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scope {
    Xact,
    Strict,
    /// In a transaction of Diesel's own.
    Nested,
    /// In such a transaction, without a body.
    Middle,
    Session,
}

use Scope::{Middle, Nested, Session, Strict, Xact};

const SCOPES: [Scope; 5] = [Xact, Strict, Nested, Middle, Session];

impl Scope {
    const fn is_inside(self) -> bool {
        matches!(self, Nested | Middle)
    }

    /// The function that waits.
    const fn function(self) -> &'static str {
        match self {
            Session => "pg_advisory_lock(",
            _ => "pg_advisory_xact_lock(",
        }
    }
}

const HINT_OF_53200: &str = "You might need to increase max_locks_per_transaction.";

const OUT_OF_MEMORY: &str =
    "53200|out of shared memory|You might need to increase max_locks_per_transaction.";

/// The variants, and what the server answers the statement that asks for the lock.
const REFUSALS: [(&str, &[&str]); 4] = [
    (
        "Cancelled",
        &[
            "57014|canceling statement due to user request",
            "57014|canceling statement due to statement timeout",
            "57014|storniere Anfrage wegen Benutzeraufforderung",
        ],
    ),
    (
        "Deadlock",
        &[
            "40P01|deadlock detected|See server log for query details.",
            // Citus.
            "40P01|canceling the transaction since it was involved in a distributed deadlock",
        ],
    ),
    ("LockTableFull", &[OUT_OF_MEMORY]),
    (
        "Database",
        &[
            "42501|permission denied for function pg_advisory_xact_lock",
            "42501|keine Berechtigung für Funktion pg_advisory_lock",
            "53100|could not write to file \"base/1\"|Check free disk space.",
            "XX000|cache lookup failed for function 2880",
            "40001|could not serialize access",
            "terminate",
        ],
    ),
];

fn variant(error: &Error) -> String {
    let text = format!("{error:?}");
    text.chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect()
}

fn said(outcome: Result<(), Error>) -> String {
    match outcome {
        Ok(()) => "Ok".to_owned(),
        Err(error) => {
            let source = error.database().map(ToString::to_string);
            format!("{}: {}", variant(&error), source.unwrap_or_default())
        }
    }
}

/// A connection that the server speaks English to.
async fn english(db: &Database) -> Conn {
    let mut conn = connect(db).await;
    batch(&mut conn, "SET lc_messages = 'C'").await.unwrap();
    conn
}

fn with_max_hold(request: Request) -> [Request; 2] {
    [request.clone(), request.max_hold(LONG)]
}

/// Takes the lock; the guard is `None` where there is no body.
async fn hold(
    conn: &mut Conn,
    scope: Scope,
    request: Request,
) -> Result<Option<LockGuard<'_>>, Error> {
    match scope {
        Xact | Nested => begin(conn, request).await.map(Some),
        Strict => begin(conn, request.isolation(Isolation::Serializable))
            .await
            .map(Some),
        Session => acquire(conn, request).await.map(Some),
        Middle => lock(conn, request).await.map(|_| None),
    }
}

/// Takes the lock, and ends the call.
async fn call(conn: &mut Conn, scope: Scope, request: Request) -> Result<(), Error> {
    match hold(conn, scope, request).await? {
        Some(held) => end(held, Ok(())).await,
        None => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_refusal_of_a_wait_is_said_as_it_is() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    for scope in SCOPES {
        for (expected, refusal) in REFUSALS.iter().flat_map(|(expected, refusals)| {
            refusals.iter().map(move |refusal| (*expected, *refusal))
        }) {
            for wait in [Wait::Session, Wait::For(LONG), Wait::Forever] {
                let what = format!("{scope:?}, {wait:?}, {refusal}");
                let mut conn = establish(proxy.url()).await;
                let conn = &mut conn;
                batch(conn, "SET lc_messages = 'C'").await.unwrap();
                if scope.is_inside() {
                    begin_transaction(conn).await.unwrap();
                }
                let is_lost = refusal == "terminate";
                let mut by = if is_lost {
                    "SELECT pg_terminate_backend(pg_backend_pid())".to_owned()
                } else {
                    raise(refusal)
                };
                if scope.is_inside() {
                    // The savepoint is the one that the message would have set.
                    by.insert_str(0, "SAVEPOINT advisory_savepoint_1;");
                }
                proxy.replace(scope.function(), &by);
                let error = call(conn, scope, Request::new(7).wait(wait))
                    .await
                    .unwrap_err();
                assert_eq!(variant(&error), expected, "{what}");
                let source = error
                    .database()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                let is_said = refusal.contains(&source)
                    || source.contains("terminating connection")
                    || IS_BLOCKING && source.starts_with("server closed the connection");
                assert!(is_said && !source.is_empty(), "{what}: {error:?}");
                if expected == "LockTableFull" {
                    let text = error.to_string();
                    assert!(text.contains("`7`") && text.contains("max_locks_per_transaction"));
                    let diesel = diesel::result::Error::from(error);
                    let diesel::result::Error::DatabaseError(_, answer) = &diesel else {
                        panic!("{diesel:?}");
                    };
                    assert_eq!(answer.hint(), Some(HINT_OF_53200));
                }
                // A transaction of Diesel's own goes on, and so does a connection that cannot hold
                // the lock.
                if matches!(scope, Xact | Nested | Middle) && !is_lost {
                    assert!(execute(conn, "SELECT 1").await.is_ok(), "{what}");
                }
                if scope.is_inside() && !is_lost {
                    rollback_transaction(conn).await.unwrap();
                }
            }
        }
    }
    db.until_quiet().await;
}

/// Takes a role's right to a function, and the role itself.
async fn without_right(conn: &mut Conn, function: &str) {
    let revoke = format!("REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC");
    batch(conn, &revoke).await.unwrap();
    batch(conn, "SET ROLE pg_monitor").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_to_the_locks_function_is_said() {
    for scope in SCOPES {
        let db = database().await;
        for (function, waits) in [
            ("lock", &[Wait::Session, Wait::For(LONG), Wait::Forever][..]),
            ("try", &[Wait::Never][..]),
        ] {
            let function = match (scope, function) {
                (Session, "lock") => "pg_advisory_lock",
                (Session | Strict, "try") => "pg_try_advisory_lock",
                (_, "try") => "pg_try_advisory_xact_lock",
                _ => "pg_advisory_xact_lock",
            };
            for wait in waits {
                for request in with_max_hold(Request::new(7).wait(*wait)) {
                    let mut conn = english(&db).await;
                    without_right(&mut conn, &format!("{function}(bigint)")).await;
                    if scope.is_inside() {
                        begin_transaction(&mut conn).await.unwrap();
                    }
                    let what = format!("{scope:?}, {request:?}");
                    let found = said(call(&mut conn, scope, request).await);
                    let expected = format!("Database: permission denied for function {function}");
                    assert_eq!(found, expected, "{what}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_to_the_release_is_said_and_the_lock_is_released() {
    let db = database().await;
    for keys in [vec![7], vec![7, 8]] {
        for request in with_max_hold(Request::all(keys)) {
            let what = format!("{request:?}");
            let mut conn = english(&db).await;
            let mut held = acquire(&mut conn, request).await.unwrap();
            without_right(held.conn(), "pg_advisory_unlock(bigint)").await;
            let found = said(end(held, Ok(())).await);
            let expected = "Database: permission denied for function pg_advisory_unlock";
            assert_eq!(found, expected, "{what}");
            assert!(execute(&mut conn, "SELECT 1").await.is_err());
            db.until_no_locks().await;
        }
    }
}

/// The `BEGIN` of a try with `max_hold` is followed by a `SELECT`, whose failure leaves the
/// transaction open.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_after_the_begin_of_a_try_is_said() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    for (refusal, expected) in [
        (
            "42501|permission denied for function set_config",
            "Database: permission denied for function set_config",
        ),
        (
            "57014|canceling statement due to user request",
            "Database: canceling statement due to user request",
        ),
        (OUT_OF_MEMORY, "LockTableFull: out of shared memory"),
    ] {
        let mut conn = establish(proxy.url()).await;
        batch(&mut conn, "SET lc_messages = 'C'").await.unwrap();
        let fails = format!("BEGIN;{}", raise(refusal));
        proxy.replace("BEGIN ISOLATION LEVEL READ COMMITTED", &fails);
        let request = Request::new(7).wait(Wait::Never).max_hold(LONG);
        let found = said(call(&mut conn, Xact, request).await);
        assert_eq!(found, expected, "{refusal}");
        // The transaction is not left to a later statement.
        assert!(execute(&mut conn, "SELECT 1").await.is_err(), "{refusal}");
    }
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_transaction_begun_by_sql_is_foreign_and_its_connection_is_closed() {
    let db = database().await;
    for scope in [Xact, Strict, Session] {
        for wait in [Wait::Session, Wait::For(LONG), Wait::Never] {
            for request in with_max_hold(Request::new(7).wait(wait)) {
                let mut conn = english(&db).await;
                batch(&mut conn, "BEGIN").await.unwrap();
                batch(&mut conn, "SELECT no_such_column").await.unwrap_err();
                let what = format!("{scope:?}, {request:?}");
                let error = call(&mut conn, scope, request).await.unwrap_err();
                assert_eq!(variant(&error), "ForeignTransaction", "{what}");
                assert!(execute(&mut conn, "SELECT 1").await.is_err(), "{what}");
            }
        }
    }
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_transaction_of_diesels_own_is_said() {
    let db = database().await;
    for scope in [Nested, Middle] {
        for wait in [Wait::Session, Wait::For(LONG), Wait::Never] {
            for request in with_max_hold(Request::new(7).wait(wait)) {
                let mut conn = english(&db).await;
                begin_transaction(&mut conn).await.unwrap();
                batch(&mut conn, "SELECT no_such_column").await.unwrap_err();
                let what = format!("{scope:?}, {request:?}");
                let found = said(call(&mut conn, scope, request).await);
                let expected = "InFailedTransaction: current transaction is aborted, \
                    commands ignored until end of transaction block";
                assert_eq!(found, expected, "{what}");
            }
        }
    }
}

/// It resets the settings that a call uses for itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_may_reset_all_settings() {
    let db = database().await;
    let mut rows = 0;
    for scope in [Xact, Strict, Nested, Session] {
        for request in [
            Request::new(7),
            Request::all([7, 8]),
            Request::new(7).shared(),
            Request::new(7).permits(2),
            Request::new(7).max_hold(LONG),
            Request::new(7).wait(Wait::Never).max_hold(LONG),
        ] {
            let what = format!("{scope:?}, {request:?}");
            let mut conn = english(&db).await;
            if scope.is_inside() {
                begin_transaction(&mut conn).await.unwrap();
            }
            let mut held = hold(&mut conn, scope, request).await.unwrap().unwrap();
            let body = "RESET ALL; INSERT INTO booking VALUES (7, 'Ada')";
            batch(held.conn(), body).await.unwrap();
            assert_eq!(said(end(held, Ok(())).await), "Ok", "{what}");
            if scope.is_inside() {
                drop(super::super::commit_transaction(&mut conn).await);
            }
            rows += 1;
        }
    }
    assert_eq!(committed(&db, 7).await, rows);
    db.until_quiet().await;
}

/// A session that the server ends while its body sends nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_a_session_that_the_server_has_ended_is_said() {
    let db = database().await;
    for scope in [Xact, Strict, Nested, Session] {
        for (setting, reason) in [
            ("", "terminating connection due to administrator command"),
            (
                "idle_in_transaction_session_timeout",
                "terminating connection due to idle-in-transaction timeout",
            ),
            (
                "idle_session_timeout",
                "terminating connection due to idle-session timeout",
            ),
        ] {
            // Each bounds another state.
            if scope == Session && setting == "idle_in_transaction_session_timeout"
                || scope != Session && setting == "idle_session_timeout"
            {
                continue;
            }
            let mut conn = english(&db).await;
            let pid = pid_of(&mut conn).await;
            if scope.is_inside() {
                begin_transaction(&mut conn).await.unwrap();
            }
            let held = hold(&mut conn, scope, Request::new(7)).await.unwrap();
            let mut held = held.unwrap();
            if setting.is_empty() {
                db.terminate(pid).await;
            } else {
                batch(held.conn(), &format!("SET {setting} = '10ms'"))
                    .await
                    .unwrap();
            }
            let running = format!("SELECT pid FROM pg_stat_activity WHERE pid = {pid}");
            db.until_none("the session has ended", &running).await;
            let found = said(end(held, Ok(())).await);
            let variant = match scope {
                Session => "LockLost",
                Nested => "Database",
                _ => "CommitUnknown",
            };
            // libpq keeps only the last of the errors that answer one message: that the connection
            // was closed.
            let reason = if IS_BLOCKING {
                "server closed the connection unexpectedly"
            } else {
                reason
            };
            let what = format!("{scope:?}, {setting}");
            let first_line = found.lines().next().unwrap_or_default();
            assert_eq!(first_line, format!("{variant}: {reason}"), "{what}");
        }
    }
}
