//! A worker: several rows at a time, every way in which work ends, and a graceful stop.

use crate::mails::{Brief, Limited, Mail, OPEN, lock_table, mails, mails_that, until_empty, work};
use advisory_runtime::claim::{self, BodyOutcome, Claimed, End, Error, Worker};
use advisory_runtime::{Pool, PoolError};
use advisory_tests::monitor::until_waiters;
use advisory_tests::statements::run;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Barrier, Notify, oneshot};

/// The works wait for each other, so they must run at the same time, and no more than these.
#[tokio::test]
async fn as_many_works_run_at_a_time_as_it_says() {
    let db = mails(6).await;
    let pool = db.bb8(3).await;
    let (together, running, most) = (Barrier::new(3), AtomicUsize::new(0), AtomicUsize::new(0));
    let worker = Worker::new(&pool, "worker").concurrency(3);
    let worker = worker.until(until_empty(&db, "every mail", OPEN));
    let ran = worker.run(async |_: Claimed<Mail>| {
        let now = running.fetch_add(1, Ordering::Relaxed) + 1;
        most.fetch_max(now, Ordering::Relaxed);
        together.wait().await;
        running.fetch_sub(1, Ordering::Relaxed);
        Ok::<_, Error>(())
    });
    ran.await.unwrap();
    assert_eq!(most.into_inner(), 3);
}

/// With a thousand bodies, polling each of them whenever one is woken would take most of the time.
#[tokio::test]
async fn a_body_is_polled_when_it_is_woken_and_not_for_others() {
    const BODIES: usize = 50;
    let db = mails(50).await;
    let pool = db.bb8(3).await;
    let (begun, polls) = (Barrier::new(BODIES + 1), AtomicUsize::new(0));
    let turns = [const { Notify::const_new() }; BODIES];
    let ended = Notify::new();
    let worker = Worker::new(&pool, "worker").concurrency(BODIES);
    let worker = worker.until(async {
        begun.wait().await;
        for turn in &turns {
            turn.notify_one();
            ended.notified().await;
        }
    });
    let ran = worker.run(async |job: Claimed<Mail>| {
        begun.wait().await;
        let turn = &turns[usize::try_from(job.id).unwrap() - 1];
        let mut turn = pin!(turn.notified());
        poll_fn(|context| {
            polls.fetch_add(1, Ordering::Relaxed);
            turn.as_mut().poll(context)
        })
        .await;
        ended.notify_one();
        Ok::<_, Error>(())
    });
    ran.await.unwrap();
    let polls = polls.into_inner();
    assert!(polls <= 4 * BODIES, "{polls} polls of {BODIES} bodies");
}

/// One row of a tenant at a time, and the next one as soon as it is done: not after the time of
/// `poll`.
#[tokio::test]
async fn the_end_of_a_work_makes_room_for_the_next_of_its_value() {
    let db = mails(5).await;
    db.run("INSERT INTO mail (id, tenant_id) VALUES (100, 2)")
        .await;
    let pool = db.bb8(3).await;
    let order = Mutex::new(Vec::new());
    let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let worker = Worker::new(&pool, "worker").concurrency(4).poll_only();
    let worker = worker.poll(Duration::from_secs(3600));
    let worker = worker.until(until_empty(&db, "every mail", OPEN));
    let ran = worker.run(async |job: Claimed<Limited>| {
        let now = running.fetch_add(1, Ordering::Relaxed) + 1;
        most.fetch_max(now, Ordering::Relaxed);
        order.lock().unwrap().push(job.id);
        tokio::task::yield_now().await;
        running.fetch_sub(1, Ordering::Relaxed);
        Ok::<_, Error>(())
    });
    ran.await.unwrap();
    let mut order = order.into_inner().unwrap();
    order.retain(|id| *id != 100);
    assert_eq!(order, [1, 2, 3, 4, 5]);
    assert!(most.into_inner() <= 2);
}

#[tokio::test]
async fn errors_and_panics_are_retried_and_fail_at_the_last_attempt() {
    let db = mails(3).await;
    let pool = db.bb8(3).await;
    let works = async |job: Claimed<Mail>| match job.id {
        1 => Err("no such address".to_owned()),
        2 => panic!("the address has {} parts", 3),
        _ => Ok(()),
    };
    let left = "completed_at IS NULL AND error_message IS NULL";
    let worker = Worker::new(&pool, "worker").concurrency(2);
    let worker = worker.until(until_empty(&db, "three attempts", left));
    worker.run(works).await.unwrap();
    let retried = "id < 3 AND failed_at IS NULL AND run_at > now() AND locked_by IS NULL";
    assert_eq!(mails_that(&db, retried).await, 2);
    db.run("UPDATE mail SET run_at = now()").await;
    let worker = Worker::new(&pool, "worker").until(until_empty(&db, "the last attempts", OPEN));
    worker.run(works).await.unwrap();
    for (id, message) in [
        (1, "no such address"),
        (2, "the body panicked: the address has 3 parts"),
    ] {
        let failed = format!("id = {id} AND failed_at IS NOT NULL AND error_message = '{message}'");
        assert_eq!(mails_that(&db, &failed).await, 1, "{id}");
    }
}

