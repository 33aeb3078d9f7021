//! One holder of a key at a time; the next one sees its writes.

use crate::bookings::{book, committed, database, insert, key_of};
use advisory_runtime::xact;
use diesel::result::Error;

#[tokio::test]
async fn a_waiter_runs_after_the_commit_and_sees_its_writes() {
    let db = database().await;
    let (mut first, mut second) = (db.connect().await, db.connect().await);
    let mut held = xact::begin(&mut first, key_of(7)).await.unwrap();
    insert(held.conn(), 7, "Ada").await.unwrap();

    let waiting = tokio::spawn(async move { book(&mut second, 7, "Grace").await });
    db.until_waiting(key_of(7)).await;
    held.finish(Ok::<_, advisory_runtime::Error>(()))
        .await
        .unwrap();

    assert!(
        !waiting.await.unwrap().unwrap(),
        "the room was taken before the lock was free"
    );
    assert_eq!(committed(&db, 7).await, 1);
    db.until_quiet().await;
}

#[tokio::test]
async fn another_key_does_not_wait() {
    let db = database().await;
    let (mut first, mut second) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut first, key_of(7)).await.unwrap();
    assert!(book(&mut second, 8, "Grace").await.unwrap());
    held.finish(Ok::<_, advisory_runtime::Error>(()))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_error_rolls_back_and_frees_the_lock() {
    let db = database().await;
    let mut conn = db.connect().await;
    let mut held = xact::begin(&mut conn, key_of(7)).await.unwrap();
    insert(held.conn(), 7, "Ada").await.unwrap();
    let result = held.finish(Err::<(), _>(MyError::Refused)).await;
    assert!(matches!(result, Err(MyError::Refused)), "{result:?}");
    assert_eq!(db.locks().await, []);
    assert_eq!(committed(&db, 7).await, 0);
    assert!(
        book(&mut conn, 7, "Grace").await.unwrap(),
        "the connection stays usable"
    );
}

#[tokio::test]
async fn twenty_callers_of_one_room_book_it_once() {
    let db = database().await;
    let pool = db.deadpool(10);
    let callers: Vec<_> = (0..20)
        .map(|guest| {
            let pool = pool.clone();
            tokio::spawn(async move {
                book(&mut pool.get().await.unwrap(), 7, &guest.to_string()).await
            })
        })
        .collect();
    let mut booked = 0;
    for caller in callers {
        booked += u32::from(caller.await.unwrap().unwrap());
    }
    assert_eq!(booked, 1);
    assert_eq!(committed(&db, 7).await, 1);
}

#[derive(Debug)]
enum MyError {
    Refused,
    #[expect(dead_code, reason = "shown by Debug when an assertion fails")]
    Lock(advisory_runtime::Error),
}

impl From<advisory_runtime::Error> for MyError {
    fn from(error: advisory_runtime::Error) -> Self {
        Self::Lock(error)
    }
}

#[tokio::test]
async fn a_second_begin_on_a_broken_connection_is_refused() {
    let db = database().await;
    let mut conn = db.connect().await;
    db.terminate(advisory_tests::pid_of(&mut conn).await).await;
    xact::begin(&mut conn, 1).await.unwrap_err();
    let refused = book(&mut conn, 7, "Ada").await.unwrap_err();
    let found = advisory_runtime::Error::find(&refused);
    assert!(
        matches!(found.as_deref(), Some(advisory_runtime::Error::BrokenConnection { lock, .. }) if lock == "room:<room>"),
        "{refused:?}"
    );
    assert!(matches!(refused, Error::QueryBuilderError(_)));
}
