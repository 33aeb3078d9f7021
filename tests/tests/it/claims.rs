//! Claims on rows of users' tables: the operations on one, and the states that follow from the
//! columns.

use crate::sync_job::{SyncJob, assert_lost, database, expire, next, row, state_of, sync_jobs};
use advisory_runtime::claim::{self, Claimed, Error, State};
use advisory_runtime::{blocking, monitor, xact};
use advisory_tests::bookings::{finish, in_transaction};
use advisory_tests::{assert_matches, claims};
use diesel::prelude::*;
use diesel_async::{AsyncConnection, RunQueryDsl};

#[tokio::test]
async fn the_oldest_job_of_the_highest_priority_comes_first() {
    let db = database(7).await;
    let mut conn = db.connect().await;
    let mut ids = Vec::new();
    while let Some(job) = claims::first::<SyncJob>(&mut conn).await {
        assert_eq!(job.priority, if job.id % 3 == 0 { 10 } else { 1 });
        ids.push(job.id);
    }
    assert_eq!(ids, [6, 3, 7, 5, 4, 2, 1]);
}

#[tokio::test]
async fn states_follow_from_the_columns() {
    let db = database(4).await;
    let mut conn = db.connect().await;
    assert_eq!(state_of(&mut conn, 3).await, State::Available);
    let job = next(&mut conn).await;
    assert_eq!((job.id, state_of(&mut conn, 3).await), (3, State::Running));
    expire(&db).await;
    assert_eq!(state_of(&mut conn, 3).await, State::Expired);
    let job = next(&mut conn).await;
    assert_eq!((job.id, state_of(&mut conn, 3).await), (3, State::Running));
    claim::complete(&mut conn, &job).await.unwrap();
    assert_eq!(state_of(&mut conn, 3).await, State::Completed);
    let job = next(&mut conn).await;
    claim::fail(&mut conn, &job, "not\0 there").await.unwrap();
    assert_eq!(state_of(&mut conn, job.id).await, State::Failed);
    let job = next(&mut conn).await;
    claim::release(&mut conn, &job).await.unwrap();
    assert_eq!(state_of(&mut conn, job.id).await, State::Available);

    let freed = "SELECT count(*) FROM sync_jobs WHERE locked_until IS NULL AND locked_by IS NULL";
    assert_eq!(db.count(freed).await, 4);
    let told = "SELECT count(*) FROM sync_jobs WHERE error_message = U&'not\\FFFD there'";
    assert_eq!(db.count(told).await, 1);
    let available = sync_jobs::table.filter(claim::state::<SyncJob>().eq(State::Available));
    let counted = available.count().get_result::<i64>(&mut conn).await;
    assert_eq!(counted, Ok(2));
    let next = claim::next::<SyncJob>("sync\0worker");
    let job = next.first(&mut conn).await.unwrap().unwrap();
    assert!(job.locked_by().starts_with("sync\u{FFFD}worker#"));
}

#[test]
fn a_state_can_be_told_without_a_server() {
    let (before, now, after) = (Some(1), 2, Some(3));
    assert_eq!(State::at(None, None, None, &now), State::Available);
    assert_eq!(State::at(after, None, None, &now), State::Running);
    assert_eq!(State::at(Some(now), None, None, &now), State::Expired);
    assert_eq!(State::at(before, None, None, &now), State::Expired);
    assert_eq!(State::at(after, before, None, &now), State::Completed);
    assert_eq!(State::at(None, None, before, &now), State::Failed);
}

#[tokio::test]
async fn a_done_row_is_not_claimed() {
    let db = database(1).await;
    let mut conn = db.connect().await;
    for end in ["completed_at", "failed_at"] {
        db.run(&format!("UPDATE sync_jobs SET {end} = now()")).await;
        assert!(claims::first::<SyncJob>(&mut conn).await.is_none());
        assert!(claims::load::<SyncJob>(&mut conn, 5).await.is_empty());
        assert!(claims::by_key::<SyncJob>(&mut conn, 1).await.is_none());
        db.run(&format!("UPDATE sync_jobs SET {end} = NULL")).await;
    }
    let job = claims::by_key::<SyncJob>(&mut conn, 1).await;
    assert_eq!(job.unwrap().id, 1);
}

#[tokio::test]
async fn a_zombie_can_do_nothing_to_the_next_ones_claim() {
    let db = database(1).await;
    let mut conn = db.connect().await;
    let zombie = next(&mut conn).await;
    for is_taken_over in [false, true] {
        expire(&db).await;
        // By the same worker: its name alone does not make it the holder.
        let mut next = None;
        if is_taken_over {
            next = claims::first::<SyncJob>(&mut conn).await;
        }
        let before = row(&mut conn, 1).await;
        assert_lost(claim::renew(&mut conn, &zombie).await);
        assert_lost(claim::complete(&mut conn, &zombie).await);
        let end = claim::end(&zombie).set(sync_jobs::priority.eq(5));
        assert_lost(end.complete(&mut conn).await);
        assert_lost(claim::fail(&mut conn, &zombie, "why").await);
        assert_lost(claim::release(&mut conn, &zombie).await);
        assert_eq!(row(&mut conn, 1).await, before);
        assert!(!zombie.is_finished());
        if let Some(next) = next {
            assert_ne!(next.locked_by(), zombie.locked_by());
            claim::complete(&mut conn, &next).await.unwrap();
            assert_lost(claim::complete(&mut conn, &next).await);
        }
    }
}

