//! How a worker stops, and what does not stop it.

use crate::mails::{Brief, Mail, OPEN, lock_table, mails, mails_that, until_empty, work};
use advisory_runtime::claim::{Claimed, Error, Worker};
use advisory_tests::{Database, Proxy};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::bb8::Pool;
use std::future::pending;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{Barrier, Notify};

#[tokio::test]
async fn a_worker_drops_bodies_after_its_grace_and_gives_their_attempt_back() {
    let db = mails(2).await;
    let pool = db.bb8(3).await;
    let begun = Barrier::new(3);
    let worker = Worker::new(&pool, "w").concurrency(2);
    let worker = worker.until(async {
        begun.wait().await;
    });
    let since = Instant::now();
    let worker = worker.grace(Duration::from_millis(100));
    let ran = worker.run(async |_: Claimed<Mail>| {
        begun.wait().await;
        pending::<Result<(), Error>>().await
    });
    ran.await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(60));
    let released = "locked_by IS NULL AND attempts = 0";
    assert_eq!(mails_that(&db, released).await, 2, "when it returns");
}

/// The ttl is five minutes.
#[tokio::test]
async fn a_worker_returns_although_the_server_does_not_answer() {
    let db = mails(1).await;
    let proxy = Proxy::start(&db).await;
    let pool = Database::bb8_at(proxy.url(), 3).await;
    let stopped = Notify::new();
    let worker = Worker::new(&pool, "w").until(stopped.notified());
    let since = Instant::now();
    let ran = worker.run(async |_: Claimed<Mail>| {
        proxy.stop_forwarding();
        stopped.notify_one();
        Ok::<_, Error>(())
    });
    ran.await.unwrap();
    let took = since.elapsed();
    assert!(took < Duration::from_secs(100), "{took:?}");
    proxy.resume_forwarding();
}

/// A stop waits five seconds for the answer to a claim; the third claim without one has 20 s.
#[tokio::test]
async fn a_worker_returns_although_a_claim_has_no_answer() {
    let db = mails(1).await;
    let pool = db.bb8(3).await;
    let mut other = db.connect().await;
    lock_table(&mut other).await;
    let stopped = Notify::new();
    let ran = work::<Mail, _>(Worker::new(&pool, "w").until(stopped.notified()));
    let stop = async {
        let mut seen = vec![0];
        for _ in 0..3 {
            let waiting = format!("{WAITING} AND NOT pid = ANY (ARRAY{seen:?})");
            db.until_some("the next claim waits", &waiting).await;
            seen.push(db.count(&waiting).await);
        }
        stopped.notify_one();
        Instant::now()
    };
    let ((), since) = tokio::join!(ran, stop);
    let took = since.elapsed();
    assert!(took < Duration::from_secs(12), "{took:?}");
}

const WAITING: &str = "SELECT pid FROM pg_catalog.pg_locks WHERE NOT granted \
                       AND relation = 'mail'::regclass";

/// The claim waits for the lock of the table when the stop comes, and so does the end of the row.
#[tokio::test]
async fn a_stop_during_a_claim_begins_no_other_row() {
    let db = mails(2).await;
    let pool = db.bb8(4).await;
    let mut other = db.connect().await;
    let (claimed, stopped) = (Notify::new(), Notify::new());
    let (may_return, began) = (Notify::new(), Mutex::new(Vec::new()));
    let worker = Worker::new(&pool, "w").concurrency(1).prefetch(3);
    let worker = worker.poll(Duration::from_millis(20));
    let worker = worker.until(stopped.notified());
    let ran = worker.run(async |job: Claimed<Mail>| {
        began.lock().unwrap().push(job.id);
        if job.id == 1 {
            claimed.notify_one();
            may_return.notified().await;
            stopped.notify_one();
        }
        Ok::<_, Error>(())
    });
    let stop = async {
        claimed.notified().await;
        let both = "SELECT id FROM mail WHERE locked_by IS NULL";
        db.until_none("both rows are claimed", both).await;
        lock_table(&mut other).await;
        db.until_some("the next claim waits", WAITING).await;
        may_return.notify_one();
        let fewer = format!("SELECT 'fewer' FROM ({WAITING}) AS w HAVING count(*) < 2");
        db.until_none("the end of the row waits too", &fewer).await;
        drop(other);
    };
    let (ran, ()) = tokio::join!(ran, stop);
    ran.unwrap();
    assert_eq!(*began.lock().unwrap(), [1]);
    let released = "completed_at IS NULL AND locked_by IS NULL AND attempts = 0";
    assert_eq!(mails_that(&db, released).await, 1);
}

