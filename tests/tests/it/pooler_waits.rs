//! Behind a pooler no cancel request reaches a dropped wait: how long the wait occupies a session
//! of the server.

use advisory_runtime::{Error, Request, Wait, xact};
use advisory_tests::bookings::{database, key_of};
use advisory_tests::futures::dropped;
use advisory_tests::poolers::connect;
use advisory_tests::{Bouncer, left_out};
use diesel_async::SimpleAsyncConnection;
use std::time::Duration;

const SETTINGS: &str = "pool_mode = transaction\ndefault_pool_size = 2";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_wait_occupies_the_pooler_at_most_for_its_budget() {
    let db = database().await;
    let bouncer = match Bouncer::start(&db, SETTINGS).await {
        Ok(bouncer) => bouncer,
        Err(reason) => return left_out("pgbouncer", reason),
    };
    let url = bouncer.url(&db);
    let key = key_of(7);
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key).await.unwrap();
    for (wait, stays) in [
        (Wait::For(Duration::from_millis(1500)), false),
        (Wait::Forever, true),
    ] {
        let mut conns = connect(&url, 2).await;
        for conn in &mut conns {
            let call = xact::begin(conn, Request::new(key).wait(wait));
            dropped(call, db.until_waiting(key)).await;
        }
        drop(conns);
        if stays {
            // Shows that the test can fail: without a budget both sessions wait for the holder.
            db.until_waiting(key).await;
            continue;
        }
        db.until_no_waiters(key).await;
        let mut other = connect(&url, 1).await.remove(0);
        other.batch_execute("SELECT 1").await.unwrap();
        let held = xact::begin(&mut other, key_of(8)).await.unwrap();
        held.finish(Ok::<_, Error>(())).await.unwrap();
    }
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_no_waiters(key).await;
}
