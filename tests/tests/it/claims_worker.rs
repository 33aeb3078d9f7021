//! A worker: several rows at a time, every way in which work ends, and a graceful stop.

use crate::mails::{Limited, Mail, mail, mails, until_empty};
use advisory_runtime::claim::{self, Claim, Claimed, End, Error, Worker};
use advisory_runtime::{Pool, PoolError};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Barrier, Notify, oneshot};

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = mail)]
#[claim(ttl = "3s", renew = "100ms", run_at)]
struct Brief {
    id: i64,
}

const OPEN: &str = "completed_at IS NULL AND failed_at IS NULL";

#[tokio::test]
async fn a_worker_does_every_job_and_stops_when_told() {
    let db = mails(50).await;
    let pool = db.bb8(3).await;
    let done = Mutex::new(Vec::new());
    let worker = Worker::new(&pool, "worker-7").concurrency(4);
    let worker = worker.until(until_empty(&db, "every mail", OPEN));
    let ran = worker.run(async |job: Claimed<Mail>| {
        assert!(job.locked_by().starts_with("worker-7#"));
        done.lock().unwrap().push(job.id);
        Ok::<_, Error>(())
    });
    ran.await.unwrap();
    let mut done = done.into_inner().unwrap();
    done.sort_unstable();
    assert_eq!(done, (1..=50).collect::<Vec<i64>>());
    assert_eq!(
        db.count("SELECT count(*) FROM mail WHERE attempts <> 1")
            .await,
        0
    );
}

