//! Session-level locks, pools and migrations when the primary dies under them.

use crate::gated_migrations::{GATE, MIGRATIONS, NAMES};
use advisory_runtime::{Error, migrations, session};
use advisory_tests::failover::{GENEROUS, connect, either, number, primary, until};
use advisory_tests::futures::spawn;
use advisory_tests::{Database, assert_error};
use diesel_async::SimpleAsyncConnection;
use std::time::Instant;

const ROOM: i64 = 7;

const WAITS: &str = "EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)";

#[tokio::test]
async fn a_session_lock_ends_with_its_primary() {
    let Some(primary) = primary().await else {
        return;
    };
    let standby = primary.follow().await;
    let url = either(&primary, &standby);
    let pool = Database::deadpool_at(url, 3);
    let holder = session::acquire_from(&pool, ROOM).await.unwrap();
    // One more is idle in the pool.
    drop((pool.get().await.unwrap(), pool.get().await.unwrap()));
    let waiting = spawn({
        let mut conn = connect(&primary).await;
        async move { session::acquire(&mut conn, ROOM).await.map(|_| ()) }
    });
    until(&mut connect(&primary).await, WAITS).await;
    primary.stop("immediate").await;
    let waited = waiting.await.unwrap();
    assert_error!(waited, Database);
    // Nobody is told that the lock was held to the end.
    let ended = holder.finish(Ok::<_, Error>(())).await.map(|_| ());
    assert_error!(ended, LockLost);
    // Without a primary there is no lock.
    let refused = session::acquire_from(&pool, ROOM).await.map(|_| ());
    assert_error!(refused, Pool);
    standby.promote().await;
    // The pool has replaced every connection.
    let mut guards = Vec::new();
    for key in [ROOM, ROOM + 1, ROOM + 2] {
        guards.push(session::acquire_from(&pool, key).await.unwrap());
    }
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    assert_eq!(number(&mut connect(&standby).await, locks).await, 3);
    for guard in guards {
        drop(guard.finish(Ok::<_, Error>(())).await.unwrap());
    }
    assert_eq!(number(&mut connect(&standby).await, locks).await, 0);
}

/// The first migration is under way when the primary dies.
#[tokio::test]
async fn migrations_resume_on_the_new_primary() {
    let Some(primary) = primary().await else {
        return;
    };
    let standby = primary.follow().await;
    let url = either(&primary, &standby);
    let gate = session::acquire_owned(connect(&primary).await, GATE).await;
    let run = spawn({
        let url = url.clone();
        async move { migrations::run(&url, MIGRATIONS).await }
    });
    until(&mut connect(&primary).await, WAITS).await;
    primary.stop("immediate").await;
    let error = run.await.unwrap().unwrap_err();
    assert!(error.applied().is_empty(), "{error}");
    drop(gate);
    standby.promote().await;
    let since = Instant::now();
    let report = migrations::run(&url, MIGRATIONS).await.unwrap();
    assert!(since.elapsed() < GENEROUS);
    assert_eq!(report.applied, NAMES);
    let again = migrations::run(&url, MIGRATIONS).await.unwrap();
    assert!(again.applied.is_empty());
    let mut conn = connect(&standby).await;
    conn.batch_execute("SELECT FROM __diesel_schema_migrations")
        .await
        .unwrap();
}
