//! Blocking Diesel: claims, in the statements of the async ones.

use crate::sync_job::{Brief, SyncJob, assert_lost, database, expire, row};
use advisory_runtime::blocking::claim;
use advisory_runtime::claim::{Claimed, End, Error, State};
use advisory_tests::assert_matches;
use advisory_tests::pauses::pause_thread;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};

type Conn = PgConnection;

fn next(conn: &mut Conn) -> Claimed<SyncJob> {
    let job = claim::next("worker").first(conn).unwrap();
    job.expect("there is a job")
}

fn state_of(conn: &mut Conn, id: i64) -> State {
    let job = crate::sync_job::sync_jobs::table.find(id);
    let job = job.select(claim::state::<SyncJob>());
    job.get_result(conn).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_claim_ends_in_each_way() {
    let db = database(4).await;
    let mut conn = db.establish();
    let job = next(&mut conn);
    assert_eq!((job.id, state_of(&mut conn, 3)), (3, State::Running));
    claim::renew(&mut conn, &job).unwrap();
    claim::complete(&mut conn, &job).unwrap();
    assert!(job.is_finished());
    assert_eq!(state_of(&mut conn, 3), State::Completed);
    let job = next(&mut conn);
    claim::fail(&mut conn, &job, "the file is\0 not there").unwrap();
    assert_eq!(state_of(&mut conn, 4), State::Failed);
    let job = next(&mut conn);
    claim::release(&mut conn, &job).unwrap();
    assert_eq!(state_of(&mut conn, 2), State::Available);
    let job = claim::next::<SyncJob>("worker")
        .key(2)
        .first(&mut conn)
        .unwrap();
    let priority = crate::sync_job::sync_jobs::priority;
    claim::end(&job.unwrap())
        .set(priority.eq(77))
        .complete(&mut conn)
        .unwrap();
    assert_eq!(
        db.count("SELECT priority::int8 FROM sync_jobs WHERE id = 2")
            .await,
        77
    );
    let rest = claim::next::<SyncJob>("worker").load(&mut conn, 9).unwrap();
    assert_eq!(rest.len(), 1);
    let none = claim::next::<SyncJob>("worker").load(&mut conn, 0).unwrap();
    assert!(none.is_empty());
    let counts = claim::counts::<SyncJob, _>(&mut conn).unwrap();
    assert_eq!((counts.completed, counts.failed, counts.running), (2, 1, 1));
    assert_eq!(claim::indexes::<SyncJob>().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_blocking_claim_changes_nothing() {
    let db = database(1).await;
    let (mut conn, mut other) = (db.establish(), db.connect().await);
    let zombie = next(&mut conn);
    expire(&db).await;
    // An async worker takes over a blocking one's row, which is the same row to both.
    let taken_over = crate::sync_job::next(&mut other).await;
    let before = row(&mut other, 1).await;
    assert_lost(claim::renew(&mut conn, &zombie));
    assert_lost(claim::complete(&mut conn, &zombie));
    assert_lost(claim::fail(&mut conn, &zombie, "why"));
    assert_lost(claim::release(&mut conn, &zombie));
    assert_eq!(row(&mut other, 1).await, before);
    assert!(!zombie.is_finished());
    // A claim is a value: it can be finished on a connection of the other kind.
    claim::complete(&mut conn, &taken_over).unwrap();
    assert_eq!(state_of(&mut conn, 1), State::Completed);
}

/// The statements that a session has prepared for claims.
const PREPARED: &str = "(SELECT string_agg(statement, ';' ORDER BY statement) FROM pg_prepared_statements \
     WHERE statement LIKE '/*advisory_claim*/%')";

#[tokio::test(flavor = "multi_thread")]
async fn blocking_and_async_claims_send_the_same_statements() {
    let db = database(2).await;
    let (mut conn, mut other) = (db.establish(), db.connect().await);
    let job = next(&mut conn);
    claim::complete(&mut conn, &job).unwrap();
    let job = crate::sync_job::next(&mut other).await;
    let done = advisory_runtime::claim::complete(&mut other, &job).await;
    done.unwrap();
    let prepared = diesel::select(diesel::dsl::sql::<Text>(PREPARED));
    let sent: String = prepared.clone().get_result(&mut conn).unwrap();
    let sent_by_other: String = diesel_async::RunQueryDsl::get_result(prepared, &mut other)
        .await
        .unwrap();
    assert_eq!(sent.matches("/*advisory_claim*/").count(), 2, "{sent}");
    assert_eq!(sent, sent_by_other);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_renewal_in_a_transaction_is_refused() {
    let db = database(1).await;
    let mut conn = db.establish();
    let job = next(&mut conn);
    let undone: Result<(), Error> = conn.transaction(|conn| {
        assert_matches!(claim::renew(conn, &job), Err(Error::InTransaction { .. }));
        claim::complete(conn, &job)?;
        Err(Error::Database(diesel::result::Error::RollbackTransaction))
    });
    undone.unwrap_err();
    assert_eq!(state_of(&mut conn, 1), State::Running);
}

fn until(conn: &mut Conn, condition: &str) {
    let counted = format!("(SELECT count(*) FROM sync_jobs WHERE {condition})");
    while diesel::select(diesel::dsl::sql::<BigInt>(&counted)).get_result::<i64>(conn) != Ok(1) {
        pause_thread();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_renews_a_blocking_claim_until_its_work_ends() {
    let db = database(1).await;
    let (mut conn, pool) = (db.establish(), db.r2d2(2));
    for (works, state) in [(true, State::Completed), (false, State::Failed)] {
        let job = claim::next::<Brief>("worker").first(&mut conn).unwrap();
        let job = job.unwrap();
        db.run("CREATE TABLE since AS SELECT locked_until AS at FROM sync_jobs")
            .await;
        let result: Result<(), Error> = claim::run(&pool, &job, End::Fail, || {
            // Longer than the claim lasts without a renewal.
            until(&mut conn, "(SELECT at FROM since) < clock_timestamp()");
            if works {
                Ok(())
            } else {
                Err(Error::Database(diesel::result::Error::NotFound))
            }
        });
        assert_eq!(result.is_ok(), works, "{result:?}");
        assert_eq!(state_of(&mut conn, job.id), state);
        db.run("UPDATE sync_jobs SET completed_at = NULL; DROP TABLE since")
            .await;
    }
}

/// The interval of its renewals is 100 seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_claim_that_a_trigger_shortens_is_renewed_in_time() {
    let db = database(1).await;
    db.run(
        "CREATE FUNCTION shorten() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             NEW.locked_until = LEAST(NEW.locked_until, clock_timestamp() + interval '4 seconds'); RETURN NEW; END $$;
         CREATE TRIGGER shorten BEFORE UPDATE ON sync_jobs FOR EACH ROW EXECUTE FUNCTION shorten()",
    )
    .await;
    let (mut conn, pool) = (db.establish(), db.r2d2(2));
    let job = next(&mut conn);
    db.run("CREATE TABLE since AS SELECT locked_until AS at FROM sync_jobs")
        .await;
    let kept = claim::renew_while(&pool, &job, || {
        until(
            &mut conn,
            "(SELECT at FROM since) + interval '4 seconds' < clock_timestamp()",
        );
    });
    kept.unwrap();
    assert_eq!(state_of(&mut conn, 1), State::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_work_that_has_lost_its_claim_is_refused() {
    let db = database(1).await;
    let (mut conn, pool) = (db.establish(), db.r2d2(2));
    let mut other = db.establish();
    for finishes in [true, false] {
        let job = claim::next::<Brief>("worker").first(&mut conn).unwrap();
        let job = job.unwrap();
        let mut work =
            || diesel::sql_query("UPDATE sync_jobs SET locked_by = 'another#'").execute(&mut other);
        let error = if finishes {
            let result: Result<usize, Error> = claim::run(&pool, &job, End::Fail, || Ok(work()?));
            result.unwrap_err()
        } else {
            claim::renew_while(&pool, &job, || {
                work().unwrap();
                // Without a renewal the claim expires.
                while std::time::Instant::now() < job.deadline() + job.ttl() {
                    pause_thread();
                }
            })
            .unwrap_err()
        };
        assert_matches!(error, Error::Lost { .. });
        let kept =
            "SELECT count(*) FROM sync_jobs WHERE locked_by = 'another#' AND completed_at IS NULL";
        assert_eq!(db.count(kept).await, 1);
        expire(&db).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_completion_that_is_rolled_back_is_made_up_for() {
    let db = database(1).await;
    let (mut conn, pool) = (db.establish(), db.r2d2(2));
    let job = claim::next::<Brief>("worker")
        .first(&mut conn)
        .unwrap()
        .unwrap();
    let result: Result<(), Error> = claim::run(&pool, &job, End::Fail, || {
        let undone: Result<(), Error> = conn.transaction(|conn| {
            claim::complete(conn, &job)?;
            Err(Error::Database(diesel::result::Error::RollbackTransaction))
        });
        undone.unwrap_err();
        Ok(())
    });
    result.unwrap();
    assert_eq!(state_of(&mut conn, 1), State::Completed);
}