/// Also if the error's text panics, and the other bodies go on.
#[tokio::test]
async fn a_worker_ends_failed_jobs_as_it_was_told() {
    struct Mute(bool);
    impl std::fmt::Display for Mute {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            assert!(!self.0, "no words");
            f.write_str("no")
        }
    }
    let db = mails(3).await;
    let pool = db.bb8(2).await;
    let worker = Worker::new(&pool, "worker").on_err(End::Fail);
    let worker = worker.until(until_empty(&db, "the mails", OPEN));
    let ran = worker.run(async |job: Claimed<Mail>| match job.id {
        3 => Ok(()),
        id => Err(Mute(id == 1)),
    });
    ran.await.unwrap();
    for (id, message) in [(1, "the body panicked: no words"), (2, "no")] {
        let failed = format!("id = {id} AND attempts = 1 AND error_message = '{message}'");
        assert_eq!(mails_that(&db, &failed).await, 1, "{id}");
    }
}

/// A row that always fails would come first again at once, with another `locked_by` each time.
#[tokio::test]
async fn a_row_is_released_after_the_pause_or_as_the_worker_stops() {
    let db = mails(1).await;
    let pool = db.bb8(2).await;
    let failed = Notify::new();
    let worker = Worker::new(&pool, "worker").on_err(End::Release);
    let worker = worker.poll(Duration::MAX).until(async {
        failed.notified().await;
        db.run("CREATE TABLE seen AS SELECT locked_by FROM mail")
            .await;
        for _ in 0..100 {
            let same = "SELECT count(*) FROM mail JOIN seen USING (locked_by)";
            assert_eq!(db.count(same).await, 1, "it is not released yet");
        }
    });
    let ran = worker.run(async |_: Claimed<Mail>| {
        failed.notify_one();
        Err::<(), _>("no")
    });
    let ran = tokio::time::timeout(Duration::from_secs(30), ran).await;
    ran.expect("it waits for the next poll").unwrap();
    assert_eq!(mails_that(&db, "locked_by IS NULL").await, 1);
}

/// A pool that has no connection while it is broken.
#[derive(Clone)]
struct Gate(bb8::Pool<AsyncPgConnection>, Arc<AtomicBool>);

impl Pool for Gate {
    type Connection<'p> = bb8::PooledConnection<'p, AsyncPgConnection>;

    async fn connection(&self) -> Result<Self::Connection<'_>, PoolError> {
        if self.1.load(Ordering::Relaxed) {
            return Err(PoolError::new("closed for now"));
        }
        self.0.connection().await
    }
}

/// The claim is on its way when the worker is told to stop: its rows go back, and their attempts do
/// not count.
#[tokio::test]
async fn rows_that_were_not_begun_are_released() {
    let db = mails(4).await;
    let (pool, mut other) = (db.bb8(3).await, db.connect().await);
    lock_table(&mut other).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = Worker::new(&pool, "worker").concurrency(4).poll_only();
    let worker = worker.until(async { drop(stopped.await) });
    let ran = worker.run(async |_: Claimed<Mail>| Err::<(), _>("it was stopped"));
    let (ran, ()) = tokio::join!(ran, async {
        until_waiters(&db, 1).await;
        stop.send(()).unwrap();
        tokio::task::yield_now().await;
        run(&mut other, "COMMIT").await;
    });
    ran.unwrap();
    let untouched = "locked_by IS NULL AND attempts = 0 AND error_message IS NULL";
    assert_eq!(mails_that(&db, untouched).await, 4);
}

#[tokio::test]
async fn a_worker_survives_a_broken_pool_and_lost_connections() {
    let db = mails(2).await;
    let is_broken = Arc::new(AtomicBool::new(true));
    let pool = Gate(db.bb8(3).await, Arc::clone(&is_broken));
    let refused = Arc::new(Notify::new());
    let observed = Arc::clone(&refused);
    let worker = Worker::new(&pool, "worker").observe(move |event: claim::Event<'_, Mail>| {
        if matches!(event, claim::Event::NoConnection(Error::Pool(_))) {
            observed.notify_one();
        }
    });
    let worker = worker.until(until_empty(&db, "every mail", OPEN));
    tokio::join!(work(worker), async {
        refused.notified().await;
        refused.notified().await;
        db.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await;
        is_broken.store(false, Ordering::Relaxed);
    });
}

/// A mistake in the program is told at once. Later on, the same error may pass.
#[tokio::test]
async fn a_first_claim_that_the_server_refuses_is_an_error() {
    let db = mails(1).await;
    db.run("ALTER TABLE mail DROP COLUMN run_at").await;
    let pool = db.bb8(2).await;
    let ran = Worker::new(&pool, "worker").run(async |_: Claimed<Mail>| Ok::<_, Error>(()));
    let error = ran.await.unwrap_err();
    assert!(error.to_string().contains("run_at"), "{error}");
}

