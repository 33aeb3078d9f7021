use advisory_runtime::{Error, advisory_lock};
use advisory_tests::Database;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

crate::guide::page!("commits", 1);

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
