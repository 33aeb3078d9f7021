//! What a call reports if cancel requests and other errors also hit the statements that find out
//! what has happened, and if the clocks of this process and of the server differ.

use super::super::{
    Conn, acquire, batch, begin, begin_transaction, book, commit_transaction, connect, end,
    establish, insert, run,
};
use advisory_runtime::{Error, Isolation, Request};
use advisory_tests::bookings::{committed, database};
use advisory_tests::statements::raise;
use advisory_tests::{Database, Proxy, assert_error};
use std::time::Duration;

/// The whole message that asks whether a transaction has failed, with the zero that ends it.
const PROBE: &str = "SELECT\0";

const BY_USER: &str = "57014|canceling statement due to user request";

/// Books the room through a proxy that sends this message instead of the commit.
async fn book_with(db: &Database, room: i64, commit: &str) -> (Proxy, Conn, Error) {
    let proxy = Proxy::start(db).await;
    let mut conn = establish(proxy.url()).await;
    proxy.replace(";COMMIT", commit);
    let error = book(&mut conn, room, "Ada").await.unwrap_err();
    (proxy, conn, error.into())
}

/// As on a server that logs durations, where a cancel request is answered after the commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_unknown_if_the_question_about_it_is_cancelled() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    for cancels in 1..=4 {
        let mut conn = establish(proxy.url()).await;
        proxy.replace(";COMMIT", &format!("COMMIT;{}", raise(BY_USER)));
        for _ in 0..cancels {
            proxy.cancel(PROBE);
        }
        let error = Error::from(book(&mut conn, cancels, "Ada").await.unwrap_err());
        assert_error!(error, CommitUnknown, "{cancels}");
        assert_eq!(committed(&db, cancels).await, 1);
    }
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_is_known_however_often_the_question_about_it_is_cancelled() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    for cancels in 1..=4 {
        let mut conn = establish(proxy.url()).await;
        proxy.cancel(";COMMIT");
        for _ in 0..cancels {
            proxy.cancel(PROBE);
        }
        assert_error!(book(&mut conn, 7, "Ada").await, RolledBack, "{cancels}");
        assert_eq!(committed(&db, 7).await, 0);
        assert!(book(&mut conn, 100 + cancels, "Ada").await.unwrap());
    }
    db.until_quiet().await;
}

/// A distributed engine answers so for a commit that has happened on one of its servers.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_commit_that_does_not_say_rolled_back_is_unknown() {
    let db = database().await;
    for (room, failure) in (1..).zip([
        "XX000|could not commit transaction",
        "08007|transaction resolution unknown",
        "57P05|terminating connection",
        "58030|could not write a file",
        "40003|result is ambiguous",
        "P0001|something else",
    ]) {
        let commit = format!("COMMIT;{}", raise(failure));
        let (_proxy, mut conn, error) = book_with(&db, room, &commit).await;
        assert_error!(error, CommitUnknown, "{commit}");
        assert_eq!(committed(&db, room).await, 1);
        assert!(book(&mut conn, 100 + room, "Ada").await.unwrap());
    }
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_commit_that_says_rolled_back_is_the_databases() {
    let db = database().await;
    for failure in [
        "23505|duplicate key",
        "23503|foreign key",
        "23P01|exclusion constraint",
        "40001|could not serialize access",
        "40P01|deadlock detected",
    ] {
        let commit = format!("ROLLBACK;{}", raise(failure));
        let (_proxy, mut conn, error) = book_with(&db, 7, &commit).await;
        assert_error!(error, Database, "{commit}");
        assert!(book(&mut conn, 8, "Ada").await.is_ok());
    }
    assert_eq!(committed(&db, 7).await, 0);
    db.until_quiet().await;
}

/// A foreign server can have committed its part of the transaction before a deferred trigger, or a
/// conflict that the server looks for at the end.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_at_the_commit_says_rolled_back_unless_a_foreign_server_takes_part() {
    for raised in ["EXCEPTION 'no'", "serialization_failure"] {
        let db = database().await;
        db.run(&format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE {raised}; END $$;
             CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON booking DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION refuse()",
        ))
        .await;
        let mut conn = connect(&db).await;
        let error = Error::from(book(&mut conn, 7, "Ada").await.unwrap_err());
        assert_error!(error, Database, "{raised}");
        db.run(
            "CREATE FOREIGN DATA WRAPPER elsewhere; CREATE SERVER other FOREIGN DATA WRAPPER elsewhere",
        )
        .await;
        assert_error!(book(&mut conn, 7, "Ada").await, CommitUnknown, "{raised}");
        assert_eq!(committed(&db, 7).await, 0);
        db.until_quiet().await;
    }
}

