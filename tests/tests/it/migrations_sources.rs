//! Migrations of several sources under one lock, code that runs before and after them, a part of
//! them, and the connection afterwards.

use crate::gated_migrations::{MIGRATIONS, NAMES, start};
use advisory_runtime::blocking;
use advisory_runtime::migrations::{self, Error, KEY, Migrator, Report};
use advisory_tests::futures::spawn_blocking;
use advisory_tests::written_migrations::Written;
use advisory_tests::{Database, LockedKey, assert_matches, pid_of};
use diesel::connection::BoxableConnection;
use diesel::pg::Pg;
use diesel::{PgConnection, RunQueryDsl};
use diesel_async::AsyncPgConnection;
use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;

/// One before and one after those of `MIGRATIONS`.
fn library() -> Written {
    Written(vec![
        (
            "20270101000000",
            "CREATE TABLE ledger (id int8 REFERENCES account)",
        ),
        ("20250101000000", "CREATE TABLE audit (id int8)"),
    ])
}

#[tokio::test]
async fn the_migrations_of_all_sources_run_in_one_order() {
    let all = [
        "20250101000000",
        NAMES[0],
        NAMES[1],
        NAMES[2],
        "20270101000000",
    ];
    let db = Database::create().await;
    let run = Migrator::new(MIGRATIONS).and(library()).run(db.url()).await;
    assert_eq!(run.unwrap().applied, all);
    let again = Migrator::new(library()).and(MIGRATIONS).run(db.url()).await;
    assert_eq!(again.unwrap(), Report::default());
    // One source alone has its own pending migrations.
    let more = Written(vec![("20280101000000", "SELECT 1")]);
    let blocking = start(&db, true, Migrator::new(library()).and(more));
    assert_eq!(blocking.await.unwrap().unwrap().applied, ["20280101000000"]);
    db.until_no_locks().await;
}

