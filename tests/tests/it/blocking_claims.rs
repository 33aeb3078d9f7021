//! Claims of blocking Diesel: the statements of the async ones, and bodies that cannot be dropped.

use crate::mails::{Mail, mail, mails, mails_that};
use crate::sync_job::{Brief, SyncJob, assert_lost, database, expire, row, until};
use advisory_runtime::blocking::claim;
use advisory_runtime::claim::{Claim, Claimed, End, Error};
use advisory_tests::assert_matches;
use advisory_tests::blocking::execute;
use advisory_tests::claims::{failure, is_failure};
use advisory_tests::pauses::pause_thread;
use diesel::prelude::*;
use diesel::sql_types::Text;
use std::time::{Duration, Instant};

fn next<T: Claim>(conn: &mut PgConnection) -> Claimed<T> {
    let job = claim::next("worker").first(conn).unwrap();
    job.expect("there is a job")
}

/// Blocks the thread for longer than the claim lasts without a renewal.
fn outlast<T: Claim>(job: &Claimed<T>) {
    let expired = job.deadline() + Duration::from_secs(2);
    while Instant::now() < expired {
        pause_thread();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_claim_ends_in_each_way() {
    let db = mails(9).await;
    let (mut conn, day) = (db.establish(), Some(Duration::from_secs(86_400)));
    let conn = &mut conn;
    let ninth = claim::next::<Mail>("worker").key(9).first(conn).unwrap();
    let ninth = ninth.unwrap();
    let mut jobs = claim::next::<Mail>("worker").load(conn, 8).unwrap();
    jobs.sort_by_key(|job| job.id);
    claim::complete(conn, &jobs[0]).unwrap();
    claim::fail(conn, &jobs[1], "no").unwrap();
    claim::retry(conn, &jobs[2], "no", day).unwrap();
    claim::release(conn, &jobs[3]).unwrap();
    let end = |nth: usize| claim::end(&jobs[nth]).set(mail::tenant_id.eq(2));
    end(4).complete(conn).unwrap();
    end(5).fail(conn, "no").unwrap();
    end(6).retry(conn, "no", day).unwrap();
    end(7).release(conn).unwrap();
    for (condition, ids) in [
        ("completed_at IS NOT NULL", "1, 5"),
        ("failed_at IS NOT NULL", "2, 6"),
        ("run_at > now() + interval '23 hours'", "3, 7"),
        ("attempts = 0", "4, 8"),
        ("tenant_id = 2", "5, 6, 7, 8"),
        ("error_message IS NOT NULL", "2, 3, 6, 7"),
        ("locked_by IS NOT NULL", "9"),
    ] {
        let others = format!("({condition}) <> (id IN ({ids}))");
        assert_eq!(mails_that(&db, &others).await, 0, "{condition}");
    }
    let counts = claim::counts::<Mail, _>(conn).unwrap();
    assert_eq!((counts.completed, counts.failed, counts.running), (2, 2, 1));
    let deadline = ninth.deadline();
    claim::renew(conn, &ninth).unwrap();
    assert!(ninth.deadline() > deadline);
    claim::delete(conn, &ninth).unwrap();
    assert_eq!(mails_that(&db, "id = 9").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_blocking_claim_changes_nothing() {
    let db = database(1).await;
    let (mut conn, mut other) = (db.establish(), db.connect().await);
    let zombie: Claimed<SyncJob> = next(&mut conn);
    expire(&db).await;
    let taken_over = crate::sync_job::next(&mut other).await;
    let before = row(&mut other, taken_over.id).await;
    assert_lost(claim::renew(&mut conn, &zombie));
    assert_lost(claim::complete(&mut conn, &zombie));
    assert_lost(claim::fail(&mut conn, &zombie, "why"));
    assert_lost(claim::release(&mut conn, &zombie));
    assert_eq!(row(&mut other, zombie.id).await, before);
    assert!(!zombie.is_finished());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_renewal_in_a_transaction_is_refused() {
    let db = database(1).await;
    let mut conn = db.establish();
    let job: Claimed<SyncJob> = next(&mut conn);
    let renewed = conn.transaction(|conn| claim::renew(conn, &job));
    assert_matches!(renewed, Err(Error::InTransaction { .. }));
}

/// The statements that a session has prepared for claims, without the question for triggers, which
/// a process asks once.
const PREPARED: &str = "(SELECT string_agg(statement, ';' ORDER BY statement) FROM pg_prepared_statements \
     WHERE statement LIKE '/*advisory_claim*/%' AND strpos(statement, 'pg_trigger') = 0)";

/// A claim is a value: it can be ended on a connection of the other kind.
#[tokio::test(flavor = "multi_thread")]
async fn blocking_and_async_claims_send_the_same_statements() {
    let db = database(2).await;
    let (mut conn, mut other) = (db.establish(), db.connect().await);
    let job: Claimed<SyncJob> = next(&mut conn);
    let others = crate::sync_job::next(&mut other).await;
    claim::complete(&mut conn, &others).unwrap();
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
async fn blocking_work_whose_own_end_was_rolled_back_ends_as_it_returns() {
    let db = database(1).await;
    let (mut conn, pool) = (db.establish(), db.r2d2(2));
    let job: Claimed<SyncJob> = next(&mut conn);
    let undone = claim::run(&pool, &job, End::Release, || {
        conn.transaction(|conn| {
            claim::complete(conn, &job)?;
            Err::<(), _>(failure("own"))
        })
    });
    assert!(is_failure(&undone.unwrap_err()));
    // It was released when `run` returned.
    let _again: Claimed<SyncJob> = next(&mut conn);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_renews_a_blocking_claim_until_its_work_ends() {
    let db = database(1).await;
    let (mut conn, pool) = (db.establish(), db.r2d2(2));
    let job: Claimed<Brief> = next(&mut conn);
    let done = claim::run(&pool, &job, End::Fail, || {
        outlast(&job);
        Ok::<_, Error>(job.id)
    });
    assert_eq!(done.unwrap(), 1);
    until(&db, "completed_at IS NOT NULL").await;
}

/// The interval of its renewals is a minute.
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
    let job: Claimed<SyncJob> = next(&mut conn);
    claim::renew_while(&pool, &job, || outlast(&job)).unwrap();
    let held = "SELECT count(*) FROM sync_jobs WHERE locked_until > clock_timestamp()";
    assert_eq!(db.count(held).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_work_that_has_lost_its_claim_is_refused() {
    let db = database(2).await;
    let (mut conn, mut other, pool) = (db.establish(), db.establish(), db.r2d2(2));
    let mut lose = || {
        let taken = "UPDATE sync_jobs SET locked_by = 'another#'";
        execute(&mut other, taken).unwrap();
    };
    let job: Claimed<Brief> = next(&mut conn);
    let ran = claim::run(&pool, &job, End::Fail, || {
        lose();
        Ok::<_, Error>(())
    });
    assert_lost(ran);
    let job: Claimed<Brief> = next(&mut conn);
    let kept = claim::renew_while(&pool, &job, || {
        lose();
        // Without a renewal it expires.
        outlast(&job);
    });
    assert_lost(kept);
    let unchanged = "SELECT count(*) FROM sync_jobs \
                     WHERE locked_by = 'another#' AND completed_at IS NULL";
    assert_eq!(db.count(unchanged).await, 2);
}
