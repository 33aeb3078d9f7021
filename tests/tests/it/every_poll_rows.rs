//! Leases and claims whose future is dropped after each of its polls, from the first to the last:
//! no key stays leased and no row claimed, without waiting for an expiry.

use crate::sync_job::{SyncJob, state_of};
use advisory_runtime::claim::{self, End, State};
use advisory_runtime::{PoolError, advisory_lease, lease};
use advisory_tests::Database;
use advisory_tests::futures::is_ready_within;
use diesel_async::pooled_connection::{bb8, deadpool};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Before anything expires, which takes minutes.
const SOON: Duration = Duration::from_secs(30);

async fn query(pool: &deadpool::Pool<AsyncPgConnection>) -> Result<(), lease::Error> {
    let mut conn = pool.get().await.map_err(PoolError::new)?;
    let query = diesel::sql_query("SELECT 1");
    query
        .execute(&mut conn)
        .await
        .map_err(lease::Error::Database)
        .map(drop)
}

/// Its body is not `Send`, and returns early with `?`.
#[advisory_lease(key = "polled:<id>", pool = pool.clone(), ttl = "1h", keep = "1ms", handle = lease)]
async fn leased(
    pool: &deadpool::Pool<AsyncPgConnection>,
    id: i64,
    fails: bool,
) -> Result<i64, lease::Error> {
    let id = Rc::new(id);
    query(pool).await?;
    if fails {
        return Err(PoolError::new("on purpose").into());
    }
    query(pool).await?;
    assert!(lease.is_held(), "inside the body");
    Ok(*id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_released_after_a_drop_at_any_poll() {
    let db = advisory_tests::leases::database().await;
    let pool = db.deadpool(2);
    let held = "SELECT 'still leased' FROM advisory_lease WHERE expires_at > clock_timestamp()";
    for fails in [false, true] {
        for polls in 1.. {
            let is_ready = is_ready_within(polls, leased(&pool, 7, fails)).await;
            let after = format!("no lease after poll {polls}");
            db.until_empty(SOON, &after, held).await;
            if is_ready {
                break;
            }
        }
    }
}

async fn work(conn: &mut AsyncPgConnection, fails: bool) -> Result<(), claim::Error> {
    let query = diesel::sql_query("SELECT 1");
    query.execute(conn).await?;
    if fails {
        return Err(PoolError::new("on purpose").into());
    }
    Ok(())
}

async fn claimed_within(
    db: &Database,
    pool: &bb8::Pool<AsyncPgConnection>,
    polls: usize,
    fails: bool,
) -> bool {
    let (mut conn, mut own) = (db.connect().await, db.connect().await);
    let job = claim::next::<SyncJob>("worker")
        .key(1)
        .first(&mut conn)
        .await;
    let job = job.unwrap().expect("it is available");
    let run = claim::run(pool, &job, End::Release, work(&mut own, fails));
    is_ready_within(polls, run).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claimed_row_is_given_back_or_done_after_a_drop_at_any_poll() {
    let db = crate::sync_job::database(1).await;
    let (pool, mut conn) = (db.bb8(2).await, db.connect().await);
    for fails in [false, true] {
        for polls in 1.. {
            let started = Instant::now();
            let is_ready = claimed_within(&db, &pool, polls, fails).await;
            let claimed = "SELECT locked_by FROM sync_jobs WHERE locked_by IS NOT NULL";
            let after = format!("no claim after poll {polls}");
            db.until_empty(SOON, &after, claimed).await;
            assert!(started.elapsed() < SOON * 2, "{after}");
            let state = state_of(&mut conn, 1).await;
            if is_ready {
                let wanted = if fails {
                    State::Available
                } else {
                    State::Completed
                };
                assert_eq!(state, wanted);
            }
            db.run("UPDATE sync_jobs SET completed_at = NULL").await;
            if is_ready {
                break;
            }
        }
    }
    db.until_quiet().await;
}
