//! Async Diesel: the time limit of a call for several keys.

use advisory_runtime::{Request, xact};
use advisory_tests::bookings::{database, finish};
use advisory_tests::futures::spawn;
use advisory_tests::pauses::pause;
use advisory_tests::{AdvisoryLock, LockedKey, assert_error};
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// `lock_timeout` counts for each wait: two waits of 1.5 s under a timeout of 2 s would both
/// succeed.
#[tokio::test]
async fn the_budget_is_for_all_keys_together() {
    let db = database().await;
    let (mut first, mut second) = (db.connect().await, db.connect().await);
    let held_first = xact::begin(&mut first, 1).await.unwrap();
    let held_second = xact::begin(&mut second, 2).await.unwrap();
    let mut conn = db.connect().await;
    let started = Instant::now();
    let waiter = spawn(async move {
        let request = Request::all([1, 2]).wait(Duration::from_secs(2));
        xact::begin(&mut conn, request).await.map(drop)
    });
    // Or has waited: a process that is suspended for longer than the budget sees no waiter.
    let waits_or_has = async |key| {
        let waited_for = |lock: &AdvisoryLock| lock.key == LockedKey::Bigint(key) && !lock.granted;
        while !waiter.is_finished() && !db.locks().await.iter().any(waited_for) {
            pause().await;
        }
    };
    waits_or_has(1).await;
    // This test is about time, so there is no state to wait for.
    while started.elapsed() < Duration::from_millis(1500) {
        pause().await;
    }
    finish(held_first).await;
    waits_or_has(2).await;
    // Another second and a half, in small steps: if the whole machine is suspended, not only the
    // server's clock continues.
    let mut steps = interval(Duration::from_millis(10));
    steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..150 {
        steps.tick().await;
    }
    finish(held_second).await;
    assert_error!(waiter.await.unwrap(), TimedOut);
    db.until_quiet().await;
}
