//! A worker fetches ahead and ends rows together: each job is done once, none waits here for long,
//! and few statements do it.

use crate::mails::{
    Brief, Mail, OPEN, lock_table, mail, mails, mails_that, until_empty, until_listening, work,
};
use advisory_runtime::Pool as _;
use advisory_runtime::claim::{self, Claim, Claimed, End, Error, Event, Worker};
use advisory_tests::Database;
use advisory_tests::futures::{dropped, spawn};
use advisory_tests::monitor::until_waiters;
use advisory_tests::statements::{Sent, prepared, run};
use diesel::{ExpressionMethods, Queryable, Selectable};
use diesel_async::AsyncConnection;
use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Its attempts count, and it is deleted when it is done.
#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = mail)]
#[claim(ttl = "5m", run_at, attempts, completed_at = "delete")]
struct Gone {
    id: i64,
}

const NEVER: Duration = Duration::from_secs(3600);
const DONE: &str = "completed_at IS NOT NULL";

/// Records each statement of this kind, whatever it changes, as a row of its own.
async fn record_statements(db: &Database, kind: &str) {
    db.run(&format!(
        "CREATE TABLE statement ();
         CREATE FUNCTION record() RETURNS trigger LANGUAGE plpgsql
             AS $$ BEGIN INSERT INTO statement DEFAULT VALUES; RETURN NULL; END $$;
         CREATE TRIGGER record AFTER {kind} ON mail FOR EACH STATEMENT EXECUTE FUNCTION record()"
    ))
    .await;
}

const STATEMENTS: &str = "SELECT count(*) FROM statement";

async fn until_statements(db: &Database, count: u32) {
    let sql = format!("SELECT 'not yet' WHERE ({STATEMENTS}) < {count}");
    db.until_none("the statements", &sql).await;
}

