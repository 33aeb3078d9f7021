//! A server that crashes forgets no grant, no renewal and no kept key, whatever the role's
//! `synchronous_commit` is.
//!
//! An immediate shutdown loses the part of the log that is only in memory. Commits that do not wait
//! for the disk stay there for `wal_writer_delay`.

use advisory_runtime::lease::{Request, Table};
use advisory_tests::bookings::execute;
use advisory_tests::failover::{connect, number, primary};
use advisory_tests::leases::{HOUR, finish, key, leases_at, once, until_renewed};
use advisory_tests::statements::run;
use advisory_tests::{OwnServer, Proxy};
use std::collections::HashSet;
use std::time::Duration;

/// A server whose sessions do not wait for the disk, and whose log stays in memory for long.
async fn forgetful() -> Option<OwnServer> {
    let server = primary().await?;
    let mut conn = connect(&server).await;
    for set in [
        "wal_writer_delay = '10s'",
        "wal_writer_flush_after = '1GB'",
        "synchronous_commit = off",
        "autovacuum = off",
    ] {
        run(&mut conn, &format!("ALTER SYSTEM SET {set}")).await;
    }
    run(
        &mut conn,
        "CREATE TABLE counter AS SELECT 0::int8 AS n; CHECKPOINT",
    )
    .await;
    drop(conn);
    crash(&server).await;
    Some(server)
}

async fn crash(server: &OwnServer) {
    server.stop("immediate").await;
    server.start_again().await;
}

/// The control: without the setting that leases force, a crash loses commits. Returns how many.
async fn crash_and_count(server: &OwnServer) -> i64 {
    let mut conn = connect(server).await;
    for _ in 0..20 {
        run(&mut conn, "UPDATE counter SET n = n + 1").await;
    }
    let counted = number(&mut conn, "SELECT n FROM counter").await;
    drop(conn);
    crash(server).await;
    counted - number(&mut connect(server).await, "SELECT n FROM counter").await
}

#[tokio::test]
async fn no_token_is_issued_twice_when_the_server_crashes() {
    let Some(server) = forgetful().await else {
        return;
    };
    let (mut tokens, mut forgotten, mut released) = (HashSet::new(), 0, 0);
    for round in 1..=4 {
        let leases = leases_at(server.url(), 1);
        run(
            &mut connect(&server).await,
            "UPDATE advisory_lease SET expires_at = '-infinity'",
        )
        .await;
        let mut last = None;
        for _ in 0..20 {
            let held = leases.acquire(key("k").ttl(HOUR)).await.unwrap();
            let lease = held.lease().clone();
            assert!(tokens.insert(lease.token()), "{:?} twice", lease.token());
            finish(held).await.unwrap();
            last = Some(lease);
        }
        let last = last.unwrap();
        forgotten += crash_and_count(&server).await;
        released += i64::from(leases.holds(&last).await.unwrap());
        let mut conn = connect(&server).await;
        let token = number(&mut conn, "SELECT token FROM advisory_lease").await;
        assert_eq!(token, last.token().get(), "round {round}");
    }
    eprintln!(
        "{} tokens over 4 crashes, none twice; forgotten: {forgotten} other commits, {released} releases",
        tokens.len()
    );
    assert!(
        forgotten > 0,
        "no crash forgot anything: this shows nothing"
    );
}

#[tokio::test]
async fn a_renewal_and_a_kept_key_outlive_a_crash() {
    let Some(server) = forgetful().await else {
        return;
    };
    let left = async |text: &str| {
        let mut conn = connect(&server).await;
        let row = Table::new().find(&mut conn, Request::text(text)).await;
        row.unwrap().unwrap().remaining
    };
    let mut forgotten = 0;
    for round in 0..3 {
        let proxy = Proxy::before(server.url()).await;
        let (leases, text) = (leases_at(proxy.url(), 1), format!("renewed:{round}"));
        let request = key(&text).ttl(HOUR).renew(Duration::from_millis(20));
        let held = leases.acquire(request).await.unwrap();
        let short = "UPDATE advisory_lease SET expires_at = clock_timestamp() + interval '60 s'";
        execute(&mut connect(&server).await, short).await.unwrap();
        // The first may have been on its way.
        for _ in 0..2 {
            until_renewed(held.lease()).await;
        }
        // Nothing renews it after the crash.
        proxy.stop_forwarding();
        forgotten += crash_and_count(&server).await;
        assert!(left(&text).await > HOUR / 2);
        let direct = leases_at(server.url(), 1);
        assert!(direct.holds(held.lease()).await.unwrap());
        proxy.resume_forwarding();
    }
    let kept = key("kept").ttl(Duration::from_secs(30)).keep(HOUR);
    once(&leases_at(server.url(), 1), kept).await.unwrap();
    crash(&server).await;
    assert!(left("kept").await > HOUR / 2);
    assert!(
        forgotten > 0,
        "no crash forgot anything: this shows nothing"
    );
}
