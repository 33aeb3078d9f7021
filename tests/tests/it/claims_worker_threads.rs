//! A worker for blocking Diesel: its bodies run on threads, in a program without a runtime.

use crate::mails::{Brief, Mail, OPEN, lock_table, mail, mails, mails_that, until_empty};
use advisory_runtime::blocking::{WithUrl, claim};
use advisory_runtime::claim::{Claimed, Event, Worker};
use advisory_tests::futures::{spawn, spawn_blocking};
use advisory_tests::pauses::pause_thread;
use advisory_tests::{Database, Proxy};
use diesel::prelude::*;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

/// What the program returns, which has no runtime.
async fn program<R: Send + 'static>(main: impl FnOnce() -> R + Send + 'static) -> R {
    let (reply, returned) = oneshot::channel();
    let thread = thread::spawn(move || {
        assert!(Handle::try_current().is_err());
        drop(reply.send(main()));
    });
    match returned.await {
        Ok(returned) => returned,
        Err(_) => match thread.join() {
            Err(panic) => resume_unwind(panic),
            Ok(()) => unreachable!("it replies"),
        },
    }
}

/// Each body waits for the other one, so that they must run at the same time.
#[tokio::test]
async fn bodies_run_on_as_many_threads_as_it_says() {
    let db = mails(20).await;
    let pool = db.r2d2(3);
    let both = Arc::new(Barrier::new(2));
    let (running, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let threads: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let (most_seen, names) = (Arc::clone(&most), Arc::clone(&threads));
    let caller = Arc::new(Mutex::new(None::<ThreadId>));
    let ran = program(move || {
        *caller.lock().unwrap() = Some(thread::current().id());
        let worker = Worker::new(&pool, "worker-7").concurrency(2).until_empty();
        worker.run_blocking(move |job: Claimed<Mail>| {
            assert!(job.locked_by().starts_with("worker-7#"));
            assert_ne!(*caller.lock().unwrap(), Some(thread::current().id()));
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            most_seen.fetch_max(now, Ordering::SeqCst);
            both.wait();
            let id = format!("{:?}", thread::current().id());
            names.lock().unwrap().insert(id);
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Infallible>(())
        })
    });
    ran.await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(threads.lock().unwrap().len(), 2);
    let done = "completed_at IS NOT NULL AND attempts = 1 AND locked_by IS NULL";
    assert_eq!(mails_that(&db, done).await, 20);
}

#[tokio::test]
async fn errors_and_panics_of_threads_are_retried() {
    let db = mails(3).await;
    let pool = db.r2d2(3);
    let ran = program(move || {
        let worker = Worker::new(&pool, "worker").concurrency(2).until_empty();
        worker.run_blocking(|job: Claimed<Mail>| match job.id {
            1 => Err("no such address"),
            2 => panic!("the address has {} parts", 3),
            _ => Ok(()),
        })
    });
    ran.await.unwrap();
    for (id, message) in [
        (1, "no such address"),
        (2, "the body panicked: the address has 3 parts"),
    ] {
        let retried = format!(
            "id = {id} AND run_at > now() AND locked_by IS NULL AND error_message = '{message}'"
        );
        assert_eq!(mails_that(&db, &retried).await, 1, "{id}");
    }
    assert_eq!(mails_that(&db, "completed_at IS NOT NULL").await, 1);
}

/// It claims nothing more, gives back what has not begun, and waits for the body that runs.
#[tokio::test]
async fn a_stopped_worker_waits_for_its_threads() {
    let db = mails(5).await;
    let pool = db.r2d2(3);
    let (begun, has_begun) = oneshot::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (stop, stopped) = oneshot::channel::<()>();
    let once = Mutex::new(Some((begun, may_go_on)));
    let ran = spawn(program(move || {
        let worker = Worker::new(&pool, "worker").prefetch(4);
        let worker = worker.until(async { drop(stopped.await) });
        worker.run_blocking(move |_: Claimed<Mail>| {
            let (begun, may_go_on) = once.lock().unwrap().take().expect("one body begins");
            begun.send(()).unwrap();
            may_go_on.recv().unwrap();
            Ok::<_, Infallible>(())
        })
    }));
    has_begun.await.unwrap();
    until_empty(&db, "what is claimed ahead", "locked_by IS NULL AND id < 3").await;
    stop.send(()).unwrap();
    let others = "locked_by IS NOT NULL AND (SELECT count(locked_by) FROM mail) > 1";
    until_empty(&db, "the release of what has not begun", others).await;
    assert!(!ran.is_finished());
    go_on.send(()).unwrap();
    ran.await.unwrap().unwrap();
    assert_eq!(mails_that(&db, "completed_at IS NOT NULL").await, 1);
    let left = "completed_at IS NULL AND attempts = 0 AND locked_by IS NULL";
    assert_eq!(mails_that(&db, left).await, 4);
}

#[tokio::test]
async fn a_worker_leaves_its_threads_after_its_grace_and_gives_their_attempt_back() {
    let db = mails(2).await;
    let pool = db.r2d2(3);
    let begun = Arc::new(Barrier::new(3));
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Arc::new(Mutex::new(may_go_on));
    let (over, is_over) = mpsc::channel();
    let since = Instant::now();
    let ran = program(move || {
        let all = Arc::clone(&begun);
        let (stop, stopped) = oneshot::channel::<()>();
        thread::spawn(move || {
            all.wait();
            stop.send(()).unwrap();
        });
        let worker = Worker::new(&pool, "w").concurrency(2);
        let worker = worker.until(async { drop(stopped.await) });
        let worker = worker.grace(Duration::from_millis(100));
        worker.run_blocking(move |job: Claimed<Mail>| {
            begun.wait();
            let _: Result<(), mpsc::RecvError> = may_go_on.lock().unwrap().recv();
            over.send(job.is_finished()).unwrap();
            Ok::<_, Infallible>(())
        })
    });
    ran.await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(60));
    let released = "locked_by IS NULL AND attempts = 0";
    assert_eq!(mails_that(&db, released).await, 2, "when it returns");
    drop(go_on);
    // They see that their claim has ended, and that they return changes nothing.
    assert_eq!(is_over.iter().take(2).collect::<Vec<_>>(), [true, true]);
    assert_eq!(mails_that(&db, released).await, 2);
}

