//! Work under a claim: renewed while it runs, dropped before another worker can claim the row, and
//! ended according to the work's result.

use crate::sync_job::{Brief, brief, database, renewed, row, state_of, until};
use advisory_runtime::claim::{self, Claimed, End, Error, State};
use advisory_runtime::{Pool, PoolError};
use advisory_tests::assert_matches;
use advisory_tests::futures::{caught, dropped};
use advisory_tests::statements::run;
use diesel_async::pooled_connection::bb8;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::future::pending;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::sleep_until;

struct Dropped<'a>(&'a OnceLock<Instant>);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.set(Instant::now()).unwrap();
    }
}

/// The error of a body.
fn own_error() -> Error {
    Error::Pool(PoolError::new("its own"))
}

async fn never(guard: Dropped<'_>) -> Result<(), Error> {
    let _guard = guard;
    pending().await
}

#[tokio::test]
async fn it_is_renewed_for_longer_than_its_ttl_and_then_completed() {
    let db = database(1).await;
    let (pool, mut conn) = (db.bb8(2).await, db.connect().await);
    let job = brief(&mut conn).await;
    let before = row(&mut conn, 1).await;
    db.run("CREATE TABLE first AS SELECT locked_until FROM sync_jobs")
        .await;
    let result: Result<i64, Error> = claim::run(&pool, &job, End::Fail, async {
        let later = "clock_timestamp() > (SELECT locked_until + interval '500 ms' FROM first)";
        until(&db, later).await;
        assert_ne!(row(&mut conn, 1).await, before);
        assert_eq!(state_of(&mut conn, 1).await, State::Running);
        Ok(job.id)
    })
    .await;
    assert_eq!(result.unwrap(), 1);
    assert!(job.is_finished());
    assert_eq!(state_of(&mut conn, 1).await, State::Completed);
}

#[tokio::test]
async fn an_err_fails_the_job_with_its_text_or_gives_it_back() {
    let db = database(1).await;
    let (pool, mut conn) = (db.deadpool(1), db.connect().await);
    let message = "could not get a connection from the pool: its own";
    for (on_err, state) in [(End::Release, State::Available), (End::Fail, State::Failed)] {
        let job = brief(&mut conn).await;
        let body = async { Err::<(), _>(own_error()) };
        let error = claim::run(&pool, &job, on_err, body).await.unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(state_of(&mut conn, 1).await, state);
    }
    until(&db, &format!("error_message = '{message}'")).await;
}

#[tokio::test]
async fn a_lost_claims_work_is_dropped_or_gets_an_error_and_the_next_claim_is_kept() {
    let db = database(1).await;
    let (pool, mut conn) = (db.bb8(2).await, db.connect().await);
    for (on_err, returns) in [(End::Fail, false), (End::Release, false), (End::Fail, true)] {
        let job = brief(&mut conn).await;
        let dropped = OnceLock::new();
        let guard = Dropped(&dropped);
        let result: Result<(), Error> = claim::run(&pool, &job, on_err, async {
            db.run("UPDATE sync_jobs SET locked_by = 'another', locked_until = clock_timestamp() + interval '1 hour'")
                .await;
            if returns { Ok(()) } else { never(guard).await }
        })
        .await;
        assert_matches!(result, Err(Error::Lost { source: None, .. }));
        assert!(dropped.get().is_some());
        let is_kept = "locked_by = 'another' AND failed_at IS NULL AND completed_at IS NULL";
        until(&db, is_kept).await;
        db.run("UPDATE sync_jobs SET locked_by = NULL, locked_until = NULL")
            .await;
    }
}

/// A pool that opens no uncounted connections.
#[derive(Clone)]
struct Counted(bb8::Pool<AsyncPgConnection>);

impl Pool for Counted {
    type Connection<'p> = bb8::PooledConnection<'p, AsyncPgConnection>;

    async fn connection(&self) -> Result<Self::Connection<'_>, PoolError> {
        self.0.connection().await
    }
}