async fn until_held(db: &Database, count: i64) {
    let sql = format!(
        "SELECT 'not yet' WHERE (SELECT count(*) FROM mail WHERE locked_until > now()) <> {count}"
    );
    db.until_none("rows that are held", &sql).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_do_each_job_once_although_one_is_stopped_in_the_middle() {
    const JOBS: usize = 2_100;
    let db = Arc::new(mails(2_100).await);
    let pool = db.bb8(6).await;
    let runs = Arc::new(Mutex::new(HashMap::<i64, usize>::new()));
    let (middle, count) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let workers = [true, false].map(|is_stopped| {
        let (pool, runs, middle) = (pool.clone(), Arc::clone(&runs), Arc::clone(&middle));
        let (db, count) = (Arc::clone(&db), Arc::clone(&count));
        spawn(async move {
            let stop = async {
                if is_stopped {
                    middle.notified().await;
                } else {
                    until_empty(&db, "every mail", OPEN).await;
                }
            };
            let worker = Worker::new(&pool, "worker").concurrency(10).prefetch(700);
            let worker = worker.poll(Duration::from_millis(20)).until(stop);
            let ran = worker.run(async |job: Claimed<Mail>| {
                *runs.lock().unwrap().entry(job.id).or_default() += 1;
                if count.fetch_add(1, Ordering::Relaxed) == JOBS / 3 {
                    middle.notify_one();
                }
                tokio::task::yield_now().await;
                Ok::<_, Error>(())
            });
            ran.await
        })
    });
    for worker in workers {
        worker.await.unwrap().unwrap();
    }
    let runs = runs.lock().unwrap().clone();
    assert_eq!(runs.len(), JOBS);
    assert!(runs.values().all(|times| *times == 1));
    assert_eq!(mails_that(&db, DONE).await, 2_100);
    let other = "attempts <> 1 OR locked_by IS NOT NULL";
    assert_eq!(mails_that(&db, other).await, 0);
}

/// The bodies run in the order of the claims, and by few statements: 500 rows by 300 at a time.
#[tokio::test]
async fn rows_are_claimed_and_ended_many_at_a_time_and_begin_in_order() {
    let db = mails(500).await;
    db.run("UPDATE mail SET run_at = now() - id * interval '1 s'")
        .await;
    record_statements(&db, "UPDATE").await;
    let pool = db.bb8(3).await;
    let order = Mutex::new(Vec::new());
    let worker = Worker::new(&pool, "worker").prefetch(599).until_empty();
    let ran = worker.poll_only().run(async |job: Claimed<Mail>| {
        order.lock().unwrap().push(job.id);
        Ok::<_, Error>(())
    });
    ran.await.unwrap();
    let order = order.into_inner().unwrap();
    assert_eq!(order, (1..=500).rev().collect::<Vec<i64>>());
    assert_eq!(mails_that(&db, DONE).await, 500);
    let statements = db.count(STATEMENTS).await;
    assert!(statements <= 30, "{statements}");
}

#[tokio::test]
async fn rows_that_are_deleted_are_deleted_many_at_a_time() {
    let db = mails(300).await;
    record_statements(&db, "DELETE").await;
    let pool = db.bb8(3).await;
    let worker = Worker::new(&pool, "worker").prefetch(599).until_empty();
    let ran = worker.run(async |job: Claimed<Gone>| {
        assert!(job.id > 0);
        Ok::<_, Error>(())
    });
    ran.await.unwrap();
    assert_eq!(db.count("SELECT count(*) FROM mail").await, 0);
    let statements = db.count(STATEMENTS).await;
    assert!(statements <= 15, "{statements}");
}

/// Locking them first costs as much as the change.
#[tokio::test]
async fn ends_that_go_together_do_not_lock_their_rows_first() {
    let db = mails(40).await;
    let pool = db.bb8(2).await;
    let all = tokio::sync::Barrier::new(40);
    let worker = Worker::new(&pool, "worker").concurrency(40).until_empty();
    let ran = worker.run(async |_: Claimed<Mail>| {
        all.wait().await;
        Ok::<_, Error>(())
    });
    ran.await.unwrap();
    assert_eq!(mails_that(&db, DONE).await, 40);
    let (mut first, mut second) = tokio::try_join!(pool.get(), pool.get()).unwrap();
    for conn in [&mut first, &mut second] {
        for Sent { statement, .. } in prepared(conn, "WITH ORDINALITY").await {
            assert!(!statement.contains("advisory_locked"), "{statement}");
        }
    }
}

/// Of a batch, one row is locked by an open transaction, the text of another one does not fit, and
/// one was taken away.
#[tokio::test]
async fn a_row_that_cannot_be_ended_together_holds_up_no_other() {
    let db = mails(40).await;
    db.run("ALTER TABLE mail ADD CHECK (length(error_message) < 9)")
        .await;
    let (pool, mut other) = (db.bb8(4).await, db.connect().await);
    let begun = Notify::new();
    let (begun, at_once) = (&begun, tokio::sync::Barrier::new(41));
    let worker = Worker::new(&pool, "worker")
        .concurrency(40)
        .on_err(End::Fail);
    let ran = worker.until_empty().run(async |job: Claimed<Mail>| {
        at_once.wait().await;
        begun.notified().await;
        begun.notify_one();
        match job.id {
            1 => Err("a text that does not fit".to_owned()),
            2 => Err("a text".to_owned()),
            _ => Ok(()),
        }
    });
    let (ran, ()) = tokio::join!(ran, async {
        at_once.wait().await;
        let lock = "BEGIN; SELECT FROM mail WHERE id = 7 FOR UPDATE";
        run(&mut other, lock).await;
        db.run("UPDATE mail SET locked_by = 'another' WHERE id = 9")
            .await;
        begun.notify_one();
        let others = format!("{OPEN} AND id <> 7 AND id <> 9");
        until_empty(&db, "all but two", &others).await;
        assert_eq!(mails_that(&db, "id = 7 AND locked_by IS NOT NULL").await, 1);
        run(&mut other, "COMMIT").await;
        until_empty(&db, "the locked one", &format!("{OPEN} AND id = 7")).await;
        db.run("DELETE FROM mail WHERE id = 9").await;
    });
    ran.unwrap();
    for failed in [
        "id = 1 AND error_message IS NULL",
        "id = 2 AND error_message = 'a text'",
    ] {
        let failed = format!("failed_at IS NOT NULL AND {failed}");
        assert_eq!(mails_that(&db, &failed).await, 1, "{failed}");
    }
    assert_eq!(mails_that(&db, DONE).await, 37);
}

/// The body of the first row returns when another worker has done the others.
#[tokio::test]
async fn rows_that_wait_for_long_go_back_and_others_do_them() {
    let db = mails(20).await;
    let pool = db.bb8(4).await;
    let first = Worker::new(&pool, "first")
        .prefetch(30)
        .poll(Duration::from_millis(50));
    let first = first.until(until_empty(&db, "every mail", OPEN));
    let first = first.run(async |job: Claimed<Brief>| {
        if job.id == 1 {
            until_empty(&db, "the others", &format!("{OPEN} AND id > 1")).await;
        }
        Ok::<_, Error>(())
    });
    let other = async {
        until_held(&db, 20).await;
        let other = Worker::new(&pool, "other").poll(Duration::from_millis(50));
        work::<Brief, _>(other.until(until_empty(&db, "every mail", OPEN))).await;
    };
    let (first, ()) = tokio::join!(first, other);
    first.unwrap();
    // They got their attempt back.
    assert_eq!(mails_that(&db, "attempts <> 1").await, 0);
}

#[tokio::test]
async fn a_dropped_worker_releases_what_it_has_fetched_ahead() {
    let db = mails(10).await;
    let pool = db.bb8(3).await;
    // What is claimed, and not yet answered, would stay claimed for its ttl.
    let (all, answered) = (Arc::new(Notify::new()), AtomicUsize::new(0));
    let ended = Arc::new(Mutex::new(Vec::new()));
    let observer = {
        let (all, ended) = (Arc::clone(&all), Arc::clone(&ended));
        move |event: Event<'_, Mail>| match event {
            Event::Acquired(_) if answered.fetch_add(1, Ordering::Relaxed) == 9 => all.notify_one(),
            Event::Finished { outcome, .. } => ended.lock().unwrap().push(format!("{outcome:?}")),
            _ => {}
        }
    };
    let worker = Worker::new(&pool, "worker").prefetch(30).observe(observer);
    let ran = worker.run(async |_: Claimed<Mail>| pending::<Result<(), Error>>().await);
    dropped(ran, all.notified()).await;
    assert_eq!(*ended.lock().unwrap(), ["Dropped"], "one body had begun");
    until_held(&db, 0).await;
    assert_eq!(db.count("SELECT sum(attempts) FROM mail").await, 0);
    let worker = Worker::new(&pool, "other").prefetch(30).until_empty();
    work::<Mail, _>(worker).await;
    assert_eq!(mails_that(&db, DONE).await, 10);
}

