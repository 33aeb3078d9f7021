use advisory_runtime::PoolError;
use advisory_runtime::blocking::lease::{self, Error, Request, Table};
use advisory_tests::Database;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::{Connection, PgConnection, RunQueryDsl};

crate::guide::page!("leases", 3);

/// The bank knows no negative numbers.
fn call_the_bank(id: i64) -> Result<String, Error> {
    match u64::try_from(id) {
        Ok(id) => Ok(format!("receipt of {id}")),
        Err(unknown) => Err(PoolError::new(unknown).into()),
    }
}

#[tokio::test]
async fn a_blocking_payout_is_fenced() {
    let db = Database::create().await;
    db.run("CREATE TABLE payout (id int8, receipt text); INSERT INTO payout VALUES (7)")
        .await;
    let manager = ConnectionManager::<PgConnection>::new(db.url());
    let paid = tokio::task::spawn_blocking(move || {
        let pool = Pool::builder().max_size(2).build(manager).unwrap();
        Table::new().set_up(&mut pool.get().unwrap()).unwrap();
        pay_out(&pool, 7)
    });
    paid.await.unwrap().unwrap();
    let paid = "SELECT count(*) FROM payout WHERE receipt = 'receipt of 7'";
    assert_eq!(db.count(paid).await, 1);
}