#[tokio::test]
async fn a_worker_survives_a_server_that_is_read_only_as_it_begins() {
    let db = mails(1).await;
    db.run("CREATE TABLE tries (at timestamptz PRIMARY KEY)")
        .await;
    let read_only = async |value: &str| {
        let set = format!(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = {value}', current_database()); END $$"
        );
        db.run(&set).await;
    };
    read_only("on").await;
    let (pool, done) = (db.bb8(2).await, Notify::new());
    let worker = Worker::new(&pool, "worker").poll_only();
    let ran = worker.until(done.notified()).run(async |_: Claimed<Mail>| {
        done.notify_one();
        Ok::<_, Error>(())
    });
    let writable = async {
        let of_worker = "datname = current_database() AND pid <> pg_backend_pid() AND strpos(query, 'advisory_claim') > 0";
        let tries = format!(
            "INSERT INTO tries SELECT query_start FROM pg_stat_activity WHERE {of_worker} ON CONFLICT DO NOTHING"
        );
        while db.count("SELECT count(*) FROM tries").await < 2 {
            db.run(&tries).await;
        }
        read_only("off").await;
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity";
        db.run(&format!("{end} WHERE {of_worker}")).await;
    };
    let both = async { tokio::join!(ran, writable) };
    let both = tokio::time::timeout(Duration::from_secs(60), both).await;
    both.expect("it tries again").0.unwrap();
}

/// Another worker takes the row, and this one drops the work and goes on.
#[tokio::test]
async fn lost_work_is_dropped_and_the_next_begins() {
    struct Dropped<'a>(&'a AtomicUsize);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let db = mails(2).await;
    let pool = db.bb8(3).await;
    let (begun, dropped) = (Notify::new(), AtomicUsize::new(0));
    let worker = Worker::new(&pool, "worker").poll(Duration::from_millis(20));
    let left = "completed_at IS NULL AND locked_by IS DISTINCT FROM 'another'";
    let worker = worker.until(until_empty(&db, "the other mail", left));
    let (ran, ()) = tokio::join!(
        worker.run(async |job: Claimed<Brief>| {
            let _dropped = Dropped(&dropped);
            if job.id == 1 {
                begun.notify_one();
                pending::<()>().await;
            }
            Ok::<_, Error>(())
        }),
        async {
            begun.notified().await;
            db.run("UPDATE mail SET locked_by = 'another', locked_until = now() + interval '5 minutes' WHERE id = 1")
                .await;
        }
    );
    ran.unwrap();
    assert_eq!(dropped.into_inner(), 2);
    assert_eq!(mails_that(&db, "locked_by = 'another'").await, 1);
}

/// What happens is seen without `tracing`: one event for each claim, each end and each refusal.
#[tokio::test(flavor = "multi_thread")]
async fn an_observer_sees_what_happens_to_each_row_and_each_claim() {
    let db = mails(2).await;
    let pool = db.bb8(3).await;
    let (told, stopped) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
    let (events, stop) = (Arc::clone(&told), Arc::clone(&stopped));
    let observer = move |event: claim::Event<'_, Mail>| {
        let word = match event {
            claim::Event::Acquired(job) => format!("acquired {}", job.id),
            claim::Event::Started(job) => format!("started {}", job.id),
            claim::Event::Finished {
                row, outcome, ran, ..
            } => {
                assert!(ran < Duration::from_secs(300), "{ran:?}");
                match outcome {
                    BodyOutcome::Done => format!("done {}", row.id),
                    BodyOutcome::Failed(text) => format!("failed {}: {text}", row.id),
                    _ => return,
                }
            }
            claim::Event::Ended { row, end, held, .. } => {
                assert!(held < Duration::from_secs(300), "{held:?}");
                format!("{end:?} {}", row.id)
            }
            claim::Event::Refused(Error::Database(_)) => "refused".to_owned(),
            claim::Event::Reconnected => {
                stop.notify_one();
                "reconnected".to_owned()
            }
            _ => return,
        };
        events.lock().unwrap().push(word);
    };
    let worker = Worker::new(&pool, "worker-7")
        .poll(Duration::from_millis(20))
        .poll_only()
        .prefetch(0)
        .observe(observer)
        .until(stopped.notified());
    let seen = async |word: &str| {
        let mut tick = tokio::time::interval(Duration::from_millis(5));
        while !told.lock().unwrap().iter().any(|told| told == word) {
            tick.tick().await;
        }
    };
    let renamed = async {
        seen("failed 2: no").await;
        db.run("ALTER TABLE mail RENAME TO post").await;
        seen("refused").await;
        db.run("ALTER TABLE post RENAME TO mail").await;
    };
    let body = async |job: Claimed<Mail>| match job.id {
        1 => Ok(()),
        _ => Err("no"),
    };
    let (ran, ()) = tokio::join!(worker.run(body), renamed);
    ran.unwrap();
    let mut told = told.lock().unwrap().clone();
    told.dedup();
    assert_eq!(
        told,
        [
            "acquired 1",
            "started 1",
            "Complete 1",
            "done 1",
            "acquired 2",
            "started 2",
            "Retry { after: None } 2",
            "failed 2: no",
            "refused",
            "reconnected"
        ]
    );
}
