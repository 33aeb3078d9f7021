//! A run of migrations that waits for another one: its report of the holder, how long it waits, and
//! what the same program does without the lock.

use crate::gated_migrations::{
    MIGRATIONS, NAMES, assert_migrated, hold, open, start, telling, until_it_waits,
};
use advisory_runtime::migrations::{self, Error, KEY, Migrator, Report, Step};
use advisory_runtime::session;
use advisory_tests::bookings::{execute, run};
use advisory_tests::monitor::until_waiters;
use advisory_tests::written_migrations::Written;
use advisory_tests::{Database, assert_matches};
use diesel_async::AsyncPgConnection;
use std::time::Duration;

#[tokio::test]
async fn it_says_for_whom_it_waits_and_what_it_runs() {
    let db = Database::create().await;
    let mut holder = db.connect().await;
    run(&mut holder, "SET application_name = 'booking-service'").await;
    let pid = advisory_tests::pid_of(&mut holder).await;
    let holder = session::acquire_owned(holder, KEY).await.unwrap();
    let (migrator, mut told) = telling(MIGRATIONS);
    let (report, ()) = tokio::join!(migrator.run(db.url()), async {
        let [seen] = &until_it_waits(&mut told).await[..] else {
            panic!("one holder");
        };
        assert_eq!((seen.pid, &*seen.application), (pid, "booking-service"));
        let [later] = &until_it_waits(&mut told).await[..] else {
            panic!("one holder");
        };
        assert!(later.since > seen.since && later.since < Duration::from_secs(60));
        let said = format!("process {pid} (`booking-service`");
        assert!(later.to_string().starts_with(&said), "{later}");
        open(holder).await;
    });
    let report = report.unwrap();
    assert_eq!(report.applied, NAMES);
    assert!(report.waited >= Duration::from_millis(900), "{report:?}");
    let mut steps = Vec::new();
    while let Some(step) = told.recv().await {
        match step {
            Step::Waiting { .. } => {}
            Step::Locked { pending, .. } => steps.push(format!("locked: {pending}")),
            Step::Running { number, of, .. } => steps.push(format!("running {number} of {of}")),
            Step::Done { migration, .. } => steps.push(migration),
            step => panic!("{step}"),
        }
    }
    let expected = [
        "locked: 3",
        "running 1 of 3",
        NAMES[0],
        "running 2 of 3",
        NAMES[1],
        "running 3 of 3",
        NAMES[2],
    ];
    assert_eq!(steps, expected);
    assert_migrated(&db).await;
}

#[tokio::test]
async fn a_wait_has_an_end_and_names_the_holder() {
    let db = Database::create().await;
    let holder = hold(&db, KEY).await;
    for wait in [Duration::ZERO, Duration::from_millis(300)] {
        let error = Migrator::new(MIGRATIONS)
            .wait(wait)
            .run(db.url())
            .await
            .unwrap_err();
        let text = error.to_string();
        let Error::TimedOut {
            holders, waited, ..
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(holders.len(), 1);
        assert!(waited >= wait);
        assert!(
            text.contains(&format!("held by process {}", holders[0].pid)),
            "{text}"
        );
    }
    // Another key is another lock.
    let report = Migrator::new(MIGRATIONS)
        .key(7)
        .wait(Duration::ZERO)
        .run(db.url())
        .await;
    assert_eq!(report.unwrap().applied, NAMES);
    // If nothing is pending, there is nothing to wait for.
    let report = migrations::run(db.url(), MIGRATIONS).await.unwrap();
    assert_eq!(report, Report::default());
    drop(holder);
    assert_migrated(&db).await;
}

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
        let run = start(&db, is_blocking, migrator);
        until_waiters(&db, 1).await;
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
    run(&mut other, "CREATE TABLE a (id int8)").await;
    let run = start(&db, false, source());
    until_waiters(&db, 1).await;
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