#[tokio::test]
async fn what_cannot_be_renewed_is_dropped_before_it_expires() {
    let db = database(1).await;
    let (pool, mut conn) = (Counted(db.bb8(1).await), db.connect().await);
    // The pool's only connection stays in use, and it opens no other.
    let lent = pool.connection().await.unwrap();
    let claimed = Instant::now();
    let job = brief(&mut conn).await;
    assert_eq!(job.id, 1);
    let dropped = OnceLock::new();
    let alarm = claimed + Duration::from_millis(3900);
    let rings = async {
        sleep_until(alarm.into()).await;
        Instant::now()
    };
    let work = claim::run(&pool, &job, End::Fail, never(Dropped(&dropped)));
    let (result, rung) = tokio::join!(work, rings);
    let error = result.unwrap_err();
    assert_matches!(
        &error,
        Error::Lost { source: Some(reason), .. } if reason.to_string().contains("connection")
    );
    let held = *dropped.get().unwrap() - claimed;
    assert!(held > Duration::from_millis(3500), "{held:?}, too soon");
    // Nothing is dropped while the machine is suspended: the delay of another timer on this thread
    // shows for how long.
    let late = rung - alarm;
    let is_early = held < Duration::from_secs(4) + late;
    assert!(is_early, "when another could have it: {held:?}, {late:?}");
    drop(lent);
    let is_left = "locked_until < clock_timestamp() AND locked_by LIKE 'worker#%'";
    until(&db, is_left).await;
}

#[tokio::test]
async fn a_connection_that_answers_nothing_is_given_up_for_another() {
    let db = database(1).await;
    let (pool, mut conn, mut other) = (db.bb8(3).await, db.connect().await, db.connect().await);
    let job = brief(&mut conn).await;
    // Delays the first renewal, like a stopped server; it is released before the claim expires.
    run(&mut other, "BEGIN; LOCK TABLE sync_jobs").await;
    let result: Result<(), Error> = claim::run(&pool, &job, End::Fail, async {
        db.until_active("advisory_claim").await;
        drop(other);
        renewed(&db).await;
        Ok(())
    })
    .await;
    result.unwrap();
    assert_eq!(state_of(&mut conn, 1).await, State::Completed);
}

#[tokio::test]
async fn a_panic_leaves_the_job_to_expire() {
    let db = database(1).await;
    let (pool, mut conn) = (db.bb8(1).await, db.connect().await);
    let job = brief(&mut conn).await;
    let panicked = caught(claim::run(&pool, &job, End::Fail, async {
        std::future::ready(()).await;
        assert!(job.is_finished(), "the work's own panic");
        Ok::<_, Error>(())
    }))
    .await;
    assert!(panicked.is_err());
    assert_eq!(state_of(&mut conn, 1).await, State::Running);
    until(&db, "locked_until < clock_timestamp()").await;
    drop(brief(&mut conn).await);
}

#[tokio::test]
async fn dropped_work_is_given_back_at_once_unless_it_has_completed_its_job() {
    let db = database(1).await;
    let (pool, mut conn) = (db.bb8(2).await, db.connect().await);
    for (completes, state) in [(false, State::Available), (true, State::Completed)] {
        let job = crate::sync_job::next(&mut conn).await;
        let (begun, mut own) = (Notify::new(), db.connect().await);
        let run = claim::run(&pool, &job, End::Fail, async {
            if completes {
                let completed = own.transaction(async |conn| claim::complete(conn, &job).await);
                completed.await?;
            }
            begun.notify_one();
            pending::<Result<(), Error>>().await
        });
        dropped(run, begun.notified()).await;
        until(&db, "locked_until IS NULL AND locked_by IS NULL").await;
        assert_eq!(state_of(&mut conn, 1).await, state);
    }
}

#[tokio::test]
async fn work_can_complete_its_job_itself_with_its_results() {
    let db = database(1).await;
    let (pool, mut conn) = (db.bb8(3).await, db.connect().await);
    let job = brief(&mut conn).await;
    db.run("CREATE TABLE result (job int8)").await;
    let kept = claim::renew_while(&pool, &job, async {
        let mut conn = Pool::connection(&pool).await?;
        conn.transaction::<_, Error, _>(async |conn| {
            run(conn, "INSERT INTO result SELECT id FROM sync_jobs").await;
            claim::complete(conn, &job).await
        })
        .await?;
        // Longer than the claim would have lasted: it can no longer be lost.
        let ago = "completed_at < clock_timestamp() - interval '4.2 seconds'";
        until(&db, ago).await;
        Ok::<_, Error>(7)
    })
    .await;
    assert_eq!(kept.unwrap().unwrap(), 7);
    assert_eq!(db.count("SELECT count(*) FROM result").await, 1);
}