/// The process ends with its keeper: here the rows belong to a worker that nobody knows.
#[tokio::test]
async fn rows_that_a_dead_worker_has_fetched_ahead_expire() {
    let db = mails(30).await;
    let mut conn = db.connect().await;
    let dead = claim::next::<Brief>("dead").load(&mut conn, 30).await;
    assert_eq!(dead.unwrap().len(), 30);
    let pool = db.bb8(3).await;
    // The backoff of an expired claim does not belong to this test.
    db.run("UPDATE mail SET locked_until = now() - interval '1 hour'")
        .await;
    let running = AtomicUsize::new(0);
    let worker = Worker::new(&pool, "other").concurrency(5).prefetch(30);
    let ran = worker.until_empty().run(async |_: Claimed<Brief>| {
        // One of them at a time: each may be the one that has ended its process.
        assert_eq!(running.fetch_add(1, Ordering::Relaxed), 0);
        tokio::task::yield_now().await;
        running.fetch_sub(1, Ordering::Relaxed);
        Ok::<_, Error>(())
    });
    ran.await.unwrap();
    assert_eq!(mails_that(&db, DONE).await, 30);
}

/// It may end the process: so it begins last, and nothing waits behind it.
#[tokio::test]
async fn a_row_that_has_expired_begins_when_nothing_waits() {
    let db = mails(20).await;
    db.run("UPDATE mail SET run_at = now() - interval '1 day' + id * interval '1 s'")
        .await;
    db.run("UPDATE mail SET locked_until = now() - interval '1 day', locked_by = 'dead', attempts = 1 WHERE id = 2 OR id = 3")
        .await;
    let pool = db.bb8(3).await;
    let order = Mutex::new(Vec::new());
    let worker = Worker::new(&pool, "worker").prefetch(9).until_empty();
    let ran = worker.run(async |job: Claimed<Brief>| {
        if job.id == 2 || job.id == 3 {
            // Those whose bodies have returned are ended.
            until_held(&db, 1).await;
            let mine = "SELECT id FROM mail WHERE locked_until > now()";
            assert_eq!(db.count(mine).await, job.id);
        }
        order.lock().unwrap().push(job.id);
        Ok::<_, Error>(())
    });
    ran.await.unwrap();
    let order = order.into_inner().unwrap();
    assert_eq!(order[..4], [1, 4, 5, 2], "{order:?}");
    assert_eq!(order.len(), 20);
    assert_eq!(mails_that(&db, DONE).await, 20);
}

