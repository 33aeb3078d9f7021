//! The live view of a database, and sessions that it shows.

use crate::bookings::run;
use crate::{Database, left_out};
use advisory_runtime::Key;
use advisory_runtime::monitor::{self, Backend, Lock, Locks, Names};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use tokio::task::JoinHandle;

/// The view of an administrator without a program.
pub async fn look(db: &Database) -> Locks {
    look_with(db, &Names::none()).await
}

/// The view of an administrator with the names of a program's locks.
pub async fn look_with(db: &Database, names: &Names) -> Locks {
    monitor::locks(&mut db.connect().await, names)
        .await
        .unwrap()
}

/// The lock on a key, which the view must show.
pub fn lock(locks: &Locks, key: impl Into<Key>) -> &Lock {
    let key = key.into();
    let found = locks.locks.iter().find(|lock| lock.key == key);
    found.unwrap_or_else(|| panic!("no lock {key}: {locks:#?}"))
}

/// The backend with a process id, which the view must show.
pub fn backend(locks: &Locks, pid: i32) -> &Backend {
    let found = locks.backend(pid);
    found.unwrap_or_else(|| panic!("no backend {pid}: {locks:#?}"))
}

/// Runs a statement that waits, and returns the connection.
pub fn waits(mut conn: AsyncPgConnection, sql: impl Into<String>) -> JoinHandle<AsyncPgConnection> {
    let sql = sql.into();
    tokio::spawn(async move {
        // Either its own end, or that of its session, ends the wait.
        drop(conn.batch_execute(&sql).await);
        conn
    })
}

/// Waits until this many backends of the database wait for a lock of any kind. Then `pg_locks`
/// shows since when, which it does a moment after it shows the waiter.
pub async fn until_waiters(db: &Database, count: i32) {
    let short = format!(
        "SELECT 'fewer' FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
         AND backend_type = 'client backend' HAVING count(*) < {count}"
    );
    db.until_none("waiters", &short).await;
}

/// Prepares a transaction with the lock 5, if the server does that. Returns the connection that has
/// prepared it.
pub async fn prepared(db: &Database, gid: &str) -> Option<AsyncPgConnection> {
    let most = "SELECT setting::int FROM pg_settings WHERE name = 'max_prepared_transactions'";
    if db.count(most).await == 0 {
        let why = "the server has max_prepared_transactions = 0";
        left_out("prepared transactions", why);
        return None;
    }
    let mut conn = db.connect().await;
    let prepare = format!("PREPARE TRANSACTION '{gid}'");
    for sql in ["BEGIN", "SELECT pg_advisory_xact_lock(5)", &prepare] {
        run(&mut conn, sql).await;
    }
    Some(conn)
}
