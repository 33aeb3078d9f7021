//! Diesel's migrations from several processes: one applies them, the others wait and go on.

use crate::bookings::execute;
use crate::cancel::dropped;
use advisory_runtime::migrations::{self, Error, Holder, KEY, Migrator, Report, Step};
use advisory_runtime::{Error as LockError, Request, Wait, blocking, session};
use advisory_tests::{Bouncer, Database, OwnServer, left_out, owns_server};
use diesel::connection::BoxableConnection;
use diesel::migration::{
    Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion,
    Result as MigrationResult,
};
use diesel::pg::Pg;
use diesel::{Connection as _, PgConnection};
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, deadpool};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::spawn_blocking;

/// The second is a real `CREATE INDEX CONCURRENTLY`; the first waits for the gate.
const MIGRATIONS: EmbeddedMigrations = embed_migrations!("tests/it/migrations");

const NAMES: [&str; 3] = [
    "2026-01-01-000000_accounts",
    "2026-01-02-000000_accounts_by_name",
    "2026-01-03-000000_balance",
];

const GATE: i64 = 999;

type Gate = session::OwnedLock<AsyncPgConnection>;

/// While it is held, the first migration waits.
async fn gate(db: &Database) -> Gate {
    let lock = session::acquire_owned(db.connect().await, GATE).await;
    lock.unwrap()
}

async fn open(gate: Gate) {
    drop(gate.release().await.unwrap());
}

/// A run that tells its steps.
fn telling<S: MigrationSource<Pg> + Send + 'static>(
    source: S,
) -> (Migrator<S>, UnboundedReceiver<Step>) {
    let (tell, told) = unbounded_channel();
    let migrator = Migrator::new(source).on_step(move |step| drop(tell.send(step.clone())));
    (migrator, told)
}

async fn until_it_waits(told: &mut UnboundedReceiver<Step>) -> Vec<Holder> {
    match told.recv().await.unwrap() {
        Step::Waiting { holders, .. } => holders,
        step => panic!("{step}"),
    }
}

