//! Busy means that another process holds the key: not that a pool is exhausted, a server does not
//! answer, or a runtime is missing. A grant whose answer was lost is found by a later try, which
//! relies on it for no longer than the server keeps it.

use advisory_runtime::Wait;
use advisory_runtime::lease::{Error, Leases, Request, Store, Table};
use advisory_tests::bookings::in_transaction;
use advisory_tests::failover::{connect, primary};
use advisory_tests::futures::spawn;
use advisory_tests::leases::{
    GENEROUS, HOUR, database, expire, fence, finish, key, leases_at, once, orphan, until_free,
    until_over, until_refused,
};
use advisory_tests::{Proxy, assert_matches};
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(300);

fn waits(wait: Duration) -> Request {
    Request::text("k").wait(wait)
}

async fn is_pools_failure<S: Store>(leases: Leases<S>, wait: Wait) {
    let request = Request::text("k").wait(wait).ttl(HOUR);
    let error = leases.acquire(request).await.unwrap_err();
    assert_matches!(error, Error::Pool(_));
    assert!(!error.is_held());
}

#[tokio::test]
async fn an_exhausted_pool_is_not_a_busy_key() {
    let db = database().await;
    let pool = db.deadpool(1);
    let conn = pool.get().await.unwrap();
    for wait in [Wait::Never, Wait::For(SHORT)] {
        is_pools_failure(Leases::new(pool.clone()), wait).await;
    }
    drop(conn);
    let pool = db.bb8(1).await;
    let conn = pool.get().await.unwrap();
    is_pools_failure(Leases::new(pool.clone()), Wait::For(SHORT)).await;
    drop(conn);
    let row = Leases::new(pool).list().await.unwrap();
    assert_eq!(row, [], "nobody was granted it");
}

#[tokio::test]
async fn an_unanswered_grant_is_not_busy_and_is_released() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let leases = leases_at(proxy.url(), 2);
    // Two connections are open, and the acquisition's statement is prepared.
    let (one, other) = tokio::join!(once(&leases, key("a")), once(&leases, key("b")));
    one.and(other).unwrap();
    proxy.stop_forwarding();
    is_pools_failure(leases.clone(), Wait::For(SHORT)).await;
    proxy.resume_forwarding();
    // A grant whose answer it did not get is released, long before it expires.
    until_free(&db).await;
    drop(leases.acquire(waits(GENEROUS)).await.unwrap());
}

#[tokio::test]
async fn a_grant_with_a_lost_answer_is_found_again_or_released() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let leases = leases_at(proxy.url(), 2);
    proxy.cut_after_forwarding("WITH free AS");
    let lost = leases.acquire(waits(GENEROUS).ttl(HOUR)).await;
    let error = lost.unwrap_err();
    assert!(!error.is_held(), "{error:?}");
    until_free(&db).await;
}

#[tokio::test]
async fn a_lost_lease_is_not_ok_when_its_first_release_failed() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let leases = leases_at(proxy.url(), 2);
    for forgets in ["a take-over", "a failover"] {
        let held = leases.acquire(Request::text("k")).await.unwrap();
        if forgets == "a take-over" {
            expire(&db).await;
            orphan(db.url(), &Table::new(), key("k")).await;
        } else {
            db.run("DELETE FROM advisory_lease").await;
        }
        // The release fails on the pool's connection, and is sent again on another one.
        proxy.cut_before("LEAST");
        let ended = finish(held).await;
        assert_matches!(ended, Err(Error::Lost { .. }), "{forgets}");
        db.run("DELETE FROM advisory_lease").await;
    }
}

#[tokio::test]
async fn a_waiter_outlasts_a_restart_of_the_server() {
    let Some(server) = primary().await else {
        return;
    };
    let (mut conn, table) = (connect(&server).await, Table::new());
    let lease = orphan(server.url(), &table, key("k")).await;
    let leases = leases_at(server.url(), 1);
    let waiting = spawn(async move { leases.acquire(waits(GENEROUS)).await });
    until_refused(&mut conn).await;
    drop(conn);
    for mode in ["fast", "immediate"] {
        server.stop(mode).await;
        server.start_again().await;
    }
    assert!(!waiting.is_finished(), "it has given up");
    let mut conn = connect(&server).await;
    // The grant was durable, so a crash cannot have lost it.
    assert!(table.release(&mut conn, &lease).await.unwrap());
    let next = waiting.await.unwrap().unwrap();
    assert!(next.lease().token() > lease.token());
}

#[test]
fn without_a_runtime_or_its_timer_nothing_is_sent() {
    let everything = tokio::runtime::Runtime::new().unwrap();
    let (db, pool) = everything.block_on(async {
        let db = database().await;
        let pool = db.deadpool(1);
        drop(pool.get().await.unwrap());
        (db, pool)
    });
    let leases = Arc::new(Leases::new(pool));
    let timeless = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    let error = timeless.block_on(leases.acquire(key("k"))).unwrap_err();
    assert_matches!(error, Error::NoRuntime { .. });
    assert!(error.to_string().contains("enable_time"), "{error}");
    // Outside any runtime.
    let mut acquired = pin!(leases.acquire(key("k")));
    let polled = acquired
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert_matches!(polled, Poll::Ready(Err(Error::NoRuntime { .. })));
    let rows = everything.block_on(db.count("SELECT count(*) FROM advisory_lease"));
    assert_eq!(rows, 0);
    // Its connections end on their runtime.
    let _entered = everything.enter();
    drop(db);
}

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
    finish(holder).await.unwrap();
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
    assert_matches!(
        in_transaction(&mut conn, complete).await,
        Err(Error::Lost { .. })
    );
    assert_matches!(fence(&mut conn, &old).await, Err(Error::Lost { .. }));
    let data = table.set_data(&mut conn, &old, Some("a")).await;
    assert!(!data.unwrap());
    assert!(!leases.holds(&old).await.unwrap());
    assert_matches!(finish(held).await, Err(Error::Lost { .. }));
    // No call uses the late grant, so releasing the lease of the first call frees the key.
    assert!(table.release(&mut conn, &old).await.unwrap());
    assert_eq!(leases.list().await.unwrap(), []);
}