/// Ten times the pause of the polls takes that long.
#[tokio::test]
async fn an_idle_worker_sends_one_statement_for_each_poll() {
    const POLL: Duration = Duration::from_millis(100);
    let db = mails(0).await;
    record_statements(&db, "UPDATE").await;
    let pool = db.bb8(2).await;
    let since = Instant::now();
    let worker = Worker::new(&pool, "worker").poll(POLL).prefetch(100);
    let worker = worker.until(until_statements(&db, 12));
    work::<Mail, _>(worker).await;
    // The first two come as it begins and as it listens.
    assert!(since.elapsed() >= POLL * 9, "{:?}", since.elapsed());
}

/// Those that come during a claim are one.
#[tokio::test]
async fn fifty_notifications_wake_ten_workers_for_two_claims_each() {
    let db = mails(0).await;
    let pool = db.bb8(12).await;
    let (mut locks, mut notifies) = (db.connect().await, db.connect().await);
    let stopped = tokio::sync::Semaphore::new(0);
    let five = async || {
        let stop = async || drop(stopped.acquire().await);
        let worker = || Worker::new(&pool, "worker").poll(NEVER).until(stop());
        let run = || work::<Mail, _>(worker());
        tokio::join!(run(), run(), run(), run(), run());
    };
    let notify = async {
        until_listening(&db).await;
        record_statements(&db, "UPDATE").await;
        // A first round shows that all have looked after they began to listen, and are idle.
        for count in [10, 20, 30] {
            db.run(NOTIFY).await;
            until_statements(&db, count).await;
        }
        let busy = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()";
        db.until_none("that all are idle", busy).await;
        db.run("TRUNCATE statement").await;
        lock_table(&mut locks).await;
        for _ in 0..50 {
            run(&mut notifies, NOTIFY).await;
        }
        until_waiters(&db, 10).await;
        run(&mut locks, "COMMIT").await;
        // The workers' own end tells that all have been answered.
        until_statements(&db, 10).await;
        stopped.close();
    };
    tokio::join!(five(), five(), notify);
    let statements = db.count(STATEMENTS).await;
    assert!((10..=20).contains(&statements), "{statements}");
}

const NOTIFY: &str = "SELECT pg_notify('advisory_claim', 'mail'::regclass::oid::text)";

/// What a job's own transaction has ended is left as it is, in a batch too.
#[tokio::test]
async fn a_job_that_its_body_has_ended_is_not_ended_again() {
    let db = mails(60).await;
    let pool = db.bb8(4).await;
    let worker = Worker::new(&pool, "worker").concurrency(3).prefetch(60);
    let worker = worker.filter(mail::id.ne(2));
    let ran = worker.until_empty().run(async |job: Claimed<Mail>| {
        if job.id % 3 == 0 {
            let mut conn = pool.connection().await?;
            let ended = conn.transaction(async |conn| claim::fail(conn, &job, "by hand").await);
            ended.await?;
        }
        Ok::<_, Error>(())
    });
    ran.await.unwrap();
    assert_eq!(mails_that(&db, DONE).await, 39);
    assert_eq!(mails_that(&db, "id = 2 AND attempts = 0").await, 1);
    let failed = "error_message = 'by hand' AND failed_at IS NOT NULL";
    assert_eq!(mails_that(&db, failed).await, 20);
}
