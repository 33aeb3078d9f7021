//! A grant whose answer was lost is found by a later try, which relies on it for no longer than the
//! server keeps it.

use advisory_runtime::Wait;
use advisory_runtime::lease::{Error, Request, Table};
use advisory_tests::futures::spawn;
use advisory_tests::leases::{database, key, leases_at, until_over, until_refused};
use advisory_tests::{Proxy, assert_matches};
use diesel_async::{AsyncConnection, RunQueryDsl, SimpleAsyncConnection};
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
    let holder = leases_at(db.url(), 1).acquire(key("k")).await.unwrap();
    let proxy = Proxy::start(&db).await;
    let named = Table::new().held_by("candidate").unwrap();
    let leases = leases_at(proxy.url(), 2).table(named);
    let candidate = spawn(async move {
        let request = Request::text("k").wait(Wait::Forever);
        leases.acquire(request).await
    });
    until_refused(&mut first).await;

    // The next try is granted, and its answer is lost.
    gate.batch_execute(CLOSE).await.unwrap();
    holder.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_waiting(GATE).await;
    proxy.stop_forwarding();
    gate.batch_execute(OPEN).await.unwrap();
    let granted = "SELECT FROM advisory_lease WHERE holder = 'candidate'";
    db.until_some("a grant", granted).await;
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
    db.until_none("a renewal", brief).await;
    assert!(held.lease().is_held());
}

/// The first try of a call whose second one was granted can still be under way, and be granted the
/// key after another holder's term. Its number is the same, so only the token tells that row from
/// the one of the former term.
#[tokio::test]
async fn a_late_try_does_not_revive_the_former_term() {
    let db = database().await;
    let (mut conn, table) = (db.connect().await, Table::new());
    let (leases, hour) = (leases_at(db.url(), 1), Duration::from_secs(3600));
    let request = key("k").ttl(hour).keep(hour);
    let held = leases.acquire(request.renew(GENEROUS / 200)).await.unwrap();
    let old = held.lease().clone();
    // What the late grant leaves.
    db.run("UPDATE advisory_lease SET token = nextval('advisory_lease_token')")
        .await;
    until_over(&old).await;
    let of_a_write = diesel::select(old.is_current());
    assert!(!of_a_write.get_result::<bool>(&mut conn).await.unwrap());
    let complete = async |conn: &mut _| old.complete(conn).await;
    assert_matches!(conn.transaction(complete).await, Err(Error::Lost { .. }));
    let fence = async |conn: &mut _| old.fence(conn).await;
    assert_matches!(conn.transaction(fence).await, Err(Error::Lost { .. }));
    let data = table.set_data(&mut conn, &old, Some("a")).await;
    assert!(!data.unwrap());
    assert!(!leases.holds(&old).await.unwrap());
    assert_matches!(
        held.finish(Ok::<_, Error>(())).await,
        Err(Error::Lost { .. })
    );
    // Nobody relies on the late grant, so whoever releases the call's lease frees its key.
    assert!(table.release(&mut conn, &old).await.unwrap());
    assert_eq!(leases.list().await.unwrap(), []);
}
