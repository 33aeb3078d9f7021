use advisory_runtime::{Error, advisory_lease, advisory_lock, lease};
use advisory_tests::Database;
use diesel_async::{
    AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection, pooled_connection::bb8::Pool,
};

crate::guide::runs_the_page!("scopes", "scopes.rs");

/// In a transaction.
#[advisory_lock(key = "slot:<id>")]
async fn book(conn: &mut AsyncPgConnection, id: i64) -> Result<(), Error> {
    let insert = diesel::sql_query("INSERT INTO booking VALUES ($1)");
    insert
        .bind::<diesel::sql_types::BigInt, _>(id)
        .execute(conn)
        .await?;
    Ok(())
}

/// Outside a transaction: this statement cannot run inside one.
#[advisory_lock(key = "reindex", scope = "session", wait = "never", on_held = Ok(()))]
async fn reindex(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    conn.batch_execute("REINDEX INDEX CONCURRENTLY booking_day")
        .await?;
    Ok(())
}

/// Holds no connection while it runs.
#[advisory_lease(key = "refund:<id>", pool = pool, ttl = "60s")]
async fn refund(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<(), lease::Error> {
    // … call the bank …
    Ok(())
}

#[tokio::test]
async fn each_scope_runs_what_is_for_it() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (day int8); CREATE INDEX booking_day ON booking (day)")
        .await;
    let mut conn = db.connect().await;
    lease::Table::new().set_up(&mut conn).await.unwrap();
    book(&mut conn, 7).await.unwrap();
    reindex(&mut conn).await.unwrap();
    refund(&db.bb8(1).await, 7).await.unwrap();
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 1);
    db.until_no_locks().await;
}
