//! The keeper: rows are renewed and ended whatever the program's own threads, runtime and pool do.

use crate::sync_job::{self, Brief, SCHEMA};
use advisory_runtime::blocking::{self, WithUrl};
use advisory_runtime::claim::{self, Claimed, End};
use advisory_runtime::lease::{Error, Request, Source};
use advisory_tests::futures::spawn;
use advisory_tests::leases::{Pool, database, key, until_free};
use advisory_tests::{Database, assert_matches};
use diesel::prelude::*;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Long enough for a renewal on a machine that has more to do than it can.
const TTL: Duration = Duration::from_secs(4);

fn block_thread(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}

fn runtimes() -> [Runtime; 2] {
    let two_threads = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let current_thread = Builder::new_current_thread().enable_all().build();
    [two_threads.unwrap(), current_thread.unwrap()]
}

/// Blocks the other thread of a runtime with two for as long as the body blocks its own.
fn block_both() {
    if tokio::runtime::Handle::current().metrics().num_workers() > 1 {
        drop(spawn(async { block_thread(TTL * 3) }));
    }
    block_thread(TTL * 3);
}

/// A pool whose connections live on this runtime.
fn pool_on(runtime: &Runtime, db: &Database, size: usize) -> Pool {
    let _entered = runtime.enter();
    db.deadpool(size)
}

async fn jobs(count: u32) -> Database {
    let db = database().await;
    db.run(&format!("{SCHEMA}; {}", sync_job::jobs(count)))
        .await;
    db
}

#[test]
fn a_body_that_blocks_every_thread_for_three_ttl_keeps_its_lease() {
    let server = Builder::new_multi_thread().enable_all().build().unwrap();
    let db = server.block_on(database());
    for (nth, runtime) in runtimes().into_iter().enumerate() {
        let pool = pool_on(&runtime, &db, 1);
        let request = move || key(&format!("k{nth}")).ttl(TTL);
        let mut other = db.establish();
        let body = async move {
            let mut guard = pool.leases().acquire(request()).await?;
            let lease = guard.lease().clone();
            // The pool is exhausted as well.
            let _conn = pool.get().await.unwrap();
            let ran = guard.run(async {
                block_both();
                let held = "SELECT 1 FROM advisory_lease WHERE expires_at > clock_timestamp()";
                diesel::sql_query(held).execute(&mut other)
            });
            assert_eq!(ran.await?, Ok(nth + 1), "it is held at the end of the body");
            assert!(lease.is_held());
            // So that the next one finds it held.
            std::mem::forget(guard);
            Ok::<_, Error>(())
        };
        let spawned = runtime.spawn(body);
        runtime.block_on(spawned).unwrap().unwrap();
    }
}

#[test]
fn a_body_that_blocks_every_thread_for_three_ttl_keeps_its_claim() {
    let server = Builder::new_multi_thread().enable_all().build().unwrap();
    let db = server.block_on(jobs(2));
    for runtime in runtimes() {
        let pool = pool_on(&runtime, &db, 1);
        let body = async move {
            let mut conn = pool.get().await.unwrap();
            let job: Claimed<Brief> = claim::next("w").first(&mut conn).await.unwrap().unwrap();
            let blocked = async {
                block_both();
                drop(conn);
                Ok::<_, claim::Error>(())
            };
            claim::run(&pool, &job, End::Release, blocked).await
        };
        let spawned = runtime.spawn(body);
        runtime.block_on(spawned).unwrap().unwrap();
    }
    let done = "SELECT count(*) FROM sync_jobs WHERE completed_at IS NOT NULL";
    assert_eq!(server.block_on(db.count(done)), 2);
}

#[test]
fn a_late_body_is_told_that_its_row_was_taken_away() {
    let server = Builder::new_multi_thread().enable_all().build().unwrap();
    let db = server.block_on(jobs(1));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let pool = pool_on(&runtime, &db, 2);
    let mut other = db.establish();
    let lost: Result<(), claim::Error> = runtime.block_on(async move {
        let mut conn = pool.get().await.unwrap();
        let job: Claimed<Brief> = claim::next("w").first(&mut conn).await.unwrap().unwrap();
        let blocked = async {
            let taken = "UPDATE sync_jobs SET locked_by = 'somebody else'";
            diesel::sql_query(taken).execute(&mut other).unwrap();
            block_thread(TTL);
            Ok(())
        };
        claim::run(&pool, &job, End::Release, blocked).await
    });
    assert_matches!(lost, Err(claim::Error::Lost { .. }));
}

#[test]
fn a_blocking_program_without_a_runtime_keeps_its_rows_while_its_pool_is_exhausted() {
    let server = Builder::new_multi_thread().enable_all().build().unwrap();
    let db = server.block_on(jobs(1));
    let pool = WithUrl::new(db.r2d2(1), db.url());
    let mut guard = blocking::lease::acquire(&pool, key("k").ttl(TTL)).unwrap();
    let ran = guard.run(|| {
        let mut conn = blocking::Pool::connection(&pool).unwrap();
        let job: Claimed<Brief> = blocking::claim::next("w")
            .first(&mut conn)
            .unwrap()
            .unwrap();
        let result = blocking::claim::run(&pool, &job, End::Release, || {
            block_thread(TTL * 3);
            drop(conn);
            Ok::<_, claim::Error>(7)
        });
        result.unwrap()
    });
    assert_eq!(ran.unwrap(), 7);
    guard.finish(Ok::<_, Error>(())).unwrap();
}

/// A future that is dropped while its runtime ends has no runtime for its release.
#[test]
fn a_lease_is_released_after_its_runtime_has_ended() {
    let server = Builder::new_multi_thread().enable_all().build().unwrap();
    let db = server.block_on(database());
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let pool = pool_on(&runtime, &db, 1);
    let guard = runtime
        .block_on(pool.leases().acquire(Request::text("k")))
        .unwrap();
    drop(runtime);
    drop(guard);
    server.block_on(until_free(&db));
}
