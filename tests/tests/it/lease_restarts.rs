//! Leases held while the server restarts, or while the renewals' connections are cut repeatedly:
//! never two at once.

use advisory_runtime::lease::{Error, Event, FencingToken, Leases, Request};
use advisory_tests::Proxy;
use advisory_tests::failover::primary;
use advisory_tests::leases::{NEAR, Pool, database, finish, key, leases_at};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::interval;

/// When a body ran: from its first poll to its last one.
#[derive(Clone, Copy, Debug)]
struct Run {
    token: FencingToken,
    first: Instant,
    last: Instant,
}

type Runs = Arc<Mutex<Vec<Run>>>;

/// Reads the clock each millisecond, until it is stopped or dropped.
async fn look(run: usize, runs: &Runs, mut stop: watch::Receiver<bool>, at_most: Duration) {
    let mut tick = interval(Duration::from_millis(1));
    let since = Instant::now();
    while since.elapsed() < at_most && !*stop.borrow_and_update() {
        tick.tick().await;
        runs.lock().unwrap()[run].last = Instant::now();
    }
}

/// Acquires the lease whenever it can, and runs a body under it for as long as it may.
async fn contend(leases: Leases<Pool>, ttl: Duration, runs: Runs, stop: watch::Receiver<bool>) {
    let mut pause = interval(Duration::from_millis(5));
    while !*stop.borrow() {
        let request = key("k").ttl(ttl).renew(ttl / 6);
        let Ok(mut held) = leases.acquire(request).await else {
            pause.tick().await;
            continue;
        };
        let (token, first) = (held.lease().token(), Instant::now());
        let run = {
            let mut runs = runs.lock().unwrap();
            runs.push(Run {
                token,
                first,
                last: first,
            });
            runs.len() - 1
        };
        let ended = held.run(look(run, &runs, stop.clone(), ttl * 2)).await;
        drop(held.finish(ended).await);
    }
}

/// No body's last moment is after the first one of a later grant.
fn assert_alone(runs: &Runs) -> Vec<Run> {
    let mut runs = runs.lock().unwrap().clone();
    runs.sort_by_key(|run| run.token);
    for two in runs.windows(2) {
        assert!(two[0].token < two[1].token, "one token twice: {two:?}");
        assert!(two[0].last <= two[1].first, "two at once: {two:?}");
    }
    runs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_hold_a_key_while_the_server_restarts_repeatedly() {
    let Some(server) = primary().await else {
        return;
    };
    let runs = Runs::default();
    let (stop, stopping) = watch::channel(false);
    let mut contenders = JoinSet::new();
    for _ in 0..4 {
        let leases = leases_at(server.url(), 2);
        let ttl = Duration::from_millis(600);
        contenders.spawn(contend(leases, ttl, Arc::clone(&runs), stopping.clone()));
    }
    for mode in ["fast", "immediate", "fast", "immediate"] {
        let grants = runs.lock().unwrap().len();
        until(|| runs.lock().unwrap().len() > grants).await;
        server.stop(mode).await;
        server.start_again().await;
    }
    let grants = runs.lock().unwrap().len();
    until(|| runs.lock().unwrap().len() > grants).await;
    stop.send(true).unwrap();
    contenders.join_all().await;
    let runs = assert_alone(&runs);
    let held: Duration = runs.iter().map(|run| run.last - run.first).sum();
    eprintln!(
        "{} grants over 4 restarts, held for {held:.1?}, no two at once",
        runs.len()
    );
    assert!(held > Duration::from_millis(500), "{held:?}");
}

async fn until(is_so: impl Fn() -> bool) {
    let mut tick = interval(Duration::from_millis(5));
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(60), "waited too long");
        tick.tick().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_outlives_a_restart_shorter_than_its_ttl_and_no_other() {
    let Some(server) = primary().await else {
        return;
    };
    let leases = leases_at(server.url(), 2);
    let request = |text: &str, ttl| Request::text(text).ttl(ttl).renew(ttl / 20);
    let mut long = leases
        .acquire(request("long", Duration::from_secs(30)))
        .await
        .unwrap();
    let lease = long.lease().clone();
    let outlasted = long.run(async {
        for mode in ["fast", "immediate"] {
            server.stop(mode).await;
            server.start_again().await;
            // It is renewed again.
            let left = lease.remaining();
            until(|| lease.remaining() > left).await;
        }
    });
    outlasted.await.unwrap();
    finish(long).await.unwrap();
    assert_eq!(leases.list().await.unwrap(), []);

    let ttl = Duration::from_secs(5);
    let mut short = leases.acquire(request("short", ttl)).await.unwrap();
    let lease = short.lease().clone();
    let since = Instant::now();
    let body = short.run(async {
        let mut tick = interval(Duration::from_millis(10));
        loop {
            tick.tick().await;
            // However slow the machine is: it does not run at the expiry.
            assert!(lease.remaining() > NEAR, "the body runs at the expiry");
        }
    });
    // Not in the body, which would be dropped halfway through a shutdown.
    let (lost, ()): (Result<(), Error>, ()) = tokio::join!(body, server.stop("immediate"));
    let Err(Error::Lost { source, .. }) = lost else {
        panic!("{lost:?}");
    };
    assert!(source.is_some(), "why the server was not reached");
    eprintln!(
        "the server was stopped, the body dropped after {:.1?} of {ttl:?}",
        since.elapsed()
    );
    server.start_again().await;
    drop(short);
}

/// Text that only the statement of a renewal contains.
const RENEWAL: &str = "expires_at=GREATEST(";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_connections_that_are_cut_again_and_again() {
    let db = database().await;
    let proxy = Arc::new(Proxy::start(&db).await);
    let (renewed, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // After each renewal that succeeded the connection is cut, before or after the server has
    // executed the next one.
    let leases = leases_at(proxy.url(), 2).observe({
        let (renewed, failed) = (Arc::clone(&renewed), Arc::clone(&failed));
        let proxy = Arc::clone(&proxy);
        move |event: Event<'_>| match event {
            Event::Renewed(_) if renewed.fetch_add(1, Ordering::Relaxed) % 2 == 0 => {
                proxy.cut_after_forwarding(RENEWAL);
            }
            Event::Acquired(_) | Event::Renewed(_) => proxy.cut_before(RENEWAL),
            Event::RenewalFailed(..) => drop(failed.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
    });
    let ttl = Duration::from_secs(60);
    let request = key("k").ttl(ttl).renew(Duration::from_millis(50));
    let mut held = leases.acquire(request).await.unwrap();
    let (lease, first) = (held.lease().clone(), Instant::now() + ttl);
    let body = async {
        until(|| renewed.load(Ordering::Relaxed) >= 20).await;
        // Here and on the server it lasts longer than the first grant.
        until(|| Instant::now() + lease.remaining() > first).await;
        let longer = "SELECT count(*) FROM advisory_lease WHERE expires_at > acquired_at + interval '60.9 s'";
        assert_eq!(db.count(longer).await, 1);
    };
    held.run(body).await.unwrap();
    finish(held).await.unwrap();
    eprintln!("{renewed:?} renewals came through, each behind a cut; {failed:?} did not at once");
    assert_eq!(leases.list().await.unwrap(), []);
}
