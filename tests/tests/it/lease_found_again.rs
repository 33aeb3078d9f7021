//! A grant whose answer was lost is found by a later try, which relies on it for no longer than the server keeps it.

use crate::lease::{database, key, until_refused};
use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::Wait;
use advisory_runtime::lease::{Leases, Request, Table};
use advisory_tests::Proxy;
use diesel_async::SimpleAsyncConnection;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use std::time::Duration;

const GENEROUS: Duration = Duration::from_secs(60);
/// The advisory lock for which the candidate's writes wait.
const GATE: i64 = 42;
const CLOSE: &str = "SELECT pg_advisory_lock(42)";
const OPEN: &str = "SELECT pg_advisory_unlock(42)";

#[tokio::test]
async fn a_grant_found_by_a_later_try_is_renewed_in_time() {
    let db = database().await;
    db.run(
        "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NEW; END$$; \
         CREATE TRIGGER gate BEFORE INSERT OR UPDATE ON advisory_lease FOR EACH ROW \
         WHEN (NEW.holder = 'candidate') EXECUTE FUNCTION gate()",
    )
    .await;
    let (mut first, mut gate) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let lease = table.acquire(&mut first, key("k")).await.unwrap();
    let proxy = Proxy::start(&db).await;
    let manager = AsyncDieselConnectionManager::new(proxy.url());
    let pool = Pool::builder(manager).max_size(2).build().unwrap();
    let named = Table::new().held_by("candidate").unwrap();
    let leases = Leases::new(pool).table(named);
    let candidate = tokio::spawn(async move {
        let request = Request::text("k").wait(Wait::Forever);
        leases.acquire(request).await
    });
    until_refused(&mut first).await;

    // The next try is granted, and its answer is lost.
    gate.batch_execute(CLOSE).await.unwrap();
    assert!(table.release(&mut first, &lease).await.unwrap());
    db.until_waiting(GATE).await;
    proxy.stop_forwarding();
    gate.batch_execute(OPEN).await.unwrap();
    let missing = "SELECT 'no grant' WHERE NOT EXISTS (SELECT FROM advisory_lease WHERE holder = 'candidate')";
    db.until_empty(GENEROUS, "a grant", missing).await;
    proxy.cut_all();

    // The server is reachable again when most of the lease's minute is over.
    db.run("UPDATE advisory_lease SET expires_at = clock_timestamp() + interval '8 seconds'")
        .await;
    gate.batch_execute(CLOSE).await.unwrap();
    proxy.resume_forwarding();
    let held = candidate.await.unwrap().unwrap();
    // Not renewed yet: the gate is closed.
    let remaining = held.lease().remaining();
    assert!(remaining <= Duration::from_secs(8), "{remaining:?}");

    gate.batch_execute(OPEN).await.unwrap();
    let brief = "SELECT expires_at FROM advisory_lease WHERE expires_at < clock_timestamp() + interval '30 seconds'";
    db.until_empty(GENEROUS / 4, "a renewal", brief).await;
    assert!(held.lease().is_held());
}
