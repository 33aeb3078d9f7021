use advisory_runtime::lease::{self, Error, Lease};
use advisory_runtime::{Pool as _, advisory_lease};
use advisory_tests::Database;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

mod blocking;

crate::guide::runs_the_page!("leases", "leases.rs", "leases/blocking.rs");

#[advisory_lease(key = "payout:<id>", pool = pool, ttl = "60s", handle = lease)]
async fn pay_out(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<(), Error> {
    let receipt = call_the_bank(id, &lease).await?; // slow, in no transaction
    let mut conn = pool.connection().await?;
    conn.transaction(async |conn| {
        lease.fence(conn).await?; // refused if somebody else has the key by now
        diesel::sql_query("UPDATE payout SET receipt = $1 WHERE id = $2")
            .bind::<diesel::sql_types::Text, _>(receipt)
            .bind::<diesel::sql_types::BigInt, _>(id)
            .execute(conn)
            .await?;
        Ok(())
    })
    .await
}

async fn call_the_bank(id: i64, lease: &Lease) -> Result<String, Error> {
    assert!(lease.is_held());
    Ok(format!("receipt of {id}"))
}

/// Credits the account once, however often the webhook is delivered.
#[advisory_lease(key = "webhook:<id>", pool = pool, keep = "24h", wait = "never", on_done = Ok(()), handle = lease)]
async fn handle(pool: &Pool<AsyncPgConnection>, id: &str, account: i64) -> Result<(), Error> {
    let mut conn = pool.connection().await?;
    conn.transaction(async |conn| {
        diesel::sql_query("UPDATE account SET balance = balance + 1 WHERE id = $1")
            .bind::<diesel::sql_types::BigInt, _>(account)
            .execute(conn)
            .await?;
        lease.complete(conn).await
    })
    .await
}

#[tokio::test]
async fn a_payout_is_fenced_and_a_webhook_handled_once() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE payout (id int8, receipt text); INSERT INTO payout VALUES (7);
         CREATE TABLE account (id int8, balance int8); INSERT INTO account VALUES (7, 0), (8, 0)",
    )
    .await;
    let mut conn = db.connect().await;
    lease::Table::new().set_up(&mut conn).await.unwrap();
    let pool = db.bb8(3).await;
    pay_out(&pool, 7).await.unwrap();
    let paid = "SELECT count(*) FROM payout WHERE receipt = 'receipt of 7'";
    assert_eq!(db.count(paid).await, 1);
    for _ in 0..3 {
        handle(&pool, "evt-1", 7).await.unwrap();
    }
    let balance = "SELECT balance FROM account WHERE id = 7";
    assert_eq!(db.count(balance).await, 1);
    assert_eq!(db.count("SELECT sum(balance)::int8 FROM account").await, 1);
}
