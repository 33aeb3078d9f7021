//! After `complete` a call ends within a bound, and its key is free or done, even if the network
//! drops packets.

use advisory_runtime::lease::{Error, Leases, Request};
use advisory_tests::bookings::execute;
use advisory_tests::leases::{GENEROUS, Pool, database, finish, key, leases_at, once};
use advisory_tests::statements::run;
use advisory_tests::{Database, Proxy, assert_matches};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(1);
/// The page's bound is ten seconds after `complete`; the rest is for a busy machine.
const BOUND: Duration = Duration::from_secs(20);

/// Delays a commit until `pg_advisory_unlock(7)`.
const HOLD_UP: &str = "CREATE TABLE work (what text);
    CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER hold_up AFTER INSERT ON work DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold_up()";

fn request() -> Request {
    key("k").ttl(TTL).keep(GENEROUS * 60)
}

/// Runs a call whose network is frozen after `complete`. Returns how it ended.
async fn frozen(
    db: &Database,
    leases: &Leases<Pool>,
    url: &str,
    freeze: impl Fn() + Send + Sync,
) -> Error {
    let mut conn = AsyncPgConnection::establish(url).await.unwrap();
    let mut held = leases.acquire(request()).await.unwrap();
    let lease = held.lease().clone();
    let mut since = None;
    let body = async {
        let ended = conn.transaction(async |conn| {
            execute(conn, "INSERT INTO work VALUES ('done')").await?;
            lease.complete(conn).await?;
            since = Some(Instant::now());
            freeze();
            Ok::<_, Error>(())
        });
        ended.await
    };
    let ran = tokio::time::timeout(GENEROUS, held.run(body)).await;
    let error = ran.expect("the call hangs").unwrap_err();
    let took = since.unwrap().elapsed();
    assert!(took < BOUND, "{took:?}");
    drop(held);
    drop(conn);
    let busy = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'";
    db.until_none("the end of its session", busy).await;
    error
}

async fn is_free(db: &Database) -> bool {
    let left =
        "SELECT 'left' FROM advisory_lease WHERE expires_at > clock_timestamp() AND NOT is_kept";
    db.until_none("the expiry", left).await;
    let done = db.count("SELECT count(*) FROM work").await;
    let taken = once(&leases_at(db.url(), 1), key("k")).await;
    assert_eq!(done, i64::from(taken.is_err()), "{taken:?}");
    taken.is_ok()
}

/// Those of the call and of its lease, or those of the commit alone.
#[tokio::test]
async fn a_call_ends_and_its_key_is_free_if_packets_are_dropped() {
    for drops_all in [true, false] {
        let db = database().await;
        db.run("CREATE TABLE work (what text)").await;
        let proxy = Proxy::start(&db).await;
        let leases = leases_at(if drops_all { proxy.url() } else { db.url() }, 3);
        let error = frozen(&db, &leases, proxy.url(), || proxy.stop_forwarding()).await;
        let is_told = matches!(error, Error::CommitUnknown { .. }) == drops_all
            && matches!(error, Error::Lost { .. }) != drops_all;
        assert!(is_told, "{error:?}");
        assert!(is_free(&db).await);
    }
}

#[tokio::test]
async fn a_call_ends_with_its_key_done_if_the_commits_answer_is_lost() {
    let db = database().await;
    db.run(HOLD_UP).await;
    let proxy = Proxy::start(&db).await;
    let leases = leases_at(db.url(), 3);
    let mut gate = db.connect().await;
    run(&mut gate, "SELECT pg_advisory_lock(7)").await;
    let opened = async {
        // The commit has been sent.
        db.until_waiting(7).await;
        proxy.stop_forwarding();
        run(&mut gate, "SELECT pg_advisory_unlock(7)").await;
    };
    let ended = frozen(&db, &leases, proxy.url(), || {});
    let (error, ()) = tokio::join!(ended, opened);
    assert_matches!(error, Error::CommitUnknown { .. });
    assert!(!is_free(&db).await);
}

/// The call does not wait for the body, and everything that the body awaits is dropped with it.
#[tokio::test]
async fn a_body_that_continues_after_complete_is_dropped_in_time() {
    let db = database().await;
    let leases = leases_at(db.url(), 3);
    let mut held = leases.acquire(request()).await.unwrap();
    let lease = held.lease().clone();
    let mut conn = db.connect().await;
    let body = async {
        let completed = conn.transaction(async |conn| lease.complete(conn).await);
        completed.await.unwrap();
        std::future::pending::<()>().await;
    };
    let since = Instant::now();
    let ran = tokio::time::timeout(GENEROUS, held.run(body)).await;
    assert_matches!(ran.expect("it goes on"), Err(Error::CommitUnknown { .. }));
    assert!(since.elapsed() < BOUND, "{:?}", since.elapsed());
    finish(held).await.unwrap();
    assert!(leases.list().await.unwrap()[0].is_done);
}

/// If `complete` got no answer, nothing was committed: the outcome is known.
#[tokio::test]
async fn a_lease_is_lost_if_complete_is_not_answered() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let leases = leases_at(proxy.url(), 3);
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    let mut held = leases.acquire(request()).await.unwrap();
    let lease = held.lease().clone();
    let body = async {
        let ended = conn.transaction(async |conn| {
            execute(conn, "SELECT 1").await?;
            proxy.stop_forwarding();
            lease.complete(conn).await
        });
        ended.await
    };
    let ran = tokio::time::timeout(GENEROUS, held.run(body)).await;
    assert_matches!(ran.expect("the call hangs"), Err(Error::Lost { .. }));
}