async fn assert_migrated(db: &Database) {
    let valid =
        "SELECT count(*) FROM pg_index WHERE indexrelid = 'account_name'::regclass AND indisvalid";
    assert_eq!(db.count(valid).await, 1);
    assert_eq!(db.count("SELECT count(balance) FROM account").await, 1_000);
    let versions = "SELECT count(*) FROM __diesel_schema_migrations";
    assert_eq!(db.count(versions).await, 3);
    db.until_no_locks().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_ten_that_start_at_once_one_migrates_and_nine_wait_and_go_on() {
    let db = Database::create().await;
    let gate = gate(&db).await;
    let mut runs = Vec::new();
    for _ in 0..10 {
        let (migrator, told) = telling(MIGRATIONS);
        let url = db.url().to_owned();
        let run = tokio::spawn(async move { migrator.run(&url).await });
        runs.push((run, told));
    }
    db.until_waiting(GATE).await;
    let mut waiting = 0;
    for (_, told) in &mut runs {
        if let Step::Waiting { holders, .. } = told.recv().await.unwrap() {
            assert_eq!(holders.len(), 1, "{holders:?}");
            waiting += 1;
        }
    }
    assert_eq!(waiting, 9);
    open(gate).await;
    let mut migrated = 0;
    for (run, _) in runs {
        let report: Report = run.await.unwrap().unwrap();
        if !report.applied.is_empty() {
            assert_eq!(report.applied, NAMES);
            migrated += 1;
        }
    }
    assert_eq!(migrated, 1);
    assert_migrated(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_ten_blocking_runs_one_migrates_and_nine_wait_and_go_on() {
    let db = Database::create().await;
    let gate = gate(&db).await;
    let mut runs = Vec::new();
    for _ in 0..10 {
        let (migrator, told) = telling(MIGRATIONS);
        let url = db.url().to_owned();
        runs.push((spawn_blocking(move || migrator.run_blocking(&url)), told));
    }
    db.until_waiting(GATE).await;
    let mut waiting = 0;
    for (_, told) in &mut runs {
        waiting += usize::from(matches!(told.recv().await.unwrap(), Step::Waiting { .. }));
    }
    assert_eq!(waiting, 9);
    open(gate).await;
    let mut applied = Vec::new();
    for (run, _) in runs {
        applied.extend(run.await.unwrap().unwrap().applied);
    }
    assert_eq!(applied, NAMES);
    assert_migrated(&db).await;
    let url = db.url().to_owned();
    let again = spawn_blocking(move || migrations::blocking::run(&url, MIGRATIONS));
    assert_eq!(again.await.unwrap().unwrap(), Report::default());
}

#[tokio::test]
async fn it_says_for_whom_it_waits_and_what_it_runs() {
    let db = Database::create().await;
    let mut holder = db.connect().await;
    execute(&mut holder, "SET application_name = 'booking-service'")
        .await
        .unwrap();
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
        drop(holder.release().await.unwrap());
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
    let holder = session::acquire_owned(db.connect().await, KEY)
        .await
        .unwrap();
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
    // With nothing pending there is nothing to wait for.
    let report = migrations::run(db.url(), MIGRATIONS).await.unwrap();
    assert_eq!(report, Report::default());
    drop(holder);
    assert_migrated(&db).await;
}

#[tokio::test]
async fn the_key_is_what_the_page_says() {
    let db = Database::create().await;
    let hash = "SELECT ('x' || encode(substring(sha256('diesel_migrations') FOR 8), 'hex'))::bit(64)::bigint";
    assert_eq!(db.count(hash).await, KEY);
    assert_eq!(
        KEY, 8_120_370_389_078_587_295,
        "a changed key un-locks a fleet that is half upgraded"
    );
}

/// Migrations as a test writes them: a name, and its SQL.
#[derive(Clone)]
pub(crate) struct Written(pub(crate) Vec<(&'static str, &'static str)>);

struct One(&'static str, &'static str);

impl MigrationSource<Pg> for Written {
    fn migrations(&self) -> MigrationResult<Vec<Box<dyn Migration<Pg>>>> {
        let all = self.0.iter();
        Ok(all
            .map(|(name, sql)| Box::new(One(name, sql)) as _)
            .collect())
    }
}

impl Migration<Pg> for One {
    fn run(&self, conn: &mut dyn BoxableConnection<Pg>) -> MigrationResult<()> {
        Ok(conn.batch_execute(self.1)?)
    }

    fn revert(&self, _: &mut dyn BoxableConnection<Pg>) -> MigrationResult<()> {
        Ok(())
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        self
    }

    fn name(&self) -> &dyn MigrationName {
        self
    }
}

impl MigrationMetadata for One {
    fn run_in_transaction(&self) -> bool {
        !self.0.ends_with("concurrently")
    }
}

impl MigrationName for One {
    fn version(&self) -> MigrationVersion<'_> {
        MigrationVersion::from(self.0)
    }
}

impl fmt::Display for One {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

const END: &str = "SELECT pg_terminate_backend(pg_backend_pid())";

/// Both kinds of connections.
async fn both<S>(db: &Database, source: S) -> [Result<Report, Error>; 2]
where
    S: MigrationSource<Pg> + Clone + Send + 'static,
{
    let awaited = migrations::run(db.url(), source.clone()).await;
    let url = db.url().to_owned();
    let blocking = spawn_blocking(move || migrations::blocking::run(&url, source)).await;
    [awaited, blocking.unwrap()]
}

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
        assert!(
            matches!(&error, Error::Migration { migration, .. } if migration == third),
            "{error:?}"
        );
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
async fn a_lost_connection_says_what_was_applied() {
    let db = Database::create().await;
    let lost = Written(vec![
        ("1", "CREATE TABLE a (id int8)"),
        ("2", END),
        ("3", "SELECT 1"),
    ]);
    let [awaited, blocking] = both(&db, lost.clone()).await;
    for (error, applied) in [
        (awaited.unwrap_err(), &["1"][..]),
        (blocking.unwrap_err(), &[]),
    ] {
        assert_eq!(error.applied(), applied, "{error:?}");
        assert!(
            matches!(&error, Error::ConnectionLost { migration: Some(migration), .. } if migration == "2"),
            "{error:?}"
        );
        assert!(
            error.to_string().contains("run the migrations again"),
            "{error}"
        );
    }
    db.until_no_locks().await;
    // Between two migrations, or behind the last one.
    for source in [
        Written(vec![("5", "SELECT 1"), ("6", "SELECT 1")]),
        Written(vec![("7", "SELECT 1")]),
    ] {
        let (pids, of_pids) = std::sync::mpsc::channel();
        let first = source.0[0].0;
        let of_pids = Mutex::new(of_pids);
        let (killer, url) = (Arc::new(of_pids), db.url().to_owned());
        let migrator = Migrator::new(source).on_step(move |step| {
            if matches!(step, Step::Done { .. }) {
                let pid: i32 = killer.lock().unwrap().recv().unwrap();
                let sql = format!("SELECT pg_terminate_backend({pid}, 5000)");
                let mut other = PgConnection::establish(&url).unwrap();
                crate::blocking::execute(&mut other, &sql).unwrap();
            }
        });
        let mut conn = db.connect().await;
        pids.send(advisory_tests::pid_of(&mut conn).await).unwrap();
        let error = migrator.run_on(conn).await.unwrap_err();
        assert_eq!(error.applied(), [first], "{error:?}");
        assert!(
            matches!(
                &error,
                Error::ConnectionLost {
                    migration: None,
                    ..
                }
            ),
            "{error:?}"
        );
    }
    db.until_no_locks().await;
}

#[tokio::test]
async fn a_migration_that_releases_the_lock_ends_the_run() {
    let db = Database::create().await;
    let source = Written(vec![
        ("1 concurrently", "SELECT pg_advisory_unlock_all()"),
        ("2", "CREATE TABLE b (id int8)"),
    ]);
    let error = migrations::run(db.url(), source).await.unwrap_err();
    assert!(matches!(error, Error::LockLost { .. }), "{error:?}");
    assert_eq!(error.applied(), ["1 concurrently"]);
    assert_eq!(
        db.count("SELECT count(*) FROM pg_tables WHERE tablename = 'b'")
            .await,
        0
    );
}

#[tokio::test]
async fn one_that_is_killed_halfway_is_followed_by_another() {
    let db = Database::create().await;
    let gate = gate(&db).await;
    let first = migrations::run(db.url(), MIGRATIONS);
    let (migrator, mut told) = telling(MIGRATIONS);
    let second = migrator.run(db.url());
    let (first, second, ()) = tokio::join!(
        first,
        async {
            db.until_waiting(GATE).await;
            second.await
        },
        async {
            let holders = until_it_waits(&mut told).await;
            db.terminate(holders[0].pid).await;
            open(gate).await;
        }
    );
    let error = first.unwrap_err();
    assert!(matches!(error, Error::ConnectionLost { .. }), "{error:?}");
    assert_eq!(second.unwrap().applied, NAMES);
    assert_migrated(&db).await;
}

#[tokio::test]
async fn a_dropped_run_leaves_no_waiter_and_no_lock() {
    let db = Database::create().await;
    let holder = session::acquire_owned(db.connect().await, KEY)
        .await
        .unwrap();
    let (migrator, mut told) = telling(MIGRATIONS);
    dropped(migrator.run(db.url()), async {
        until_it_waits(&mut told).await;
    })
    .await;
    drop(holder.release().await.unwrap());
    db.until_quiet().await;
    // In a migration: that one is carried on to its end, and no other follows.
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
    let ended = tokio::spawn(async move { migrator.run(&url).await }).await;
    assert!(ended.unwrap_err().is_panic());
    db.until_no_locks().await;
    let report = migrations::run(db.url(), MIGRATIONS).await.unwrap();
    assert_eq!(report.applied, NAMES[1..]);
}

#[tokio::test]
async fn the_table_of_migrations_is_found_on_the_search_path() {
    let db = Database::create().await;
    db.run("CREATE SCHEMA \"My Schema\"").await;
    db.run("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = \"My Schema\"', current_database()); END $$")
        .await;
    let [first, second] = both(&db, Written(vec![("1", "SELECT 1")])).await;
    assert_eq!(first.unwrap().applied, ["1"]);
    assert_eq!(second.unwrap(), Report::default());
    let of_schema = "SELECT count(*) FROM \"My Schema\".__diesel_schema_migrations";
    assert_eq!(db.count(of_schema).await, 1);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_of_its_own() {
    let nowhere = "postgres://localhost:1/none";
    let error = migrations::run(nowhere, MIGRATIONS).await.unwrap_err();
    assert!(matches!(error, Error::Connect(_)), "{error:?}");
    let error = spawn_blocking(move || migrations::blocking::run(nowhere, MIGRATIONS)).await;
    let error = error.unwrap().unwrap_err();
    assert!(matches!(error, Error::Connect(_)), "{error:?}");
}

/// The connection's set-up can fail there by itself.
#[tokio::test]
async fn behind_a_pooler_in_transaction_mode_it_refuses_before_the_first_statement() {
    let db = Database::create().await;
    for settings in [
        "default_pool_size = 1",
        "default_pool_size = 3\nserver_round_robin = 1",
        "default_pool_size = 3\nmin_pool_size = 3",
    ] {
        let settings = format!("pool_mode = transaction\n{settings}");
        let bouncer = match Bouncer::start(&db, &settings).await {
            Ok(bouncer) => bouncer,
            Err(why) => return left_out("pgbouncer", why),
        };
        let url = bouncer.url(&db);
        for _ in 0..3 {
            let awaited = migrations::run(&url, MIGRATIONS).await;
            let blocking = {
                let url = url.clone();
                spawn_blocking(move || migrations::blocking::run(&url, MIGRATIONS)).await
            };
            for said in [awaited, blocking.unwrap()] {
                let error = said.expect_err(&settings);
                assert!(matches!(error, Error::Pooler), "{settings}: {error:?}");
                assert!(error.to_string().contains("the server itself"), "{error}");
            }
        }
        assert_eq!(
            db.count("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
                .await,
            0
        );
        db.until_no_locks().await;
    }
}

/// What they ask is answered without an error, so an operator finds nothing in the log to wonder about.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_and_a_blocking_run_write_nothing_into_the_servers_log() {
    if !owns_server() {
        return left_out("the server's log", "the server is somebody's own");
    }
    let server = OwnServer::start().await;
    let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
    for set in [
        "ALTER SYSTEM SET log_min_messages = warning",
        "SELECT pg_reload_conf()",
    ] {
        execute(&mut conn, set).await.unwrap();
    }
    let complaints = || {
        let levels = ["WARNING", "ERROR", "FATAL", "PANIC"];
        let log = server.log();
        let complaints = log
            .lines()
            .filter(|line| levels.iter().any(|level| line.contains(level)));
        complaints.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = complaints();
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(server.url());
    let pool = deadpool::Pool::builder(manager)
        .max_size(2)
        .build()
        .unwrap();
    session::verify(&pool).await.unwrap();
    let url = server.url().to_owned();
    let ran = spawn_blocking(move || {
        let connect = || PgConnection::establish(&url).unwrap();
        blocking::session::verify(&mut connect(), &mut connect()).unwrap();
        [(); 2].map(|()| {
            let source = Written(vec![("1", "CREATE TABLE a (id int8)")]);
            migrations::blocking::run(&url, source).unwrap().applied
        })
    });
    assert_eq!(ran.await.unwrap(), [vec!["1".to_owned()], vec![]]);
    assert_eq!(complaints(), before);
    // An error would have been seen.
    execute(&mut conn, "SELECT 1/0").await.unwrap_err();
    assert_eq!(complaints().len(), before.len() + 1);
}

#[tokio::test]
async fn behind_a_pooler_in_session_mode_it_runs() {
    let db = Database::create().await;
    let bouncer = match Bouncer::start(&db, "pool_mode = session\ndefault_pool_size = 2").await {
        Ok(bouncer) => bouncer,
        Err(why) => return left_out("pgbouncer", why),
    };
    let report = migrations::run(&bouncer.url(&db), MIGRATIONS)
        .await
        .unwrap();
    assert_eq!(report.applied, NAMES);
    assert_migrated(&db).await;
}

/// A program that runs them by hand excludes those that do not.
#[tokio::test]
async fn the_key_can_be_locked_by_hand() {
    let db = Database::create().await;
    let mut holder = db.connect().await;
    execute(&mut holder, &format!("SELECT pg_advisory_lock({KEY})"))
        .await
        .unwrap();
    let error = Migrator::new(MIGRATIONS)
        .wait(Duration::ZERO)
        .run(db.url())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    let mut conn = db.connect().await;
    let busy = session::acquire(&mut conn, Request::new(KEY).wait(Wait::Never)).await;
    assert!(matches!(
        busy.map(drop),
        Err(LockError::NotAvailable { .. })
    ));
}
