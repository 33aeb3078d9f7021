use advisory_runtime::{Error, advisory_lock};
use advisory_tests::Database;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

crate::guide::runs_the_page!("commits", "commits.rs");

diesel::table! {
    payment (request_id) {
        request_id -> Text,
        amount -> BigInt,
    }
}

#[advisory_lock(key = "account:<account>", name = "account", wait = "5s")]
async fn pay(
    conn: &mut AsyncPgConnection,
    account: i64,
    request: &str,
    amount: i64,
) -> Result<(), Error> {
    let row = (payment::request_id.eq(request), payment::amount.eq(amount));
    diesel::insert_into(payment::table)
        .values(row)
        .execute(conn)
        .await?;
    Ok(())
}

/// Whether the payment was made. Under the same lock, so that it waits for a commit that is still
/// on its way.
#[advisory_lock(key = "account:<account>", name = "account", wait = "5s")]
async fn is_paid(conn: &mut AsyncPgConnection, account: i64, request: &str) -> Result<bool, Error> {
    let paid = diesel::dsl::exists(payment::table.find(request));
    Ok(diesel::select(paid).get_result(conn).await?)
}

async fn pay_once(
    first: &mut AsyncPgConnection,
    second: &mut AsyncPgConnection,
) -> Result<bool, Error> {
    match pay(first, 7, "req-81", 500).await {
        Err(Error::CommitUnknown { .. }) => is_paid(second, 7, "req-81").await,
        done => done.map(|()| true),
    }
}

#[tokio::test]
async fn a_payment_whose_commit_is_lost_is_looked_for() {
    let db = Database::create().await;
    db.run("CREATE TABLE payment (request_id text PRIMARY KEY, amount int8)")
        .await;
    // The server ends the session in the commit, so that its answer is lost: during the sleep,
    // which is only there to be interrupted.
    db.run(
        "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER lose AFTER INSERT ON payment DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION lose()",
    )
    .await;
    let (mut first, mut second) = (db.connect().await, db.connect().await);
    assert!(!pay_once(&mut first, &mut second).await.unwrap());
    assert_eq!(db.count("SELECT count(*) FROM payment").await, 0);
    db.run("DROP TRIGGER lose ON payment").await;
    let mut first = db.connect().await;
    assert!(pay_once(&mut first, &mut second).await.unwrap());
    assert!(is_paid(&mut second, 7, "req-81").await.unwrap());
}
