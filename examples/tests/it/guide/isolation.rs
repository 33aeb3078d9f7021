use advisory_runtime::{Key, advisory_lock, lock_key, xact};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

crate::guide::page!("isolation", 1);

#[tokio::test]
async fn the_sum_is_of_all_that_was_committed_before_the_lock() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE entry (account int8, amount int8); CREATE TABLE balance (account int8, sum int8);
         INSERT INTO entry VALUES (7, 1)",
    )
    .await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let account = 7;
    let key = lock_key!("ledger:<account: int>", name = "ledger");
    let mut held = xact::begin(&mut holder, key).await.unwrap();
    diesel::sql_query("INSERT INTO entry VALUES (7, 2)")
        .execute(held.conn())
        .await
        .unwrap();
    let closing = tokio::spawn(async move { close_month(&mut conn, account).await });
    let Key::BigInt(key) = key else {
        unreachable!("a pattern has a number")
    };
    db.until_waiting(key).await;
    held.finish(QueryResult::Ok(())).await.unwrap();
    assert_eq!(closing.await.unwrap(), Ok(1));
    assert_eq!(db.count("SELECT sum FROM balance").await, 3);
}
