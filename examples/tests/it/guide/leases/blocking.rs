use advisory_runtime::PoolError;
use advisory_runtime::blocking::lease::{self, Error, Request, Table};
use advisory_tests::Database;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::{Connection, PgConnection, RunQueryDsl};

fn pay_out(pool: &Pool<ConnectionManager<PgConnection>>, id: i64) -> Result<(), Error> {
    let mut guard = lease::acquire(pool, Request::text(format!("payout:{id}")))?;
    let lease = guard.lease().clone();
    let result = guard.run(|| {
        let receipt = call_the_bank(id)?; // slow, in no transaction
        let mut conn = advisory_runtime::blocking::Pool::connection(pool)?;
        conn.transaction(|conn| {
            lease.fence(conn)?; // refused if somebody else has the key by now
            diesel::sql_query("UPDATE payout SET receipt = $1 WHERE id = $2")
                .bind::<diesel::sql_types::Text, _>(receipt)
                .bind::<diesel::sql_types::BigInt, _>(id)
                .execute(conn)?;
            Ok(())
        })
    })?;
    guard.finish(result)
}

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
