//! A lock's error as the caller sees it, depending on the conversions of its error type.

use crate::calls::{FromDiesel, book, diesel_only};
use advisory_runtime::{Error, advisory_lock, testing};
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
async fn a_time_out_says_which_lock_and_how_long() {
    let (_db, _holder, mut conn) = busy().await;
    let error = query_result(&mut conn, 7).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("advisory lock `room:<room>` is held by another session: gave up after "),
        "{text}"
    );
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
async fn a_statement_timeout_is_not_busy() {
    let (_db, _holder, mut conn) = busy().await;
    run(&mut conn, "SET lock_timeout = 0").await;
    run(&mut conn, "SET statement_timeout = '500ms'").await;
    let error = query_result(&mut conn, 7).await.unwrap_err();
    assert_matches!(
        Error::find(&error).as_deref(),
        Some(error @ Error::Cancelled { .. }) if !error.is_busy()
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