/// A body that is done at once. Of one of the mails it panics when it is dropped.
struct Body(i64);

impl Future for Body {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        assert_ne!(self.0, 2, "in a destructor");
    }
}

#[tokio::test]
async fn a_panic_in_a_destructor_fails_its_job_and_not_the_worker() {
    let db = mails(3).await;
    let pool = db.bb8(3).await;
    let left = "completed_at IS NULL AND error_message IS NULL";
    let worker = Worker::new(&pool, "w").until(until_empty(&db, "all", left));
    worker.run(|job: Claimed<Mail>| Body(job.id)).await.unwrap();
    let failed = "id = 2 AND error_message LIKE '%in a destructor%'";
    assert_eq!(mails_that(&db, failed).await, 1);
    let done = "completed_at IS NOT NULL";
    assert_eq!(mails_that(&db, done).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawned_bodies_run_in_parallel() {
    let db = mails(2).await;
    let pool = db.bb8(3).await;
    let both: &'static std::sync::Barrier = Box::leak(Box::new(std::sync::Barrier::new(2)));
    let worker = Worker::new(&pool, "w").concurrency(2).until_empty();
    // Each blocks its thread until the other one has come.
    let ran = worker.run_spawned(move |_: Claimed<Mail>| async move {
        tokio::task::block_in_place(|| both.wait());
        Ok::<_, Error>(())
    });
    ran.await.unwrap();
    assert_eq!(mails_that(&db, OPEN).await, 0);
}

/// Every connection of the pool has prepared the claim, and refuses it from then on: "cached plan
/// must not change result type".
#[tokio::test]
async fn a_worker_claims_on_after_the_type_of_a_column_has_changed() {
    let db = mails(1).await;
    let pool = db.bb8(2).await;
    let done = Mutex::new(Vec::new());
    let first = Notify::new();
    let worker = Worker::new(&pool, "w").poll(Duration::from_millis(50));
    let worker = worker.until(async {
        first.notified().await;
        until_empty(&db, "the first mail", OPEN).await;
        db.run("ALTER TABLE mail ALTER COLUMN error_message TYPE varchar(200)")
            .await;
        db.run("INSERT INTO mail (id) VALUES (100)").await;
        until_empty(&db, "the mail after the change", OPEN).await;
    });
    let ran = worker.run(async |job: Claimed<Mail>| {
        assert_eq!(job.error_message, None);
        done.lock().unwrap().push(job.id);
        first.notify_one();
        Ok::<_, Error>(())
    });
    ran.await.unwrap();
    assert_eq!(*done.lock().unwrap(), [1, 100]);
}

/// Its pool has only connections whose network is gone, and does not test them.
#[tokio::test]
async fn a_worker_claims_on_when_the_connections_of_its_pool_are_dead() {
    let db = mails(1).await;
    let proxy = Proxy::start(&db).await;
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(proxy.url());
    let pool = Pool::builder()
        .max_size(3)
        .min_idle(3)
        .test_on_check_out(false)
        .build(manager)
        .await
        .unwrap();
    let worker = Worker::new(&pool, "w").poll(Duration::from_millis(50));
    let worker = worker.until(async {
        until_empty(&db, "the first mail", OPEN).await;
        proxy.stall_open_connections();
        db.run("INSERT INTO mail (id) VALUES (100)").await;
        until_empty(&db, "the mail after the loss", OPEN).await;
    });
    // With a ttl of 4 s: a claim in flight as the proxy stalls can have claimed mail 100, unheard.
    work::<Brief, _>(worker).await;
}
