//! Three migrations, the first of which waits for a gate, and runs of them.

use advisory_runtime::migrations::{Error, Holder, Migrator, Report, Step};
use advisory_runtime::{OwnedLockGuard, blocking, session};
use advisory_tests::Database;
use advisory_tests::futures::{spawn, spawn_blocking};
use diesel::migration::MigrationSource;
use diesel::pg::Pg;
use diesel_async::AsyncPgConnection;
use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

/// The second is a real `CREATE INDEX CONCURRENTLY`; the first waits for the gate.
pub(crate) const MIGRATIONS: EmbeddedMigrations = embed_migrations!("tests/it/migrations");

pub(crate) const NAMES: [&str; 3] = [
    "2026-01-01-000000_accounts",
    "2026-01-02-000000_accounts_by_name",
    "2026-01-03-000000_balance",
];

pub(crate) const GATE: i64 = 999;

pub(crate) type Gate = OwnedLockGuard<AsyncPgConnection>;

/// While it is held, the first migration waits.
pub(crate) async fn gate(db: &Database) -> Gate {
    hold(db, GATE).await
}

/// Holds a lock on a connection of its own.
pub(crate) async fn hold(db: &Database, key: i64) -> Gate {
    let lock = session::acquire_owned(db.connect().await, key).await;
    lock.unwrap()
}

pub(crate) async fn open(gate: Gate) {
    drop(
        gate.finish(Ok::<_, advisory_runtime::Error>(()))
            .await
            .unwrap(),
    );
}

pub(crate) fn telling(
    source: impl MigrationSource<Pg> + Send + 'static,
) -> (Migrator, UnboundedReceiver<Step>) {
    let (tell, told) = unbounded_channel();
    let migrator = Migrator::new(source).on_step(move |step| drop(tell.send(step.clone())));
    (migrator, told)
}

pub(crate) async fn until_it_waits(told: &mut UnboundedReceiver<Step>) -> Vec<Holder> {
    match told.recv().await.unwrap() {
        Step::Waiting { holders, .. } => holders,
        step => panic!("{step}"),
    }
}

pub(crate) async fn assert_migrated(db: &Database) {
    let valid =
        "SELECT count(*) FROM pg_index WHERE indexrelid = 'account_name'::regclass AND indisvalid";
    assert_eq!(db.count(valid).await, 1);
    assert_eq!(db.count("SELECT count(balance) FROM account").await, 1_000);
    let versions = "SELECT count(*) FROM __diesel_schema_migrations";
    assert_eq!(db.count(versions).await, 3);
    db.until_no_locks().await;
}

/// Begins a run, on a connection of either kind of Diesel.
pub(crate) fn start(
    db: &Database,
    is_blocking: bool,
    migrations: impl Into<Migrator>,
) -> JoinHandle<Result<Report, Error>> {
    let (url, migrator) = (db.url().to_owned(), migrations.into());
    if is_blocking {
        spawn_blocking(move || blocking::migrations::run(&url, migrator))
    } else {
        spawn(async move { migrator.run(&url).await })
    }
}

pub(crate) async fn both<S>(db: &Database, source: S) -> [Result<Report, Error>; 2]
where
    S: MigrationSource<Pg> + Clone + Send + 'static,
{
    let awaited = start(db, false, source.clone()).await;
    let blocking = start(db, true, source).await;
    [awaited.unwrap(), blocking.unwrap()]
}
