//! Renewals that nothing holds up: not a locked row, not an end that waits. The session of one that
//! is not answered in time is ended.

use crate::sync_job::{self, SCHEMA, brief, jobs, sync_jobs};
use advisory_runtime::claim::{self, Claim, Claimed, Event};
use advisory_runtime::lease::{self, Error, Leases, Request};
use advisory_tests::leases::{database, key, until_renewed};
use advisory_tests::statements::run;
use advisory_tests::{Database, Proxy, assert_matches, pid_of};
use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc};

/// So long that a statement has ten seconds for its answer.
const TTL: Duration = Duration::from_secs(60);
/// The sessions that wait for a row.
const WAITING: &str = "SELECT pid::int8 FROM pg_locks JOIN pg_stat_activity USING (pid) \
    WHERE NOT granted AND locktype IN ('transactionid', 'tuple') AND datname = current_database()";

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = sync_jobs)]
#[claim(ttl = "1m", renew = "100ms")]
struct LongJob {
    id: i64,
}

#[tokio::test]
async fn renewals_do_not_wait_for_a_locked_row() {
    let db = database().await;
    db.run(&format!("{SCHEMA}; {}", jobs(2))).await;
    let (pool, mut other) = (db.deadpool(2), db.connect().await);
    let (renewed, begun, over) = (Arc::new(Semaphore::new(0)), Notify::new(), Notify::new());
    let counted = Arc::clone(&renewed);
    let worker = claim::Worker::new(&pool, "w").concurrency(2).poll_only();
    let worker = worker.observe(move |event: Event<'_, LongJob>| match event {
        Event::Renewed(job) if job.id == 2 => counted.add_permits(1),
        _ => {}
    });
    let working = worker
        .until(over.notified())
        .run(async |job: Claimed<LongJob>| {
            begun.notify_one();
            if job.id == 1 {
                pending::<()>().await;
            }
            over.notified().await;
            Ok::<_, Error>(())
        });
    let locking = async {
        begun.notified().await;
        run(
            &mut other,
            "BEGIN; SELECT FROM sync_jobs WHERE id = 1 FOR UPDATE",
        )
        .await;
        for _ in 0..10 {
            renewed.acquire().await.unwrap().forget();
            assert_eq!(
                db.count(&format!("SELECT count(*) FROM ({WAITING}) AS waiting"))
                    .await,
                0
            );
        }
    };
    tokio::select! {
        result = working => panic!("it has ended: {result:?}"),
        () = locking => {}
    }
}

#[tokio::test]
async fn an_end_that_waits_holds_up_no_renewal() {
    let db = database().await;
    let (pool, mut other) = (db.deadpool(1), db.connect().await);
    let leases = Leases::new(pool.clone());
    let ended = leases.acquire(request("ended", TTL / 3)).await.unwrap();
    let held = leases
        .acquire(request("held", Duration::from_millis(100)))
        .await
        .unwrap();
    // The keeper has its own connections only.
    let _conn = pool.get().await.unwrap();
    let lock = format!(
        "BEGIN; SELECT FROM advisory_lease WHERE token = {} FOR UPDATE",
        ended.lease().token().get()
    );
    other.batch_execute(&lock).await.unwrap();
    drop(ended);
    db.until_some("an end that waits", WAITING).await;
    let end = db.count(WAITING).await;
    for _ in 0..3 {
        until_renewed(held.lease()).await;
    }
    assert_eq!(db.count(WAITING).await, end, "it waits no more");
}

/// The network has lost the keeper's own connection, and no renewal fails.
#[tokio::test]
async fn a_renewal_without_an_answer_is_sent_again_on_another_connection() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let pool = Database::deadpool_at(proxy.url(), 1);
    let (report, mut renewals) = mpsc::unbounded_channel();
    let leases = Leases::new(pool.clone()).observe(move |event| {
        let renewal = match event {
            lease::Event::Renewed(_) => Ok(()),
            lease::Event::RenewalFailed(_, error) => Err(error.to_string()),
            _ => return,
        };
        drop(report.send(renewal));
    });
    let ttl = Duration::from_secs(10);
    let brief = key("brief").ttl(ttl).renew(Duration::from_millis(100));
    let _held = leases.acquire(brief).await.unwrap();
    // The keeper has its own connection only, and has sent a renewal there.
    let _conn = pool.get().await.unwrap();
    for _ in 0..3 {
        assert_eq!(renewals.recv().await, Some(Ok(())));
    }
    proxy.stall_open_connections();
    while renewals.try_recv().is_ok() {}
    // The first of them may have been answered before.
    for _ in 0..2 {
        assert_eq!(renewals.recv().await, Some(Ok(())));
    }
}

fn request(text: &str, renew: Duration) -> Request {
    key(text).ttl(TTL).renew(renew)
}

/// A manager that considers every connection good.
struct Trusting(String);

impl bb8::ManageConnection for Trusting {
    type Connection = AsyncPgConnection;
    type Error = ConnectionError;

    async fn connect(&self) -> Result<AsyncPgConnection, ConnectionError> {
        AsyncPgConnection::establish(&self.0).await
    }

    async fn is_valid(&self, _: &mut AsyncPgConnection) -> Result<(), ConnectionError> {
        Ok(())
    }

    fn has_broken(&self, _: &mut AsyncPgConnection) -> bool {
        false
    }
}

#[tokio::test]
async fn an_unanswered_session_ends_even_if_its_pool_keeps_it() {
    let db = sync_job::database(1).await;
    let pool = bb8::Pool::builder().max_size(1);
    let pool: bb8::Pool<Trusting> = pool.build(Trusting(db.url().to_owned())).await.unwrap();
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let job = brief(&mut conn).await;
    let pid = pid_of(&mut pool.get().await.unwrap()).await;
    run(&mut other, "BEGIN; LOCK TABLE sync_jobs").await;
    let kept = claim::renew_while(&pool, &job, pending::<()>()).await;
    assert_matches!(kept, Err(claim::Error::Lost { .. }));
    let session = format!("SELECT query FROM pg_stat_activity WHERE pid = {pid}");
    db.until_empty(Duration::from_secs(15), "the session's end", &session)
        .await;
    drop(other);
}
