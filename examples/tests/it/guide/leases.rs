use advisory_runtime::lease::{self, Error, Lease};
use advisory_runtime::{Pool as _, advisory_lease};
use advisory_tests::Database;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

mod blocking;

crate::guide::page!("leases", 1);

async fn call_the_bank(id: i64, lease: &Lease) -> Result<String, Error> {
    assert!(lease.is_held());
    Ok(format!("receipt of {id}"))
}

crate::guide::page!("leases", 2);

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