/// The ways in which work can end its own job, and the resulting states.
const OWN_ENDS: [(&str, State); 3] = [
    ("complete", State::Completed),
    ("fail", State::Failed),
    ("release", State::Available),
];

async fn end_itself(
    conn: &mut AsyncPgConnection,
    job: &Claimed<Brief>,
    way: &str,
) -> Result<(), Error> {
    match way {
        "complete" => claim::complete(conn, job).await,
        "fail" => claim::fail(conn, job, "why").await,
        _ => claim::release(conn, job).await,
    }
}

#[tokio::test]
async fn work_that_ends_its_job_itself_decides_how_it_ends() {
    let db = database(1).await;
    let (pool, mut conn, mut own) = (db.bb8(3).await, db.connect().await, db.connect().await);
    for (way, state) in OWN_ENDS {
        for is_ok in [true, false] {
            for is_inside in [false, true] {
                let case = format!("{way}, ok: {is_ok}, in a transaction: {is_inside}");
                let job = brief(&mut conn).await;
                let result: Result<i64, Error> = claim::run(&pool, &job, End::Fail, async {
                    if is_inside {
                        own.transaction(async |conn| end_itself(conn, &job, way).await)
                            .await?;
                    } else {
                        end_itself(&mut own, &job, way).await?;
                    }
                    is_ok.then_some(job.id).ok_or_else(own_error)
                })
                .await;
                match result {
                    Ok(id) => assert!(is_ok && id == 1, "{case}"),
                    Err(Error::Pool(own)) if !is_ok && own.get_ref().to_string() == "its own" => {}
                    Err(other) => panic!("{case}: {other:?}"),
                }
                assert_eq!(state_of(&mut conn, 1).await, state, "{case}");
                assert!(job.is_finished(), "{case}");
                db.run("UPDATE sync_jobs SET completed_at = NULL, failed_at = NULL, error_message = NULL")
                    .await;
            }
        }
    }
}

#[tokio::test]
async fn a_job_that_its_work_released_is_left_to_the_next_worker() {
    let db = database(1).await;
    let (pool, mut conn) = (db.bb8(3).await, db.connect().await);
    for on_err in [End::Fail, End::Release] {
        for is_ok in [true, false] {
            let job = brief(&mut conn).await;
            let mut next = None;
            let result: Result<(), Error> = claim::run(&pool, &job, on_err, async {
                let mut own = Pool::connection(&pool).await?;
                claim::release(&mut own, &job).await?;
                next = Some(brief(&mut own).await);
                is_ok.then_some(()).ok_or_else(own_error)
            })
            .await;
            assert_eq!(result.is_ok(), is_ok, "{result:?}");
            let next = next.unwrap();
            let held = format!("locked_by = '{}' AND failed_at IS NULL", next.locked_by());
            until(&db, &held).await;
            claim::release(&mut conn, &next).await.unwrap();
        }
    }
}

#[tokio::test]
async fn work_whose_own_end_was_rolled_back_ends_as_it_returns() {
    let db = database(1).await;
    let (pool, mut conn, mut own) = (db.bb8(2).await, db.connect().await, db.connect().await);
    for (on_err, is_ok, state) in [
        (End::Release, false, State::Available),
        (End::Fail, true, State::Completed),
    ] {
        let job = brief(&mut conn).await;
        let result: Result<(), Error> = claim::run(&pool, &job, on_err, async {
            let undone: Result<(), Error> = own
                .transaction(async |conn| {
                    claim::complete(conn, &job).await?;
                    Err(own_error())
                })
                .await;
            if is_ok { Ok(()) } else { undone }
        })
        .await;
        assert_eq!(result.is_ok(), is_ok, "{result:?}");
        assert_eq!(state_of(&mut conn, 1).await, state);
    }
}
