//! A lock's error as the caller sees it, depending on the conversions of its error type, and as
//! Diesel's own.

use crate::calls::{FromDiesel, book, diesel_only};
use advisory_runtime::{Error, PoolError, advisory_lock, claim, lease, testing};
use advisory_tests::bookings::{busy, database, insert, run};
use advisory_tests::{assert_error, assert_matches};
use diesel::QueryResult;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::AsyncPgConnection;
use std::io;

#[derive(Debug)]
pub(crate) struct FromLock(Error);

impl From<Error> for FromLock {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

#[derive(Debug)]
pub(crate) enum FromBoth {
    Diesel(DieselError),
    Lock(Error),
}

impl From<DieselError> for FromBoth {
    fn from(error: DieselError) -> Self {
        Self::Diesel(error)
    }
}

impl From<Error> for FromBoth {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

macro_rules! locked {
    ($name:ident, $result:ty) => {
        #[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
        pub(crate) async fn $name(conn: &mut AsyncPgConnection, room: i64) -> $result {
            drop(insert(conn, room, "Ada").await);
            drop(insert(conn, room, "Grace").await);
            Ok(())
        }
    };
}

locked!(lock_only, Result<(), FromLock>);
locked!(both, Result<(), FromBoth>);
locked!(query_result, QueryResult<()>);
locked!(any, anyhow::Result<()>);

/// The error type belongs to another crate, so it can have neither conversion.
#[advisory_lock(key = "room:<room>", name = "room", err = io::Error::other)]
async fn foreign(conn: &mut AsyncPgConnection, room: i64) -> io::Result<()> {
    drop(insert(conn, room, "Ada").await);
    drop(insert(conn, room, "Grace").await);
    Ok(())
}

#[tokio::test]
async fn a_lock_outcome_uses_the_locks_conversion_if_there_is_one() {
    let (_db, _holder, mut conn) = busy().await;
    let conn = &mut conn;
    assert_matches!(
        lock_only(conn, 7).await,
        Err(FromLock(Error::TimedOut { .. }))
    );
    assert_matches!(
        both(conn, 7).await,
        Err(FromBoth::Lock(Error::TimedOut { .. }))
    );
    let FromDiesel(error) = diesel_only(conn, 7).await.unwrap_err();
    assert!(
        Error::find(&error).is_some_and(|error| error.is_busy()),
        "{error:?}"
    );
    let error = query_result(conn, 7).await.unwrap_err();
    assert!(
        Error::find(&error).is_some_and(|error| error.is_busy()),
        "{error:?}"
    );
    let error = any(conn, 7).await.unwrap_err();
    assert!(
        Error::find(&*error).is_some_and(|error| error.is_busy()),
        "{error:?}"
    );
    let wrapped = error.context("while booking");
    assert!(
        Error::find(&*wrapped).is_some_and(|error| error.is_busy()),
        "{wrapped:?}"
    );
    insert(conn, 8, "the connection stays usable")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_commit_error_uses_diesels_conversion_if_there_is_one() {
    let db = database().await;
    db.run("ALTER TABLE booking ADD UNIQUE (room) DEFERRABLE INITIALLY DEFERRED")
        .await;
    let conn = &mut db.connect().await;
    let is_unique = |error: &DieselError| {
        matches!(
            error,
            DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _)
        )
    };
    assert_matches!(both(conn, 7).await, Err(FromBoth::Diesel(error)) if is_unique(&error));
    assert_matches!(diesel_only(conn, 7).await, Err(FromDiesel(error)) if is_unique(&error));
    assert!(
        matches!(lock_only(conn, 7).await, Err(FromLock(Error::Database(error))) if is_unique(&error))
    );
    assert_matches!(query_result(conn, 7).await, Err(error) if is_unique(&error));
    assert!(
        any(conn, 7)
            .await
            .unwrap_err()
            .downcast_ref::<DieselError>()
            .is_some_and(is_unique)
    );
}

#[tokio::test]
async fn a_deadlock_has_its_own_error() {
    #[advisory_lock(key = "room:<first>", name = "room", scope = "xact")]
    async fn both_rooms(
        conn: &mut AsyncPgConnection,
        first: i64,
        second: i64,
        meet: &tokio::sync::Barrier,
    ) -> Result<(), FromBoth> {
        meet.wait().await;
        book(conn, second, "Ada").await?;
        Ok(())
    }
    let db = database().await;
    let meet = tokio::sync::Barrier::new(2);
    let (mut one, mut two) = (db.connect().await, db.connect().await);
    let (a, b) = tokio::join!(
        both_rooms(&mut one, 1, 2, &meet),
        both_rooms(&mut two, 2, 1, &meet)
    );
    let (Err(FromBoth::Diesel(error)), Ok(())) = (if a.is_err() { (a, b) } else { (b, a) }) else {
        panic!("one of the two is the victim, and the other goes on");
    };
    assert_error!(error, Deadlock { lock, .. } if lock == "room:<room>");
    db.until_quiet().await;
}

#[test]
fn an_error_prints_itself_or_gives_its_cause_and_never_both() {
    use std::error::Error as _;
    let cause = || DieselError::NotFound;
    for error in testing::lock_errors() {
        let source = error.source().map(ToString::to_string);
        assert!(source.is_none_or(|source| !error.to_string().contains(&source)));
    }
    let database = Error::Database(cause());
    assert_eq!(database.to_string(), cause().to_string());
    assert!(database.source().is_none());
}

#[tokio::test]
async fn err_converts_a_refused_lock_and_a_refused_commit() {
    fn lock_error(error: &io::Error) -> &Error {
        let inner = error.get_ref().expect("`err` gives it");
        inner.downcast_ref().expect("the lock's error")
    }
    let (db, _holder, mut conn) = busy().await;
    let refused = foreign(&mut conn, 7).await.unwrap_err();
    assert!(lock_error(&refused).is_busy(), "{refused}");
    db.run("ALTER TABLE booking ADD UNIQUE (room) DEFERRABLE INITIALLY DEFERRED")
        .await;
    let mut conn = db.connect().await;
    // Both inserts succeed, and the commit does not.
    let refused = foreign(&mut conn, 8).await.unwrap_err();
    assert!(!lock_error(&refused).is_busy(), "{refused}");
}

/// The result for an application that matches Diesel's errors by their kind, or by the server's
/// text.
fn kind_and_words(error: &DieselError) -> (DatabaseErrorKind, &str) {
    match error {
        DieselError::DatabaseError(kind, answer) => (*kind, answer.message()),
        other => panic!("not the database's answer: {other:?}"),
    }
}

#[tokio::test]
async fn a_database_error_keeps_its_kind_text_and_lock_error() {
    let (_db, _holder, mut conn) = busy().await;
    let conn = &mut conn;
    let FromDiesel(error) = diesel_only(conn, 7).await.unwrap_err();
    let (kind, words) = kind_and_words(&error);
    assert_matches!(kind, DatabaseErrorKind::Unknown);
    assert!(words.contains("`room:<room>`"), "{words}");
    assert!(
        words.ends_with(": canceling statement due to lock timeout"),
        "{words}"
    );
    assert_error!(error, TimedOut);

    run(conn, "SET lock_timeout = 0").await;
    run(conn, "SET statement_timeout = '200ms'").await;
    let FromDiesel(error) = diesel_only(conn, 7).await.unwrap_err();
    let (kind, words) = kind_and_words(&error);
    assert_matches!(kind, DatabaseErrorKind::Unknown);
    assert!(
        words.ends_with(": canceling statement due to statement timeout"),
        "{words}"
    );
    assert_error!(error, Cancelled);
}

/// An error with a cause, like an application's.
#[derive(Debug)]
struct Wrapped<E>(E);

impl<E> std::fmt::Display for Wrapped<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the job failed")
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Wrapped<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn each_products_error_is_found_in_that_of_another() {
    for (own, other) in testing::lock_errors()
        .into_iter()
        .zip(testing::lock_errors())
    {
        let text = own.to_string();
        let leased = lease::Error::from(DieselError::from(own));
        assert_matches!(leased, lease::Error::Database(_));
        assert!(lease::Error::find(&leased).is_some());
        if !matches!(other, Error::Database(_) | Error::Pool(_)) {
            assert_eq!(Error::find(&leased).unwrap().to_string(), text);
            let wrapped = Wrapped(DieselError::from(leased));
            assert_eq!(Error::find(&wrapped).unwrap().to_string(), text);
            assert!(lease::Error::find(&wrapped).is_none(), "{wrapped:?}");
            let claimed = Wrapped(claim::Error::from(wrapped.0));
            assert_eq!(Error::find(&claimed).unwrap().to_string(), text);
            assert!(claim::Error::find(&claimed).is_some());
        }
    }
    for error in testing::lease_errors() {
        let text = error.to_string();
        if !matches!(error, lease::Error::Database(_)) {
            let locked = Wrapped(DieselError::from(error));
            assert_eq!(lease::Error::find(&locked).unwrap().to_string(), text);
            assert!(Error::find(&locked).is_none());
            let again = lease::Error::from(locked.0);
            assert!(!matches!(again, lease::Error::Database(_)), "{again:?}");
        }
    }
    for error in testing::claim_errors() {
        let text = error.to_string();
        if !matches!(error, claim::Error::Database(_)) {
            let error = DieselError::from(error);
            assert_eq!(claim::Error::find(&error).unwrap().to_string(), text);
            assert!(lease::Error::find(&error).is_none());
        }
    }
}

#[test]
fn a_pools_error_passes_through_diesels() {
    let error = DieselError::from(PoolError::new("it is closed"));
    assert_matches!(Error::from(error), Error::Pool(_));
    let error = DieselError::from(PoolError::new("it is closed"));
    assert_matches!(lease::Error::from(error), lease::Error::Pool(_));
}
