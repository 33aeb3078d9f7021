//! A claim that has waited for its row counts from the end of the wait.

use crate::sync_job::{database, state_of};
use advisory_runtime::claim::{self, Claim, Claimed, End, Error, State};
use diesel::prelude::*;
use diesel_async::SimpleAsyncConnection;
use std::time::{Duration, Instant};

const GENEROUS: Duration = Duration::from_secs(60);
/// How long before the expiry work is stopped.
const MARGIN: Duration = Duration::from_millis(300);

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = crate::sync_job::sync_jobs)]
#[claim(ttl = "3s")]
struct Brief {
    id: i64,
}

#[tokio::test]
async fn a_claim_lasts_its_whole_ttl_after_a_long_wait() {
    let db = database(1).await;
    let (pool, mut conn, mut other) = (db.bb8(1).await, db.connect().await, db.connect().await);
    other
        .batch_execute("BEGIN; SELECT FROM sync_jobs FOR UPDATE")
        .await
        .unwrap();
    let freed = async {
        let early = "SELECT 'too early' WHERE NOT EXISTS (SELECT FROM pg_stat_activity \
             WHERE datname = current_database() AND wait_event_type = 'Lock' \
             AND query_start < clock_timestamp() - interval '3500 milliseconds')";
        db.until_empty(GENEROUS, "a wait longer than the ttl", early)
            .await;
        other.batch_execute("ROLLBACK").await.unwrap();
    };
    let (job, ()) = tokio::join!(claim::next("worker").key(1_i64).first(&mut conn), freed);
    let job: Claimed<Brief> = job.unwrap().unwrap();
    let left = "SELECT (extract(epoch FROM locked_until - clock_timestamp()) * 1000000)::int8 FROM sync_jobs";
    let left = Duration::from_micros(db.count(left).await.try_into().unwrap());
    let local = job.deadline().saturating_duration_since(Instant::now()) + MARGIN;
    assert!(local <= left, "{local:?} here, {left:?} at the server");
    let result: Result<i64, Error> = claim::run(&pool, &job, End::Fail, async { Ok(job.id) }).await;
    assert_eq!(result.unwrap(), 1);
    assert_eq!(state_of(&mut conn, 1).await, State::Completed);
}