/// A thread cannot be dropped.
#[tokio::test]
async fn the_body_of_a_lost_row_keeps_its_thread_and_its_result_is_refused() {
    let db = mails(2).await;
    let pool = db.r2d2(3);
    let (on_begin, mut begun) = unbounded_channel();
    let (on_loss, mut lost) = unbounded_channel();
    let (on_end, mut ended) = unbounded_channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let (stop, stopped) = oneshot::channel::<()>();
    let ran = spawn(program(move || {
        let worker = Worker::<Brief, _>::new(&pool, "w").poll(Duration::from_millis(10));
        let worker = worker.until(async { drop(stopped.await) });
        let worker = worker.observe(move |event| match event {
            Event::Lost(job) => on_loss.send(job.id).unwrap(),
            Event::Ended { row, .. } => on_end.send(row.id).unwrap(),
            _ => {}
        });
        worker.run_blocking(move |job: Claimed<Brief>| {
            on_begin.send(job.id).unwrap();
            let _: Result<(), mpsc::RecvError> = may_go_on.lock().unwrap().recv();
            Ok::<_, Infallible>(())
        })
    }));
    assert_eq!(begun.recv().await, Some(1));
    let row = "locked_by = 'other', locked_until = now() + interval '1h' WHERE id = 1";
    db.run(&format!("UPDATE mail SET {row}")).await;
    assert_eq!(lost.recv().await, Some(1));
    for _ in 0..100 {
        assert_eq!(mails_that(&db, "id = 2 AND locked_by IS NOT NULL").await, 0);
    }
    assert!(begun.try_recv().is_err());
    drop(go_on);
    until_empty(&db, "the other mail", "id = 2 AND completed_at IS NULL").await;
    stop.send(()).unwrap();
    ran.await.unwrap().unwrap();
    let others = "id = 1 AND locked_by = 'other' AND completed_at IS NULL";
    assert_eq!(mails_that(&db, others).await, 1);
    assert_eq!((ended.recv().await, ended.recv().await), (Some(2), None));
}