/// The future of a worker can be spawned: it is `Send`.
#[tokio::test(flavor = "multi_thread")]
async fn spawned_workers_share_the_jobs_of_a_table() {
    async fn deliver(job: Claimed<Mail>) -> Result<(), Error> {
        assert!(job.id > 0);
        Ok(())
    }
    let db = Arc::new(mails(60).await);
    let pool = db.deadpool(4);
    let done = Arc::new(AtomicUsize::new(0));
    let workers = (0..3).map(|nth| {
        let (pool, db, done) = (pool.clone(), Arc::clone(&db), Arc::clone(&done));
        tokio::spawn(async move {
            let stop = until_empty(&db, "every mail", OPEN);
            let worker = Worker::new(&pool, format!("worker-{nth}")).until(stop);
            if nth == 0 {
                return worker.run(deliver).await;
            }
            worker
                .concurrency(2)
                .run(async |job: Claimed<Mail>| {
                    done.fetch_add(1, Ordering::Relaxed);
                    deliver(job).await
                })
                .await
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap().unwrap();
    }
    assert_eq!(
        db.count("SELECT count(*) FROM mail WHERE completed_at IS NOT NULL")
            .await,
        60
    );
}

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
        most.fetch_max(
            running.fetch_add(1, Ordering::Relaxed) + 1,
            Ordering::Relaxed,
        );
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
    let retried = "SELECT count(*) FROM mail WHERE id < 3 AND failed_at IS NULL AND run_at > now() AND locked_by IS NULL";
    assert_eq!(db.count(retried).await, 2);
    db.run("UPDATE mail SET run_at = now()").await;
    let worker = Worker::new(&pool, "worker").until(until_empty(&db, "the last attempts", OPEN));
    worker.run(works).await.unwrap();
    for (id, message) in [
        (1, "no such address"),
        (2, "the body panicked: the address has 3 parts"),
    ] {
        let failed = format!(
            "SELECT count(*) FROM mail WHERE id = {id} AND failed_at IS NOT NULL AND error_message = '{message}'"
        );
        assert_eq!(db.count(&failed).await, 1, "{id}");
    }
}

/// Its other works go on.
#[tokio::test]
async fn an_error_whose_text_panics_ends_only_its_row() {
    struct Mute;
    impl std::fmt::Display for Mute {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("no words")
        }
    }
    let db = mails(2).await;
    let pool = db.bb8(2).await;
    let worker = Worker::new(&pool, "worker").on_err(End::Fail);
    let worker = worker.until(until_empty(&db, "both mails", OPEN));
    let ran = worker.run(async |job: Claimed<Mail>| if job.id == 1 { Err(Mute) } else { Ok(()) });
    ran.await.unwrap();
    let message = "SELECT count(*) FROM mail WHERE error_message = 'the body panicked: no words'";
    assert_eq!(db.count(message).await, 1);
}

/// A row that always fails would come first again at once, with another `locked_by` each time.
#[tokio::test]
async fn a_released_row_is_not_claimed_again_at_once() {
    let db = mails(1).await;
    let pool = db.bb8(2).await;
    let worker = Worker::new(&pool, "worker").on_err(End::Release);
    let worker = worker.poll(Duration::from_secs(3600));
    let ran = worker.run(async |_: Claimed<Mail>| Err::<(), _>("no"));
    let stays = async {
        let free = "SELECT 'free' FROM mail WHERE locked_by IS NULL";
        db.until_empty(Duration::from_secs(30), "the claim", free)
            .await;
        db.run("CREATE TABLE seen AS SELECT locked_by FROM mail")
            .await;
        for _ in 0..100 {
            let same = "SELECT count(*) FROM mail JOIN seen USING (locked_by)";
            assert_eq!(db.count(same).await, 1, "it is not released yet");
        }
    };
    tokio::select! {
        ran = ran => ran.unwrap(),
        () = stays => {}
    }
}

#[tokio::test]
async fn a_worker_ends_failed_jobs_as_it_was_told() {
    let db = mails(1).await;
    let pool = db.bb8(2).await;
    let worker = Worker::new(&pool, "worker").on_err(End::Fail);
    let worker = worker.until(until_empty(&db, "the failure", "failed_at IS NULL"));
    let ran = worker.run(async |_: Claimed<Mail>| Err::<(), _>("no"));
    ran.await.unwrap();
    assert_eq!(
        db.count("SELECT attempts::int8 FROM mail WHERE error_message = 'no'")
            .await,
        1
    );
}

#[tokio::test]
async fn a_work_ends_its_own_claim_and_only_rows_that_fit_are_claimed() {
    let db = mails(3).await;
    let pool = db.bb8(3).await;
    let worker = Worker::new(&pool, "worker").filter(mail::id.ne(2));
    let worker = worker.until(until_empty(
        &db,
        "the mails",
        "id <> 2 AND completed_at IS NULL",
    ));
    let ran = worker.run(async |job: Claimed<Mail>| {
        let mut conn = pool.connection().await?;
        let set = mail::error_message.eq("by hand");
        claim::end(&job).set(set).complete(&mut conn).await
    });
    ran.await.unwrap();
    assert_eq!(
        db.count("SELECT count(*) FROM mail WHERE error_message = 'by hand'")
            .await,
        2
    );
    assert_eq!(
        db.count("SELECT attempts::int8 FROM mail WHERE id = 2")
            .await,
        0
    );
}

/// It claims nothing more, and waits for the work that runs.
#[tokio::test]
async fn a_stopped_worker_finishes_what_runs() {
    let db = mails(5).await;
    let pool = db.bb8(3).await;
    let (begun, go_on) = (Notify::new(), Notify::new());
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = Worker::new(&pool, "worker").until(async { drop(stopped.await) });
    let ran = worker.run(async |_: Claimed<Mail>| {
        begun.notify_one();
        go_on.notified().await;
        Ok::<_, Error>(())
    });
    let (ran, ()) = tokio::join!(ran, async {
        begun.notified().await;
        stop.send(()).unwrap();
        tokio::task::yield_now().await;
        go_on.notify_one();
    });
    ran.unwrap();
    assert_eq!(
        db.count("SELECT count(*) FROM mail WHERE completed_at IS NOT NULL")
            .await,
        1
    );
    assert_eq!(
        db.count("SELECT count(*) FROM mail WHERE locked_by IS NOT NULL")
            .await,
        0
    );
}

/// A pool whose connections come only when they are let.
#[derive(Clone)]
struct Gate {
    pool: diesel_async::pooled_connection::bb8::Pool<AsyncPgConnection>,
    is_broken: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl Pool for Gate {
    type Connection<'p> =
        <diesel_async::pooled_connection::bb8::Pool<AsyncPgConnection> as Pool>::Connection<'p>;

    async fn connection(&self) -> Result<Self::Connection<'_>, PoolError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(PoolError::new("closed for now"));
        }
        self.pool.connection().await
    }
}