/// The release of the savepoint is cancelled, and so is the rollback to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_nested_call_is_rolled_back_if_its_end_is_cancelled_twice() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = establish(proxy.url()).await;
    begin_transaction(&mut conn).await.unwrap();
    proxy.cancel("RELEASE SAVEPOINT advisory_savepoint_1");
    proxy.cancel("ROLLBACK TO SAVEPOINT advisory_savepoint_1");
    assert_error!(book(&mut conn, 7, "Ada").await, RolledBack);
    insert(&mut conn, 8, "outer").await.unwrap();
    commit_transaction(&mut conn).await.unwrap();
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [0, 1]);
    db.until_quiet().await;
}

/// The wait is cancelled, and so is the rollback to the savepoint: the outer transaction must not
/// be left in a failed state, whose commit Diesel reports as `Ok`.
#[tokio::test(flavor = "multi_thread")]
async fn an_outer_transaction_goes_on_if_a_nested_wait_is_cancelled_twice() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = establish(proxy.url()).await;
    begin_transaction(&mut conn).await.unwrap();
    let refusal = format!("SAVEPOINT advisory_savepoint_1;{}", raise(BY_USER));
    proxy.replace("pg_advisory_xact_lock(", &refusal);
    proxy.cancel("ROLLBACK TO SAVEPOINT advisory_savepoint_1");
    assert_error!(book(&mut conn, 7, "Ada").await, Cancelled);
    insert(&mut conn, 8, "outer").await.unwrap();
    commit_transaction(&mut conn).await.unwrap();
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [0, 1]);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_cancelled_repeatedly_is_cancelled_and_keeps_its_connection() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = establish(proxy.url()).await;
    for cancels in 1..=4 {
        proxy.cancel("pg_advisory_xact_lock(");
        for _ in 0..cancels {
            proxy.cancel(PROBE);
        }
        assert_error!(book(&mut conn, 7, "Ada").await, Cancelled, "{cancels}");
    }
    assert!(book(&mut conn, 7, "Ada").await.unwrap());
    db.until_quiet().await;
}

#[derive(Clone, Copy, Debug)]
enum Scope {
    Xact,
    Strict,
    Nested,
    Session,
}

/// The error of a call that waits this long, and whose server answers with this instead of the
/// lock.
async fn refused(proxy: &Proxy, scope: Scope, wait: Duration, refusal: &str) -> Error {
    let mut conn = establish(proxy.url()).await;
    batch(&mut conn, "SET lc_messages = 'C'").await.unwrap();
    let conn = &mut conn;
    let request = Request::new(7).wait(wait);
    match scope {
        Scope::Xact | Scope::Strict => proxy.replace("pg_advisory_xact_lock(", refusal),
        Scope::Nested => {
            begin_transaction(conn).await.unwrap();
            let refusal = format!("SAVEPOINT advisory_savepoint_1;{refusal}");
            proxy.replace("pg_advisory_xact_lock(", &refusal);
        }
        Scope::Session => proxy.replace("pg_advisory_lock(", refusal),
    }
    let begun = match scope {
        Scope::Xact | Scope::Nested => begin(conn, request).await,
        Scope::Strict => begin(conn, request.isolation(Isolation::Serializable)).await,
        Scope::Session => acquire(conn, request).await,
    };
    match begun {
        Ok(held) => {
            drop(end(held, Ok::<_, Error>(())).await);
            panic!("{scope:?}: it was not refused")
        }
        Err(error) => error,
    }
}

/// Each refusal comes at a time that is wrong by one of the two clocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_time_out_is_told_by_the_servers_answer_whatever_the_clocks_say() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let (short, second, long) = (
        Duration::from_millis(30),
        Duration::from_secs(1),
        Duration::from_secs(600),
    );
    for scope in [Scope::Xact, Scope::Strict, Scope::Nested, Scope::Session] {
        for (wait, slept, failure, expected) in [
            // This process's clock is slow, or the server's is fast.
            (
                long,
                "0",
                "55P03|canceling statement due to lock timeout",
                "TimedOut",
            ),
            // The other way round.
            (short, "0.05", BY_USER, "Cancelled"),
            (
                short,
                "0.05",
                "57014|canceling statement due to statement timeout",
                "Cancelled",
            ),
            // Where the text is not known, this process's clock may be slow by a tenth.
            (
                second,
                "0.92",
                "55P03|storniere Anfrage wegen Zeitüberschreitung",
                "TimedOut",
            ),
            (
                long,
                "0",
                "57014|storniere Anfrage wegen Benutzeraufforderung",
                "Cancelled",
            ),
            // A deadlock, also from an engine that sends no detail and no hint.
            (long, "0", "40P01|deadlock detected", "Deadlock"),
        ] {
            let refusal = &format!("SELECT pg_sleep({slept});{}", raise(failure));
            let error = refused(&proxy, scope, wait, refusal).await;
            assert!(
                format!("{error:?}").starts_with(expected),
                "{scope:?}, {wait:?}, {refusal}: {error:?}"
            );
        }
    }
    let mut conn = connect(&db).await;
    run(&mut conn, "SELECT 1").await;
    db.until_quiet().await;
}
