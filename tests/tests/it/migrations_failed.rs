//! A run of migrations that fails: its error, and the state that it leaves.

use crate::gated_migrations::{
    GATE, MIGRATIONS, NAMES, both, gate, hold, open, telling, until_it_waits,
};
use advisory_runtime::blocking;
use advisory_runtime::migrations::{self, Error, KEY, Migrator, Step};
use advisory_tests::futures::{dropped, spawn, spawn_blocking};
use advisory_tests::written_migrations::Written;
use advisory_tests::{Database, assert_matches};
use diesel::{Connection as _, RunQueryDsl as _};

#[tokio::test]
async fn a_migration_that_fails_is_named_and_the_lock_is_released() {
    for is_concurrent in [false, true] {
        let db = Database::create().await;
        let third = if is_concurrent { "3 concurrently" } else { "3" };
        let fails = Written(vec![
            ("2", "CREATE TABLE b (id int8)"),
            (third, "CREATE TABLE d (id int8); SELECT 1/0"),
            ("1", "CREATE TABLE a (id int8)"),
            ("4", "CREATE TABLE c (id int8)"),
        ]);
        let [awaited, blocking] = both(&db, fails.clone()).await;
        let error = awaited.unwrap_err();
        assert_eq!(error.applied(), ["1", "2"]);
        assert_matches!(&error, Error::Migration { migration, .. } if migration == third);
        let text = error.to_string();
        assert!(text.contains("division by zero"), "{text}");
        assert!(text.ends_with("applied before: `1`, `2`"), "{text}");
        let error = blocking.unwrap_err();
        assert!(
            error.to_string().ends_with("nothing was applied before"),
            "{error}"
        );
        assert_eq!(
            db.count("SELECT count(*) FROM pg_tables WHERE tablename IN ('c', 'd')")
                .await,
            0
        );
        db.until_no_locks().await;
        let mut mended = fails;
        mended.0[1].1 = "SELECT 1";
        let report = migrations::run(db.url(), mended).await.unwrap();
        assert_eq!(report.applied, [third, "4"]);
    }
}

#[tokio::test]
async fn a_migration_that_releases_the_lock_ends_the_run() {
    let db = Database::create().await;
    let source = Written(vec![
        ("1 concurrently", "SELECT pg_advisory_unlock_all()"),
        ("2", "CREATE TABLE b (id int8)"),
    ]);
    let error = migrations::run(db.url(), source).await.unwrap_err();
    assert_matches!(error, Error::LockLost { .. });
    assert_eq!(error.applied(), ["1 concurrently"]);
    assert_eq!(
        db.count("SELECT count(*) FROM pg_tables WHERE tablename = 'b'")
            .await,
        0
    );
}

#[tokio::test]
async fn a_dropped_run_leaves_no_waiter_and_no_lock() {
    let db = Database::create().await;
    let holder = hold(&db, KEY).await;
    let (migrator, mut told) = telling(MIGRATIONS);
    dropped(migrator.run(db.url()), async {
        until_it_waits(&mut told).await;
    })
    .await;
    open(holder).await;
    db.until_quiet().await;
    // In a migration: that one is completed, and no other follows.
    let gate = gate(&db).await;
    dropped(
        migrations::run(db.url(), MIGRATIONS),
        db.until_waiting(GATE),
    )
    .await;
    assert_eq!(
        db.locks().await.iter().filter(|lock| lock.granted).count(),
        2
    );
    open(gate).await;
    db.until_no_locks().await;
    let versions = "SELECT count(*) FROM __diesel_schema_migrations";
    assert_eq!(db.count(versions).await, 1);
    let report = migrations::run(db.url(), MIGRATIONS).await.unwrap();
    assert_eq!(report.applied, NAMES[1..]);
}