#[tokio::test]
async fn a_renewal_lasts_for_the_whole_ttl_again() {
    let db = database(1).await;
    let mut conn = db.connect().await;
    let job = next(&mut conn).await;
    let deadline = job.deadline();
    db.run(
        "UPDATE sync_jobs SET locked_until = clock_timestamp() + interval '10 seconds'; \
         CREATE TABLE before AS SELECT clock_timestamp() AS at",
    )
    .await;
    claim::renew(&mut conn, &job).await.unwrap();
    assert!(job.deadline() > deadline);
    let lasts = "SELECT count(*) FROM sync_jobs, before \
         WHERE locked_until BETWEEN at + interval '5 minutes' AND clock_timestamp() + interval '5 minutes'";
    assert_eq!(db.count(lasts).await, 1);
}

#[tokio::test]
async fn a_batch_is_claimed_at_once_as_separate_claims() {
    let db = database(12).await;
    let mut conn = db.connect().await;
    assert!(claims::load::<SyncJob>(&mut conn, 0).await.is_empty());
    let jobs = claims::load::<SyncJob>(&mut conn, 5).await;
    let mut ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [3, 6, 9, 11, 12], "the most urgent, then the oldest");
    let mut names: Vec<&str> = jobs.iter().map(Claimed::locked_by).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 5, "{names:?}");
    for job in &jobs {
        claim::complete(&mut conn, job).await.unwrap();
    }
    assert_eq!(claims::load::<SyncJob>(&mut conn, 50).await.len(), 7);
}

#[tokio::test]
async fn a_job_is_completed_in_the_transaction_of_its_results() {
    let db = database(1).await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let job = next(&mut conn).await;
    claims::roll_back(&mut conn, async |conn| claim::complete(conn, &job).await).await;
    assert_eq!(state_of(&mut conn, 1).await, State::Running);
    let mut held = xact::begin(&mut conn, 42).await.unwrap();
    claim::complete(held.conn(), &job).await.unwrap();
    // However late the commit is, a row that is being completed is not claimed.
    let expire = "UPDATE sync_jobs SET locked_until = clock_timestamp() - interval '1 second' \
         WHERE id IN (SELECT id FROM sync_jobs FOR UPDATE SKIP LOCKED)";
    diesel::sql_query(expire).execute(&mut other).await.unwrap();
    assert!(claims::first::<SyncJob>(&mut other).await.is_none());
    finish(held).await;
    assert_eq!(state_of(&mut conn, 1).await, State::Completed);
}

#[tokio::test]
async fn a_renewal_in_a_transaction_is_refused_and_extends_nothing() {
    let db = database(1).await;
    let mut conn = db.connect().await;
    let job = next(&mut conn).await;
    let deadline = job.deadline();
    let before = row(&mut conn, 1).await;
    let refused = |error: Error| match error {
        Error::InTransaction { ref claim, .. } if claim.starts_with("sync_jobs (worker#") => error,
        error => panic!("{error:?}"),
    };
    let undone: Result<(), Error> = in_transaction(&mut conn, async |conn| {
        refused(claim::renew(conn, &job).await.unwrap_err());
        let nested: Result<(), Error> =
            in_transaction(conn, async |conn| claim::renew(conn, &job).await).await;
        Err(refused(nested.unwrap_err()))
    })
    .await;
    refused(undone.unwrap_err());
    let mut held = xact::begin(&mut conn, 42).await.unwrap();
    refused(claim::renew(held.conn(), &job).await.unwrap_err());
    finish(held).await;
    assert_eq!(job.deadline(), deadline);
    assert_eq!(row(&mut conn, 1).await, before);
    claim::renew(&mut conn, &job).await.unwrap();
    assert!(job.deadline() > deadline);
}

#[tokio::test]
async fn a_test_transaction_renews_but_not_in_its_savepoints() {
    let db = database(1).await;
    let mut conn = db.connect().await;
    conn.begin_test_transaction().await.unwrap();
    let job = next(&mut conn).await;
    claim::renew(&mut conn, &job).await.unwrap();
    let nested: Result<(), Error> =
        in_transaction(&mut conn, async |conn| claim::renew(conn, &job).await).await;
    assert_matches!(nested, Err(Error::InTransaction { .. }));
    claim::complete(&mut conn, &job).await.unwrap();
}

#[tokio::test]
async fn rows_are_counted_by_their_state() {
    let db = database(8).await;
    let mut conn = db.connect().await;
    let (first, second) = (next(&mut conn).await, next(&mut conn).await);
    claim::complete(&mut conn, &first).await.unwrap();
    claim::fail(&mut conn, &second, "no").await.unwrap();
    let _gone = [next(&mut conn).await, next(&mut conn).await];
    expire(&db).await;
    // One of the two again: they come first.
    let _running = next(&mut conn).await;
    let counts = monitor::claims::<SyncJob, _>(&mut conn).await.unwrap();
    let same = blocking::monitor::claims::<SyncJob, _>(&mut db.establish());
    assert_eq!(same.unwrap(), counts);
    let [done, failed] = [counts.completed, counts.failed];
    let open = [counts.available, counts.running, counts.expired];
    assert_eq!((open, done, failed), ([4, 1, 1], 1, 1));
}