/// The claim is on its way when the worker is told to stop: its rows go back, and their attempts do
/// not count.
#[tokio::test]
async fn rows_that_were_not_begun_are_released() {
    let db = mails(4).await;
    let (pool, mut other) = (db.bb8(3).await, db.connect().await);
    other
        .batch_execute("BEGIN; LOCK TABLE mail IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = Worker::new(&pool, "worker").concurrency(4).poll_only();
    let worker = worker.until(async { drop(stopped.await) });
    let ran = worker.run(async |_: Claimed<Mail>| Err::<(), _>("it was stopped"));
    let (ran, ()) = tokio::join!(ran, async {
        let waits = "SELECT 'runs' WHERE NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'mail'::regclass)";
        db.until_empty(Duration::from_secs(30), "the claim", waits)
            .await;
        stop.send(()).unwrap();
        tokio::task::yield_now().await;
        other.batch_execute("COMMIT").await.unwrap();
    });
    ran.unwrap();
    let untouched = "SELECT count(*) FROM mail WHERE locked_by IS NULL AND attempts = 0 AND error_message IS NULL";
    assert_eq!(db.count(untouched).await, 4);
}

#[tokio::test]
async fn a_worker_survives_a_broken_pool_and_lost_connections() {
    let db = mails(2).await;
    let is_broken = Arc::new(AtomicBool::new(true));
    let pool = Gate {
        pool: db.bb8(3).await,
        is_broken: Arc::clone(&is_broken),
        asked: Arc::default(),
    };
    let asked = Arc::clone(&pool.asked);
    let worker = Worker::new(&pool, "worker").poll(Duration::from_millis(20));
    let worker = worker.until(until_empty(&db, "every mail", OPEN));
    let (ran, ()) = tokio::join!(
        worker.run(async |_: Claimed<Mail>| Ok::<_, Error>(())),
        async {
            while asked.load(Ordering::Relaxed) < 2 {
                tokio::task::yield_now().await;
            }
            db.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            .await;
            is_broken.store(false, Ordering::Relaxed);
        }
    );
    ran.unwrap();
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
        let end =
            format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {of_worker}");
        db.run(&end).await;
    };
    let both = async { tokio::join!(ran, writable) };
    let (ran, ()) = tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .expect("the worker does not try again");
    ran.unwrap();
}

#[tokio::test]
async fn a_stopped_worker_does_not_wait_for_its_pause() {
    let db = mails(1).await;
    let pool = db.bb8(2).await;
    let failed = Notify::new();
    let worker = Worker::new(&pool, "worker").on_err(End::Release);
    let worker = worker.poll(Duration::MAX).until(failed.notified());
    let ran = worker.run(async |_: Claimed<Mail>| {
        failed.notify_one();
        Err::<(), _>("no")
    });
    let ran = tokio::time::timeout(Duration::from_secs(30), ran).await;
    ran.expect("it waits for the next poll").unwrap();
    assert_eq!(
        db.count("SELECT count(*) FROM mail WHERE locked_by IS NULL")
            .await,
        1
    );
}

#[tokio::test]
async fn a_dropped_worker_releases_its_rows() {
    let db = mails(2).await;
    let pool = db.bb8(3).await;
    let begun = Notify::new();
    {
        let worker = Worker::new(&pool, "worker").concurrency(2);
        let ran = worker.run(async |_: Claimed<Mail>| {
            begun.notify_one();
            pending::<Result<(), Error>>().await
        });
        tokio::select! {
            ran = ran => panic!("{ran:?}"),
            () = begun.notified() => {}
        }
    }
    until_empty(&db, "the release", "locked_by IS NOT NULL").await;
    assert_eq!(db.count("SELECT sum(attempts) FROM mail").await, 0);
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
    assert_eq!(
        db.count("SELECT count(*) FROM mail WHERE locked_by = 'another'")
            .await,
        1
    );
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
        seen("Retry { after: None } 2").await;
        db.run("ALTER TABLE mail RENAME TO post").await;
        seen("refused").await;
        db.run("ALTER TABLE post RENAME TO mail").await;
    };
    let body = async |job: Claimed<Mail>| match job.id {
        1 => Ok(()),
        _ => Err(PoolError::new("no")),
    };
    let (ran, ()) = tokio::join!(worker.run(body), renamed);
    ran.unwrap();
    let mut told = told.lock().unwrap().clone();
    told.dedup();
    assert_eq!(
        told,
        [
            "acquired 1",
            "Complete 1",
            "acquired 2",
            "Retry { after: None } 2",
            "refused",
            "reconnected"
        ]
    );
}