#[tokio::test]
async fn a_callback_that_panics_releases_the_lock() {
    let db = Database::create().await;
    let migrator = Migrator::new(MIGRATIONS).on_step(|step| {
        assert!(
            !matches!(step, Step::Running { number: 2, .. }),
            "the callback's own panic"
        );
    });
    let url = db.url().to_owned();
    let ended = spawn(async move { migrator.run(&url).await }).await;
    assert!(ended.unwrap_err().is_panic());
    db.until_no_locks().await;
    let report = migrations::run(db.url(), MIGRATIONS).await.unwrap();
    assert_eq!(report.applied, NAMES[1..]);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_of_its_own() {
    let nowhere = "postgres://me:secret@localhost:1/none";
    let error = migrations::run(nowhere, MIGRATIONS).await.unwrap_err();
    assert_matches!(&error, Error::Connect { server, .. } if server == "localhost:1");
    let text = error.to_string();
    assert!(text.contains("could not connect to localhost:1"), "{text}");
    assert!(!text.contains("secret"), "{text}");
    let error = spawn_blocking(move || blocking::migrations::run(nowhere, MIGRATIONS)).await;
    let error = error.unwrap().unwrap_err();
    assert_matches!(error, Error::Connect { .. });
    assert!(!error.to_string().contains('\n'), "{error}");
    let db = Database::create().await;
    let url = format!("{}?sslmode=require", db.url());
    let error = migrations::run(&url, MIGRATIONS).await.unwrap_err();
    assert!(error.to_string().contains("`Migrator::run_on`"), "{error}");
}

/// The name of a database can equal that of a prepared statement, which identifies a pooler.
#[tokio::test]
async fn a_database_that_is_not_there_is_not_a_pooler() {
    let db = Database::create().await;
    let (server, _) = db.url().rsplit_once('/').unwrap();
    let url = format!("{server}/s1");
    let error = migrations::run(&url, MIGRATIONS).await.unwrap_err();
    assert_matches!(error, Error::Connect { .. });
}

/// What it did is not committed, and the connection's next user would work in its transaction.
#[tokio::test]
async fn a_migration_that_leaves_a_transaction_open_is_not_applied() {
    let db = Database::create().await;
    let open = Written(vec![
        ("1", "CREATE TABLE a (id int8)"),
        ("2 concurrently", "BEGIN; CREATE TABLE b (id int8)"),
        ("3", "CREATE TABLE c (id int8)"),
    ]);
    let [awaited, blocking] = both(&db, open).await;
    for (error, applied) in [(awaited, &["1"][..]), (blocking, &[])] {
        let error = error.unwrap_err();
        assert_eq!(error.applied(), applied, "{error:?}");
        let text = error.to_string();
        let named = "migration `2 concurrently` failed: it left a transaction open";
        assert!(text.contains(named), "{text}");
    }
    let tables = "SELECT count(*) FROM pg_tables WHERE tablename IN ('b', 'c')";
    assert_eq!(db.count(tables).await, 0);
    let versions = "SELECT count(*) FROM __diesel_schema_migrations";
    assert_eq!(db.count(versions).await, 1);
    let migrator = Migrator::new(MIGRATIONS).before(|conn| Ok(conn.batch_execute("BEGIN")?));
    let error = migrator.run(db.url()).await.unwrap_err();
    assert_matches!(error, Error::Before(_));
    db.until_no_locks().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_in_a_tests_transaction_leaves_it_open() {
    let db = Database::create().await;
    let fails = Written(vec![("1", "CREATE TABLE a (id int8)"), ("2", "SELECT 1/0")]);
    let mut conn = db.establish();
    conn.begin_test_transaction().unwrap();
    let error = blocking::migrations::run_on(&mut conn, fails).unwrap_err();
    assert_matches!(error, Error::Migration { .. });
    diesel::sql_query("CREATE TABLE e (id int8)")
        .execute(&mut conn)
        .unwrap();
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(
        db.count(tables).await,
        0,
        "nothing of the test is committed"
    );
}
