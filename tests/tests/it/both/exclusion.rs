//! One holder of a key at a time; the next one sees its writes.

use super::super::{Conn, begin, book, connect, end, insert, locked, spawn};
use advisory_runtime::Error;
use advisory_tests::assert_matches;
use advisory_tests::bookings::{committed, database, key_of};
use diesel::result::Error as DieselError;

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_runs_after_the_commit_and_sees_its_writes() {
    let db = database().await;
    let (mut first, mut second) = (connect(&db).await, connect(&db).await);
    let mut held = begin(&mut first, key_of(7)).await.unwrap();
    insert(held.conn(), 7, "Ada").await.unwrap();

    let waiting = spawn(async move { book(&mut second, 7, "Grace").await });
    db.until_waiting(key_of(7)).await;
    end(held, Ok::<_, Error>(())).await.unwrap();

    assert!(
        !waiting.await.unwrap().unwrap(),
        "the room was taken before the lock was free"
    );
    assert_eq!(committed(&db, 7).await, 1);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_does_not_wait() {
    let db = database().await;
    let (mut first, mut second) = (connect(&db).await, connect(&db).await);
    let held = begin(&mut first, key_of(7)).await.unwrap();
    assert!(book(&mut second, 8, "Grace").await.unwrap());
    end(held, Ok::<_, Error>(())).await.unwrap();
}

#[derive(Debug)]
enum MyError {
    Refused,
    #[expect(dead_code, reason = "shown by Debug when an assertion fails")]
    Lock(Error),
    #[expect(dead_code, reason = "shown by Debug when an assertion fails")]
    Diesel(DieselError),
}

impl From<Error> for MyError {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl From<DieselError> for MyError {
    fn from(error: DieselError) -> Self {
        Self::Diesel(error)
    }
}

async fn refuse(conn: &mut Conn) -> Result<(), MyError> {
    locked(conn, 7, async |conn| {
        insert(conn, 7, "Ada").await?;
        Err(MyError::Refused)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_the_bodys_own_and_rolls_back_and_frees_the_lock() {
    let db = database().await;
    let mut conn = connect(&db).await;
    let error = refuse(&mut conn).await.unwrap_err();
    assert_matches!(error, MyError::Refused);
    assert_eq!(db.locks().await, []);
    assert_eq!(committed(&db, 7).await, 0);
    assert!(
        book(&mut conn, 7, "Grace").await.unwrap(),
        "the connection stays usable"
    );
    assert_eq!(committed(&db, 7).await, 1);
    db.until_quiet().await;
}
