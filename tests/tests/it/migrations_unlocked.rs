//! A run of migrations next to a program that applies them without the lock, such as an older
//! version of the same service.

use crate::gated_migrations::telling;
use advisory_runtime::blocking;
use advisory_runtime::migrations::{self, Error, Step};
use advisory_tests::bookings::execute;
use advisory_tests::futures::{spawn, spawn_blocking};
use advisory_tests::written_migrations::Written;
use advisory_tests::{Database, assert_matches};
use diesel_async::AsyncPgConnection;
use std::time::Duration;

const SETUP: (&str, &str) = ("0", "CREATE TABLE first (id int8)");

fn source() -> Written {
    Written(vec![
        SETUP,
        ("1", "CREATE TABLE a (id int8)"),
        ("2", "CREATE TABLE b (id int8)"),
        ("3", "CREATE TABLE c (id int8)"),
    ])
}

/// Applies some like Diesel, up to the commit.
async fn begin_unlocked(db: &Database, versions: &[(&str, &str)]) -> AsyncPgConnection {
    let mut conn = db.connect().await;
    execute(&mut conn, "BEGIN").await.unwrap();
    for (version, sql) in versions {
        let record = format!("INSERT INTO __diesel_schema_migrations VALUES ('{version}')");
        execute(&mut conn, sql).await.unwrap();
        execute(&mut conn, &record).await.unwrap();
    }
    conn
}

/// Waits until a statement of a migration waits for the other transaction.
async fn until_it_is_in_the_way(db: &Database) {
    let missing = "SELECT 'nobody waits' WHERE NOT EXISTS (SELECT FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'CREATE TABLE a%')";
    db.until_empty(Duration::from_secs(30), "a migration that waits", missing)
        .await;
}

#[tokio::test]
async fn a_migration_that_another_program_has_applied_is_skipped() {
    for is_blocking in [false, true] {
        let db = Database::create().await;
        migrations::run(db.url(), Written(vec![SETUP]))
            .await
            .unwrap();
        let all = source();
        let mut other = begin_unlocked(&db, &all.0[1..3]).await;
        let (migrator, mut told) = telling(all);
        let url = db.url().to_owned();
        let run = if is_blocking {
            spawn_blocking(move || blocking::migrations::run(&url, migrator))
        } else {
            spawn(async move { migrator.run(&url).await })
        };
        until_it_is_in_the_way(&db).await;
        execute(&mut other, "COMMIT").await.unwrap();
        let report = run.await.unwrap().unwrap();
        assert_eq!(report.applied, ["3"]);
        let mut steps = Vec::new();
        while let Some(step) = told.recv().await {
            if let Step::Running { .. } | Step::Skipped { .. } = step {
                steps.push(step.to_string());
            }
        }
        let expected = [
            "running `1` (1 of 3)",
            "`1` was applied by another program",
            "running `3` (1 of 1)",
        ];
        assert_eq!(steps, expected);
        let versions = "SELECT count(*) FROM __diesel_schema_migrations";
        assert_eq!(db.count(versions).await, 4);
        db.until_no_locks().await;
    }
}

#[tokio::test]
async fn a_migration_that_fails_because_of_another_program_is_named() {
    let db = Database::create().await;
    migrations::run(db.url(), Written(vec![SETUP]))
        .await
        .unwrap();
    // It creates the table, and records no migration.
    let mut other = db.connect().await;
    execute(&mut other, "BEGIN").await.unwrap();
    execute(&mut other, "CREATE TABLE a (id int8)")
        .await
        .unwrap();
    let url = db.url().to_owned();
    let run = spawn(async move { migrations::run(&url, source()).await });
    until_it_is_in_the_way(&db).await;
    execute(&mut other, "COMMIT").await.unwrap();
    let error = run.await.unwrap().unwrap_err();
    assert_matches!(&error, Error::Migration { migration, .. } if migration == "1");
    db.until_no_locks().await;
}

/// As if the server's lock table were full: nothing more can be read then.
#[tokio::test]
async fn a_failure_is_reported_whole_if_the_list_cannot_be_read() {
    let db = Database::create().await;
    let unreadable = "CREATE TEMP VIEW __diesel_schema_migrations AS SELECT (1 / 0)::text AS version, now()::timestamp AS run_on; \
                      CREATE RULE unrecorded AS ON INSERT TO __diesel_schema_migrations DO INSTEAD NOTHING";
    let all = Written(vec![
        SETUP,
        ("1", unreadable),
        ("2", "DROP TABLE is_not_there"),
    ]);
    let error = migrations::run(db.url(), all).await.unwrap_err();
    assert_eq!(error.applied(), ["0", "1"]);
    let Error::Migration { migration, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(migration, "2");
}
