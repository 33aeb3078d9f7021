//! Leases in memory: a function under a lease behaves the same with and without a database.

use advisory_runtime::lease::{Error, InMemory, Leases, Request, Source, lead_until, sweep};
use advisory_runtime::{Wait, advisory_lease};
use advisory_tests::assert_matches;
use advisory_tests::leases::{FIRST, HOUR};
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, advance, pause};

struct Webhooks<S> {
    leases: S,
    handled: AtomicUsize,
}

impl<S: Source + Sync> Webhooks<S> {
    #[advisory_lease(
        key = "memory-webhook:<id>",
        pool = self.leases,
        ttl = "30s",
        keep = "24h",
        on_done = Ok(0),
        handle = lease
    )]
    async fn handle(&self, id: &str, fails: bool) -> Result<i64, Error> {
        self.handled.fetch_add(1, Ordering::Relaxed);
        if fails {
            return Err(Error::Database(diesel::NotFound));
        }
        assert!(lease.is_held());
        Ok(lease.token().get())
    }

    #[advisory_lease(key = "memory-report", pool = self.leases, ttl = "30s")]
    async fn report(&self, takes: Duration) -> Result<(), Error> {
        let done = Instant::now() + takes;
        tokio::time::sleep_until(done).await;
        Ok(())
    }
}

fn webhooks() -> Webhooks<Leases<InMemory>> {
    Webhooks {
        leases: Leases::in_memory(),
        handled: AtomicUsize::new(0),
    }
}

