use advisory_runtime::{Error, advisory_lock, lock_key, session, xact};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel::sql_types::BigInt;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

crate::guide::page!("waiting", 1);
crate::guide::page!("waiting", 2);
crate::guide::page!("waiting", 3);
crate::guide::page!("waiting", 4);

#[tokio::test]
async fn a_busy_call_returns_what_it_says() {
    let db = Database::create().await;
    let (mut one, mut other, mut conn) =
        (db.connect().await, db.connect().await, db.connect().await);
    assert!(report(&mut conn).await.unwrap().is_some());
    assert_eq!(status(&mut conn).await, 201);
    let nightly = session::acquire(&mut one, lock_key!("current-report", name = "report")).await;
    let seat = 7;
    let seat = xact::begin(&mut other, lock_key!("seat:<seat: int>", name = "seat")).await;
    assert!(report(&mut conn).await.unwrap().is_none());
    assert_eq!(status(&mut conn).await, 504);
    for held in [nightly.unwrap(), seat.unwrap()] {
        held.finish(Ok::<_, Error>(())).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_queue_and_poll_all_run() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE booking (day int8); CREATE TABLE charge (card int8); CREATE TABLE event (account int8);
         CREATE TABLE export (account int8); INSERT INTO event VALUES (1), (2), (2);
         CREATE FUNCTION render(int8) RETURNS int8 LANGUAGE sql AS 'SELECT $1'",
    )
    .await;
    let pool = db.bb8(4).await;
    let cards = Cards { pool: pool.clone() };
    let (a, b) = tokio::join!(cards.charge(7), cards.charge(7));
    a.and(b).unwrap();
    let (a, b) = tokio::join!(build_index(&pool), build_index(&pool));
    a.and(b).unwrap();
    let (a, b) = tokio::join!(export(&pool, 1), export(&pool, 2));
    assert_eq!((a.unwrap(), b.unwrap()), (1, 2));
    let mut conn = db.connect().await;
    assert_eq!(preview(&mut conn, 7).await.unwrap(), Some(1));
    db.until_no_locks().await;
}
