use advisory_runtime::claim::{self, Claim, Claimed, Error, Schema};
use advisory_runtime::{Pool as _, PoolError};
use advisory_tests::Database;
use diesel::dsl::IntervalDsl as _;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncPgConnection, RunQueryDsl, pooled_connection::bb8::Pool};
use std::time::Duration;

mod clock;

const PAGE: &str = include_str!("../../../../advisory-runtime/docs/periodic-jobs.md");

fn sql(words: &str) -> &'static str {
    crate::guide::sql(PAGE, words)
}

crate::guide::page!("periodic-jobs", 1);

/// The second fails.
async fn download(id: i64) -> Result<(), Error> {
    let failed = PoolError::new("no such host").into();
    if id == 2 { Err(failed) } else { Ok(()) }
}

#[tokio::test]
async fn a_feed_comes_back_an_hour_later_and_a_failed_one_after_its_backoff() {
    let db = Database::create().await;
    db.run(sql("CREATE TABLE feed")).await;
    db.run(&claim::indexes::<Feed>().join(";")).await;
    db.run("INSERT INTO feed (attempts) VALUES (3), (0)").await;
    let due = "SELECT id::text FROM feed WHERE run_at <= now()";
    let none_is_due = db.until_empty(Duration::from_secs(30), "no feed is due", due);
    serve(&db.bb8(2).await, none_is_due).await.unwrap();
    let refreshed = "SELECT count(*) FROM feed WHERE id = 1 AND attempts = 0 AND locked_by IS NULL \
         AND run_at BETWEEN now() + interval '50 minutes' AND now() + interval '1 hour'";
    assert_eq!(db.count(refreshed).await, 1);
    let failed = "SELECT count(*) FROM feed WHERE id = 2 AND attempts = 1 AND locked_by IS NULL \
         AND run_at < now() + interval '1 minute' AND error_message LIKE '%no such host%'";
    assert_eq!(db.count(failed).await, 1);
}

/// Two missed hours follow each other, or are skipped.
#[tokio::test]
async fn a_feed_that_is_late_catches_up_or_counts_from_now() {
    let db = Database::create().await;
    db.run(sql("CREATE TABLE feed")).await;
    db.run("INSERT INTO feed (run_at) VALUES (now() - interval '90 minutes')")
        .await;
    let (pool, mut conn) = (db.bb8(1).await, db.connect().await);
    for _ in 0..2 {
        let late = claim::next::<Feed>("one").first(&mut conn).await.unwrap();
        refresh(&pool, &late.expect("it is due")).await.unwrap();
    }
    let none = claim::next::<Feed>("one").first(&mut conn).await.unwrap();
    assert!(none.is_none());
    db.run("UPDATE feed SET run_at = now() - interval '90 minutes'")
        .await;
    let late = claim::next::<Feed>("one").first(&mut conn).await.unwrap();
    let next = diesel::dsl::sql::<diesel::sql_types::Timestamptz>("now() + interval '1 hour'");
    let end = claim::end(late.as_ref().unwrap()).set(feed::run_at.eq(next));
    end.complete(&mut conn).await.unwrap();
    let none = claim::next::<Feed>("one").first(&mut conn).await.unwrap();
    assert!(none.is_none());
}

crate::guide::page!("periodic-jobs", 4);

async fn exports() -> Database {
    let db = Database::create().await;
    db.run("CREATE TABLE export (id bigserial PRIMARY KEY, tenant_id int8 NOT NULL)")
        .await;
    db.run(&Schema::of("export").per("tenant_id").up()).await;
    db
}

async fn insert(conn: &mut AsyncPgConnection, words: &str) -> usize {
    let insert = diesel::sql_query(sql(words)).bind::<BigInt, _>(7);
    insert.execute(conn).await.unwrap()
}

const ROWS: &str = "SELECT count(*) FROM export";

#[tokio::test]
async fn one_export_of_a_tenant_is_open() {
    let db = exports().await;
    db.run(sql("export_open")).await;
    let (mut conn, none) = (db.connect().await, "DO NOTHING");
    assert_eq!(insert(&mut conn, none).await, 1);
    assert_eq!(insert(&mut conn, none).await, 0);
    let running = claim::next::<Checked>("one").first(&mut conn).await;
    let running = running.unwrap().expect("it waits");
    assert_eq!(insert(&mut conn, none).await, 0, "it still runs");
    claim::complete(&mut conn, &running).await.unwrap();
    assert_eq!(insert(&mut conn, none).await, 1, "it has ended");
}

/// Like [`Export`], without the column that the first recipe does not have.
#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = export)]
struct Checked {
    id: i64,
}

#[tokio::test]
async fn an_export_that_is_inserted_again_while_it_runs_is_done_again() {
    let db = exports().await;
    db.run(sql("export_waiting")).await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let update = "DO UPDATE";
    for _ in 0..2 {
        insert(&mut conn, update).await;
    }
    assert_eq!(db.count(ROWS).await, 1, "while it waits");
    let running = next(&mut conn).await.unwrap().expect("it waits");
    for _ in 0..2 {
        insert(&mut conn, update).await;
    }
    assert_eq!(db.count(ROWS).await, 2, "while it runs");
    assert!(next(&mut other).await.unwrap().is_none(), "one at a time");
    // Its end cannot fail because another one waits.
    claim::release(&mut conn, &running).await.unwrap();
    for _ in 0..2 {
        let job = next(&mut conn).await.unwrap().expect("it is free");
        claim::complete(&mut conn, &job).await.unwrap();
    }
    assert!(next(&mut conn).await.unwrap().is_none());
}

/// The job must read what the transaction has changed.
#[tokio::test]
async fn a_worker_passes_over_an_export_that_an_open_transaction_has_inserted_again() {
    let db = exports().await;
    db.run(sql("export_waiting")).await;
    let (mut conn, mut producer) = (db.connect().await, db.connect().await);
    insert(&mut conn, "DO UPDATE").await;
    diesel::sql_query("BEGIN")
        .execute(&mut producer)
        .await
        .unwrap();
    insert(&mut producer, "DO UPDATE").await;
    assert!(next(&mut conn).await.unwrap().is_none(), "it is locked");
    diesel::sql_query("COMMIT")
        .execute(&mut producer)
        .await
        .unwrap();
    assert!(next(&mut conn).await.unwrap().is_some());
    assert_eq!(db.count(ROWS).await, 1);
}

crate::guide::page!("periodic-jobs", 5);

async fn read(checkpoint: &Checkpoint) -> i64 {
    checkpoint.matrix_id + i64::try_from(checkpoint.chunk_hash.len()).unwrap()
}

#[tokio::test]
async fn a_checkpoint_is_claimed_and_given_back() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE sync_checkpoints (matrix_id int8, chunk_hash text, row_count int8, last_synced_at timestamptz,
             locked_until timestamptz, locked_by text, PRIMARY KEY (matrix_id, chunk_hash));
         INSERT INTO sync_checkpoints VALUES (7, 'abc')",
    )
    .await;
    let mut conn = db.connect().await;
    for _ in 0..2 {
        assert!(sync(&mut conn, 7, "abc").await.unwrap());
    }
    assert!(!sync(&mut conn, 8, "abc").await.unwrap());
    assert_eq!(db.count("SELECT row_count FROM sync_checkpoints").await, 10);
    let given_back = "SELECT count(*) FROM sync_checkpoints WHERE locked_by IS NULL AND last_synced_at IS NOT NULL";
    assert_eq!(db.count(given_back).await, 1);
}