#[tokio::test]
async fn once_is_once_until_the_key_is_free_again_and_tokens_grow() {
    pause();
    let webhooks = webhooks();
    assert_eq!(webhooks.handle("evt_1", false).await.unwrap(), FIRST + 1);
    assert_eq!(webhooks.handle("evt_1", false).await.unwrap(), 0);
    advance(Duration::from_secs(24 * 60 * 60 - 1)).await;
    assert_eq!(webhooks.handle("evt_1", false).await.unwrap(), 0);
    advance(Duration::from_secs(2)).await;
    assert_eq!(webhooks.handle("evt_1", false).await.unwrap(), FIRST + 2);
    // After a failure it can be tried again at once.
    webhooks.handle("evt_2", true).await.unwrap_err();
    assert_eq!(webhooks.handle("evt_2", false).await.unwrap(), FIRST + 4);
    assert_eq!(webhooks.handled.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn a_body_is_renewed_for_as_long_as_it_runs() {
    pause();
    let webhooks = webhooks();
    let other = webhooks.leases.clone();
    let started = Instant::now();
    let hours = Duration::from_secs(3 * 60 * 60);
    let (done, seen) = tokio::join!(webhooks.report(hours), async {
        let mut seen = 0;
        while started.elapsed() + Duration::from_secs(60) < hours {
            let busy = other.acquire(Request::text("memory-report").wait(Wait::Never));
            assert!(busy.await.unwrap_err().is_held());
            let row = other.list().await.unwrap().remove(0);
            assert!(row.remaining <= Duration::from_secs(30), "{row:?}");
            seen += 1;
            tokio::time::sleep_until(Instant::now() + Duration::from_secs(60)).await;
        }
        seen
    });
    done.unwrap();
    assert!(seen > 100, "{seen}");
    assert_eq!(other.list().await.unwrap(), []);
}

#[tokio::test]
async fn who_waits_gets_it_when_it_is_released_or_dropped_or_gives_up() {
    pause();
    let leases = Leases::in_memory();
    let key = || Request::text("k").ttl(Duration::from_secs(30));
    let held = leases.acquire(key()).await.unwrap();
    let waited = leases.acquire(key().wait(Duration::from_secs(5))).await;
    assert_matches!(waited, Err(Error::Held { .. }));
    let (second, ()) = tokio::join!(leases.acquire(key()), async {
        tokio::time::sleep_until(Instant::now() + Duration::from_secs(60)).await;
        drop(held);
    });
    let second = second.unwrap();
    assert_eq!(second.lease().token().get(), FIRST + 2);
    assert!(leases.holds(second.lease()).await.unwrap());
    second.finish(Ok::<_, Error>(())).await.unwrap();
    assert!(leases.acquire(key().wait(Wait::Never)).await.is_ok());
    // Another table is another key space.
    let third = Leases::in_memory().acquire(key()).await.unwrap();
    assert_eq!(third.lease().token().get(), FIRST + 1);
}

#[tokio::test]
async fn a_sweep_removes_what_has_expired() {
    pause();
    let leases = Leases::in_memory();
    let request = Request::text("k").keep(Duration::from_secs(1));
    let held = leases.acquire(request).await.unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert_eq!(sweep(&leases).await.unwrap(), 0);
    advance(Duration::from_secs(2)).await;
    assert_eq!(sweep(&leases).await.unwrap(), 1);
}

/// The same steps on both.
#[tokio::test]
async fn it_answers_as_the_table_of_a_database_does() {
    let db = advisory_tests::leases::database().await;
    let (memory, table) = (Leases::in_memory(), Leases::new(db.deadpool(2)));
    assert_eq!(answers(&memory).await, answers(&table).await);
}

async fn answers<P: advisory_runtime::lease::Store>(leases: &Leases<P>) -> Vec<String> {
    let mut said = Vec::new();
    let key = || Request::text("k").wait(Wait::Never);
    for keep in [
        None,
        Some(Duration::from_millis(1)),
        Some(Duration::from_secs(60)),
    ] {
        for is_ok in [true, false] {
            let request = keep.map_or_else(key, |keep| key().keep(keep));
            let held = match leases.acquire(request).await {
                Ok(held) => held,
                Err(error) => {
                    assert!(error.is_done(), "{error:?}");
                    said.push("done".to_owned());
                    continue;
                }
            };
            let lease = held.lease().clone();
            said.push(format!("{} {}", lease.token(), lease.is_held()));
            said.push(format!("{:?}", leases.holds(&lease).await));
            said.push(leases.acquire(key()).await.unwrap_err().to_string());
            let row = leases.list().await.unwrap().remove(0);
            said.push(format!("{:?} {} {}", row.key, row.token, row.key_hash[0]));
            let result = if is_ok {
                Ok(())
            } else {
                Err(Error::Database(diesel::NotFound))
            };
            said.push(format!("{:?}", held.finish(result).await.is_ok()));
            said.push(format!(
                "{} {:?}",
                lease.is_held(),
                leases.holds(&lease).await
            ));
            if keep == Some(Duration::from_millis(1)) {
                while !leases.list().await.unwrap().is_empty() {
                    tokio::task::yield_now().await;
                }
            }
            said.push(leases.list().await.unwrap().len().to_string());
        }
    }
    said
}

/// Other processes get a chance.
#[tokio::test(start_paused = true)]
async fn a_campaign_pauses_between_two_terms() {
    let leases = Leases::in_memory();
    let end = Instant::now() + Duration::from_secs(10);
    let mut terms = 0;
    let body = |_| {
        terms += 1;
        assert!(terms < 100, "there is no pause");
        std::future::ready(Ok::<_, Error>(()))
    };
    let shutdown = tokio::time::sleep_until(end);
    lead_until(&leases, Request::text("k"), shutdown, body)
        .await
        .unwrap();
    // Between half a second and a second each.
    assert!((10..=21).contains(&terms), "{terms}");
    assert_eq!(leases.list().await.unwrap(), []);
}

/// Its only term outlasts the ttl, and a shutdown drops the body.
#[tokio::test(start_paused = true)]
async fn a_leader_leads_until_the_shutdown_and_resigns() {
    let leases = Leases::in_memory();
    let mut term = None;
    let shutdown = tokio::time::sleep_until(Instant::now() + HOUR);
    let body = |lease| {
        assert!(term.replace(lease).is_none(), "a second term");
        pending::<Result<(), Error>>()
    };
    let led = lead_until(&leases, Request::text("k"), shutdown, body).await;
    led.unwrap();
    assert!(!term.expect("it does not lead").is_held());
    assert_eq!(leases.list().await.unwrap(), []);
}