#[tokio::test]
async fn two_migrations_of_one_version_are_refused() {
    let db = Database::create().await;
    let same = Written(vec![("20260101000000", "CREATE TABLE account (id int8)")]);
    let error = Migrator::new(MIGRATIONS).and(same).run(db.url()).await;
    let error = error.unwrap_err();
    assert_matches!(error, Error::Source(_));
    let text = error.to_string();
    assert!(
        text.contains("`20260101000000`") && text.contains(NAMES[0]),
        "{text}"
    );
    assert_eq!(
        db.count("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
            .await,
        0
    );
    // The same migration twice, for example if two libraries include a third one's.
    let twice = Migrator::new(MIGRATIONS)
        .and(MIGRATIONS)
        .run(db.url())
        .await;
    assert_eq!(twice.unwrap().applied, NAMES);
}

/// Marks the first as applied, as in a database that another tool has started.
fn mark(conn: &mut dyn BoxableConnection<Pg>) -> diesel::migration::Result<()> {
    const HELD: &str = "SELECT 1 / count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()";
    conn.batch_execute(HELD)?;
    conn.batch_execute("INSERT INTO __diesel_schema_migrations VALUES ('1')")?;
    // The connection itself, for queries.
    let query = diesel::sql_query("CREATE TABLE hooked AS SELECT 1");
    if let Some(conn) = conn.downcast_mut::<PgConnection>() {
        query.execute(conn)?;
    } else if let Some(conn) = conn.downcast_mut::<AsyncConnectionWrapper<AsyncPgConnection>>() {
        query.execute(conn)?;
    }
    Ok(())
}

const HOOKED: &str = "INSERT INTO hooked VALUES (2)";

#[tokio::test]
async fn what_runs_before_them_is_under_the_lock_and_can_mark_them() {
    for is_blocking in [false, true] {
        let db = Database::create().await;
        let source = || Written(vec![("1", "SELECT 1/0"), ("2", "CREATE TABLE b (id int8)")]);
        let run = async |migrator: Migrator| start(&db, is_blocking, migrator).await.unwrap();
        let error = run(Migrator::new(source())
            .before(|conn| Ok(conn.batch_execute("BEGIN; SELECT nonsense")?)))
        .await
        .unwrap_err();
        assert_matches!(error, Error::Before(_));
        assert!(error.to_string().contains("nonsense"), "{error}");
        db.until_no_locks().await;
        let report = run(Migrator::new(source()).before(mark)).await.unwrap();
        assert_eq!(report.applied, ["2"]);
        assert_eq!(db.count("SELECT count(*) FROM hooked").await, 1);
        // Neither runs if nothing is pending.
        let idle = Migrator::new(source()).before(|_| panic!("nothing is pending"));
        let idle = idle.after(|_| panic!("nothing is pending"));
        assert_eq!(run(idle).await.unwrap(), Report::default());
        let always = || Migrator::new(source()).always();
        let report = run(always().before(|conn| Ok(conn.batch_execute(HOOKED)?))).await;
        assert_eq!(report.unwrap().applied, [""; 0]);
        assert_eq!(db.count("SELECT count(*) FROM hooked").await, 2);
        run(always().after(mark_after)).await.unwrap();
        assert_eq!(db.count("SELECT count(*) FROM hooked").await, 3);
        db.until_no_locks().await;
    }
}

fn mark_after(conn: &mut dyn BoxableConnection<Pg>) -> diesel::migration::Result<()> {
    const HELD: &str = "INSERT INTO hooked SELECT 1 / count(*) + (SELECT count(*) FROM b) FROM pg_locks \
                        WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()";
    Ok(conn.batch_execute(HELD)?)
}

#[tokio::test]
async fn what_runs_after_them_is_under_the_lock_and_its_failure_keeps_them() {
    let db = Database::create().await;
    let source = || {
        Written(vec![
            ("1", "CREATE TABLE hooked (id int8)"),
            ("2", "CREATE TABLE b ()"),
        ])
    };
    let failing = Migrator::new(source()).after(|conn| Ok(conn.batch_execute("SELECT 1 / 0")?));
    let error = failing.run(db.url()).await.unwrap_err();
    assert_matches!(error, Error::After { .. });
    assert_eq!(error.applied(), ["1", "2"]);
    let text = error.to_string();
    assert!(
        text.contains("division by zero") && text.ends_with("applied before: `1`, `2`"),
        "{text}"
    );
    db.until_no_locks().await;
    let again = Migrator::new(source()).always().after(mark_after);
    assert_eq!(again.run(db.url()).await.unwrap().applied, [""; 0]);
    assert_eq!(db.count("SELECT id FROM hooked").await, 1);
    // It does not run after a migration that fails.
    let fails = Written(vec![("3", "SELECT 1 / 0")]);
    let failing = Migrator::new(fails).after(|_| panic!("a migration has failed"));
    let error = failing.run(db.url()).await.unwrap_err();
    assert_matches!(error, Error::Migration { .. });
}

#[tokio::test]
async fn a_part_of_the_pending_migrations_is_applied() {
    let db = Database::create().await;
    let next = |count| Migrator::new(MIGRATIONS).apply_next(count);
    assert_eq!(next(0).run(db.url()).await.unwrap(), Report::default());
    assert_eq!(next(2).run(db.url()).await.unwrap().applied, NAMES[..2]);
    let last = start(&db, true, next(2)).await;
    assert_eq!(last.unwrap().unwrap().applied, NAMES[2..]);
    db.until_no_locks().await;
}

#[tokio::test]
async fn the_connection_comes_back_without_the_lock() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    let pid = pid_of(&mut conn).await;
    for expected in [&NAMES[..], &[]] {
        let (report, back) = Migrator::new(MIGRATIONS).run_on(conn).await.unwrap();
        conn = back;
        assert_eq!(report.applied, expected);
        assert_eq!(pid_of(&mut conn).await, pid);
        assert_eq!(db.locks().await, []);
    }
    drop(conn);
    db.until_quiet().await;
}

/// Also after an error, and after a panic.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_connection_stays_usable_without_the_lock() {
    let db = Database::create().await;
    let mut conn = db.establish();
    let fails = Written(vec![("1", "SELECT 1"), ("2", "SELECT 1/0")]);
    let error = blocking::migrations::run_on(&mut conn, fails.clone());
    let error = error.unwrap_err();
    assert_eq!(error.applied(), ["1"], "{error:?}");
    assert_eq!(db.locks().await, []);
    let (mut conn, panicked) = spawn_blocking(move || {
        let run = std::panic::AssertUnwindSafe(|| {
            let migrator = Migrator::new(fails).on_step(|step| {
                assert!(
                    !matches!(step, migrations::Step::Running { .. }),
                    "the callback's own panic"
                );
            });
            drop(blocking::migrations::run_on(&mut conn, migrator));
        });
        let panicked = std::panic::catch_unwind(run).is_err();
        (conn, panicked)
    })
    .await
    .unwrap();
    assert!(panicked);
    assert_eq!(db.locks().await, []);
    let mended = Written(vec![("1", "SELECT 1"), ("2", "SELECT 2")]);
    let report = blocking::migrations::run_on(&mut conn, mended).unwrap();
    assert_eq!(report.applied, ["2"]);
    advisory_tests::blocking::execute(&mut conn, "SELECT 1").unwrap();
    assert!(
        !db.locks()
            .await
            .iter()
            .any(|lock| lock.key == LockedKey::Bigint(KEY))
    );
}