/// The ttl is four seconds, and the pool's only connection is the body's.
#[tokio::test]
async fn rows_are_renewed_while_a_thread_works() {
    let db = mails(1).await;
    let pool = WithUrl::new(db.r2d2(1), db.url());
    let ran = program(move || {
        let own = pool.clone();
        let worker = Worker::new(&pool, "w").until_empty();
        worker.run_blocking(move |job: Claimed<Brief>| {
            use advisory_runtime::blocking::Pool as _;
            let mut conn = own.connection()?;
            let first = job.deadline();
            while job.deadline() < first + Duration::from_secs(4) {
                pause_thread();
            }
            // In the transaction that would write its results.
            conn.transaction(|conn| claim::complete(conn, &job))
        })
    });
    ran.await.unwrap();
    let done = "completed_at IS NOT NULL AND locked_by IS NULL";
    assert_eq!(mails_that(&db, done).await, 1);
}

/// The ttl is five minutes.
#[tokio::test]
async fn a_worker_of_threads_returns_although_the_server_does_not_answer() {
    let db = mails(1).await;
    let proxy = Arc::new(Proxy::start(&db).await);
    let pool = Database::r2d2_at(proxy.url(), 3);
    let stopping = Arc::clone(&proxy);
    let (stop, stopped) = oneshot::channel::<()>();
    let stop = Mutex::new(Some(stop));
    let since = Instant::now();
    let ran = program(move || {
        let worker = Worker::new(&pool, "w").until(async { drop(stopped.await) });
        worker.run_blocking(move |_: Claimed<Mail>| {
            stopping.stop_forwarding();
            drop(stop.lock().unwrap().take());
            Ok::<_, Infallible>(())
        })
    });
    ran.await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(100));
    proxy.resume_forwarding();
}

/// Also on a thread of a runtime that may be blocked, with a condition and columns of its own.
#[tokio::test]
async fn a_worker_of_threads_has_the_settings_of_any_worker() {
    let db = mails(4).await;
    let pool = db.r2d2(2);
    let ran = spawn_blocking(move || {
        let worker = Worker::new(&pool, "w").filter(mail::id.gt(2)).until_empty();
        let worker = worker.set(mail::error_message.eq("running"));
        worker.run_blocking(|_: Claimed<Mail>| Ok::<_, Infallible>(()))
    });
    ran.await.unwrap().unwrap();
    assert_eq!(mails_that(&db, "error_message = 'running'").await, 2);
    let others = "id <= 2 AND locked_by IS NULL AND error_message IS NULL";
    assert_eq!(mails_that(&db, &format!("{OPEN} AND {others}")).await, 2);
}

/// Nobody waits for them any more, and the ttl is five minutes.
#[tokio::test]
async fn rows_that_are_claimed_too_late_are_released() {
    let db = mails(1).await;
    db.run(
        "CREATE TABLE claimed (id int8);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql
             AS $$ BEGIN INSERT INTO claimed VALUES (NEW.id); RETURN NULL; END $$;
         CREATE TRIGGER noted AFTER UPDATE ON mail FOR EACH ROW
             WHEN (NEW.locked_by IS NOT NULL) EXECUTE FUNCTION note()",
    )
    .await;
    let pool = db.r2d2(3);
    let mut other = db.connect().await;
    lock_table(&mut other).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let stop = Mutex::new(Some(stop));
    let ran = program(move || {
        let worker = Worker::<Mail, _>::new(&pool, "w");
        let worker = worker.until(async { drop(stopped.await) });
        // The claim was given up.
        let worker = worker.observe(move |event| {
            if let Event::NoConnection(_) = event {
                drop(stop.lock().unwrap().take());
            }
        });
        worker.run_blocking(|_: Claimed<Mail>| Ok::<_, Infallible>(()))
    });
    ran.await.unwrap();
    drop(other);
    let left = "locked_by IS NOT NULL OR attempts <> 0 OR NOT EXISTS (SELECT FROM claimed)";
    until_empty(&db, "the release", left).await;
    assert_eq!(mails_that(&db, OPEN).await, 1);
}
