//! The end of work under a claim when something fails: the work's errors are kept, work that may be
//! done is not reported as lost, and a released claim is not used further.

use crate::sync_job::{Brief, assert_lost, brief, database, lock_rows, renewed, state_of, until};
use advisory_runtime::Pool;
use advisory_runtime::claim::{self, Claim, Claimed, End, Error, State};
use advisory_tests::claims::{self, failure, is_failure};
use advisory_tests::futures::dropped;
use advisory_tests::settings::idle_bound;
use advisory_tests::statements::run;
use advisory_tests::{Database, Proxy, assert_matches, pid_of};
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::{AsyncConnection, SimpleAsyncConnection};
use std::future::pending;
use std::time::Instant;

#[tokio::test]
async fn the_works_error_is_returned_even_if_the_pool_is_empty() {
    let db = database(1).await;
    let (pool, mut conn) = (db.deadpool(1), db.connect().await);
    let lent = Pool::connection(&pool).await.unwrap();
    let job = brief(&mut conn).await;
    let body = async { Err::<(), _>(failure("own")) };
    let error = claim::run(&pool, &job, End::Fail, body).await.unwrap_err();
    assert!(is_failure(&error), "{error:?}");
    drop(lent);
}

#[tokio::test]
async fn a_job_fails_also_where_the_first_connection_for_it_is_lost() {
    let db = database(1).await;
    let proxy = Proxy::start(&db).await;
    let (pool, mut conn) = (Database::bb8_at(proxy.url(), 1).await, db.connect().await);
    for (on_err, state) in [(End::Release, State::Available), (End::Fail, State::Failed)] {
        let job = crate::sync_job::next(&mut conn).await;
        proxy.cut_before("advisory_claim");
        let body = async { Err::<(), _>(failure("own")) };
        let error = claim::run(&pool, &job, on_err, body).await.unwrap_err();
        assert!(is_failure(&error), "{error:?}");
        assert_eq!(state_of(&mut conn, 1).await, state);
    }
}

#[tokio::test]
async fn a_completion_without_an_answer_is_not_called_lost() {
    let db = database(1).await;
    let (pool, mut conn, mut other) = (db.bb8(4).await, db.connect().await, db.connect().await);
    let job = brief(&mut conn).await;
    let result: Result<(), Error> = claim::run(&pool, &job, End::Fail, async {
        // The worker that has locked the row keeps it for longer than the claim lasts.
        lock_rows(&mut other).await;
        Ok(())
    })
    .await;
    assert_matches!(result, Err(Error::CommitUnknown { .. }));
    drop(other);
}

#[tokio::test]
async fn renewals_that_get_no_answer_leave_no_session_waiting() {
    let db = database(1).await;
    let (pool, mut conn, mut other) = (db.bb8(9).await, db.connect().await, db.connect().await);
    let job = brief(&mut conn).await;
    lock_rows(&mut other).await;
    let body = pending::<Result<(), Error>>();
    assert_lost(claim::run(&pool, &job, End::Fail, body).await);
    let waiting = "SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
         AND datname = current_database()";
    db.until_none("no session that waits for the row", waiting)
        .await;
    drop(other);
}

#[tokio::test]
async fn a_claim_whose_completion_was_rolled_back_is_renewed_on() {
    let db = database(1).await;
    let (pool, mut conn) = (db.bb8(3).await, db.connect().await);
    let job = brief(&mut conn).await;
    let kept = claim::renew_while(&pool, &job, async {
        let mut conn = Pool::connection(&pool).await?;
        claims::roll_back(&mut conn, async |conn| claim::complete(conn, &job).await).await;
        renewed(&db).await;
        claim::complete(&mut conn, &job).await
    })
    .await;
    kept.unwrap().unwrap();
    assert_eq!(state_of(&mut conn, 1).await, State::Completed);
}

#[tokio::test]
async fn an_end_in_a_transaction_bounds_its_idle_time() {
    let db = database(1).await;
    let mut conn = db.connect().await;
    for (own, bound) in [("0", 300_000), ("4min", 240_000), ("20min", 300_000)] {
        let set = format!("SET idle_in_transaction_session_timeout = '{own}'");
        run(&mut conn, &set).await;
        let before = idle_bound(&mut conn).await;
        let job = crate::sync_job::next(&mut conn).await;
        let inside = conn.transaction(async |conn| {
            claim::release(conn, &job).await?;
            Ok::<_, Error>(idle_bound(conn).await)
        });
        assert_eq!(inside.await.unwrap(), bound, "{own}");
        assert_eq!(idle_bound(&mut conn).await, before);
    }
    // Work may go on for so long after the end of a shorter claim.
    let job = brief(&mut conn).await;
    let inside = conn.transaction(async |conn| {
        claim::complete(conn, &job).await?;
        Ok::<_, Error>(idle_bound(conn).await)
    });
    assert_eq!(inside.await.unwrap(), 10_000);
}

#[tokio::test]
async fn a_claim_is_renewed_while_work_uses_the_whole_pool() {
    let db = database(1).await;
    let mut conn = db.connect().await;
    let (bb8, deadpool) = (db.bb8(1).await, db.deadpool(1));
    for is_bb8 in [true, false] {
        let job = brief(&mut conn).await;
        let kept = if is_bb8 {
            let _lent = bb8.get().await.unwrap();
            claim::renew_while(&bb8, &job, renewed(&db)).await
        } else {
            let _lent = deadpool.get().await.unwrap();
            claim::renew_while(&deadpool, &job, renewed(&db)).await
        };
        kept.unwrap();
        claim::release(&mut conn, &job).await.unwrap();
    }
}

/// That connection has not the pool's `search_path`, and finds another table of the same name.
#[tokio::test]
async fn a_row_that_is_not_seen_beside_the_pool_is_not_lost() {
    let db = database(1).await;
    db.run(
        "CREATE SCHEMA own; ALTER TABLE sync_jobs SET SCHEMA own; \
         CREATE TABLE sync_jobs (LIKE own.sync_jobs); CREATE TABLE asked (); \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql \
             AS 'BEGIN INSERT INTO asked DEFAULT VALUES; RETURN NULL; END'; \
         CREATE TRIGGER note AFTER UPDATE ON sync_jobs EXECUTE FUNCTION note()",
    )
    .await;
    let pool = db.deadpool(1);
    let mut conn = pool.get().await.unwrap();
    run(&mut conn, "SET search_path = own").await;
    let job = brief(&mut conn).await;
    let kept = claim::renew_while(&pool, &job, async {
        db.until_some("a renewal", "SELECT FROM asked").await;
        drop(conn);
    });
    kept.await.unwrap();
}

#[tokio::test]
async fn a_completion_that_the_work_gave_up_on_is_not_called_lost() {
    /// Its end waits for the row, because of the trigger.
    #[derive(Debug, Queryable, Selectable, Claim)]
    #[diesel(table_name = crate::sync_job::sync_jobs)]
    #[claim(ttl = "3s", renew = "1s")]
    struct Triggered {
        id: i64,
    }
    let db = database(1).await;
    db.run(
        "CREATE FUNCTION same() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$; \
         CREATE TRIGGER same BEFORE UPDATE ON sync_jobs FOR EACH ROW EXECUTE FUNCTION same()",
    )
    .await;
    let (pool, mut conn, mut other) = (db.bb8(4).await, db.connect().await, db.connect().await);
    let job: Claimed<Triggered> = claims::first(&mut conn).await.unwrap();
    assert_eq!(job.id, 1);
    let mut own = db.connect().await;
    lock_rows(&mut other).await;
    let result: Result<(), Error> = claim::run(&pool, &job, End::Fail, async {
        // The work stops waiting for the answer of a statement that succeeds once the row's lock is
        // released. It waits for the row: before that it can be prepared only. A renewal waits too,
        // and sets another column.
        let waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
            AND datname = current_database() AND strpos(query, '\"completed_at\" = ') > 0";
        let sent = db.until_some("the completion", waiting);
        dropped(claim::complete(&mut own, &job), sent).await;
        drop(other);
        until(&db, "completed_at IS NOT NULL").await;
        Ok(())
    })
    .await;
    assert_matches!(result, Err(Error::CommitUnknown { .. }));
}

/// Refuses every completion, or the first three, for one of the errors.
async fn refusing(errcode: &str, is_once: bool) -> Database {
    let db = database(1).await;
    let until = if is_once {
        "nextval('tries') < 4"
    } else {
        "nextval('tries') > 0"
    };
    db.run(&format!(
        "CREATE SEQUENCE tries;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF {until} THEN RAISE EXCEPTION 'not today' USING ERRCODE = '{errcode}'; END IF; RETURN NEW; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE OF completed_at, failed_at ON sync_jobs FOR EACH ROW EXECUTE FUNCTION refuse()"
    ))
    .await;
    db
}

/// The work is done, and would be done twice.
#[tokio::test]
async fn a_refusal_that_may_pass_is_tried_again() {
    for errcode in ["55P03", "57014", "57P01", "40P01", "25006"] {
        let db = refusing(errcode, true).await;
        let (pool, mut conn) = (db.bb8(2).await, db.connect().await);
        let job = crate::sync_job::next(&mut conn).await;
        let result: Result<(), Error> = claim::run(&pool, &job, End::Fail, async { Ok(()) }).await;
        result.unwrap_or_else(|error| panic!("{errcode}: {error}"));
        assert_eq!(state_of(&mut conn, 1).await, State::Completed);
        assert_eq!(db.count("SELECT nextval('tries')").await, 5);
    }
}

#[tokio::test]
async fn a_job_whose_end_is_dropped_ends_in_the_background() {
    for (is_done, state) in [(true, State::Completed), (false, State::Failed)] {
        let db = refusing("55P03", true).await;
        let (pool, mut conn) = (db.bb8(2).await, db.connect().await);
        let job = crate::sync_job::next(&mut conn).await;
        let body = async { is_done.then_some(()).ok_or(failure("no")) };
        let run = claim::run(&pool, &job, End::Fail, body);
        let refused = "SELECT FROM tries WHERE is_called";
        dropped(run, db.until_some("a refusal", refused)).await;
        until(&db, "locked_by IS NULL").await;
        assert_eq!(state_of(&mut conn, 1).await, state);
    }
}

async fn refused(db: &Database) -> Claimed<Brief> {
    let (pool, mut conn) = (db.bb8(2).await, db.connect().await);
    let job = brief(&mut conn).await;
    let result: Result<(), Error> = claim::run(&pool, &job, End::Fail, async { Ok(()) }).await;
    assert_matches!(result, Err(Error::Database(source)) if source.to_string() == "not today");
    job
}

#[tokio::test]
async fn a_refusal_that_stays_is_reported_before_the_deadline() {
    let db = refusing("55P03", false).await;
    assert!(refused(&db).await.deadline() > Instant::now());
}

/// Only what got no answer, or may pass, is sent again.
#[tokio::test]
async fn an_error_of_the_last_statement_is_reported_at_once() {
    let db = refusing("check_violation", false).await;
    drop(refused(&db).await);
    assert_eq!(db.count("SELECT nextval('tries')").await, 2);
}

/// It fails the transaction, in which nothing can be sent again.
#[tokio::test]
async fn a_conflict_in_a_transaction_is_reported_as_it_is() {
    let db = database(1).await;
    let mut conn = db.connect().await;
    let refused: Result<(), Error> = conn
        .transaction(async |conn| {
            let level = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT FROM sync_jobs";
            conn.batch_execute(level).await?;
            db.run("UPDATE sync_jobs SET priority = 2").await;
            let job: Option<Claimed<Brief>> = claim::next("worker").first(conn).await?;
            panic!("{job:?}")
        })
        .await;
    let Err(Error::Database(DieselError::DatabaseError(kind, _))) = refused else {
        panic!("{refused:?}")
    };
    assert!(matches!(kind, DatabaseErrorKind::SerializationFailure));
}

/// A cancel request can reach a commit, whose answer then is 57014. Here the end waits in a
/// trigger, so that somebody else can play the commit.
#[tokio::test]
async fn a_refused_end_is_unknown_if_the_row_has_ended_all_the_same() {
    /// A process looks for the triggers of a type once, so that a type which other tests use could
    /// be known to have some. Then its end would lock the row first.
    #[derive(Debug, Queryable, Selectable, Claim)]
    #[diesel(table_name = crate::sync_job::sync_jobs)]
    #[claim(ttl = "4s")]
    struct Untriggered {
        id: i64,
    }
    let db = database(2).await;
    let (mut conn, mut holder) = (db.connect().await, db.connect().await);
    db.run(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF current_setting('application_name') = 'ends' THEN PERFORM pg_advisory_lock(1); END IF;
             RETURN NULL;
         END $$;
         CREATE TRIGGER wait BEFORE UPDATE ON sync_jobs FOR EACH STATEMENT EXECUTE FUNCTION wait()",
    )
    .await;
    run(&mut holder, "SELECT pg_advisory_lock(1)").await;
    let pid = pid_of(&mut conn).await;
    for is_committed in [false, true] {
        let job: Claimed<Untriggered> = claims::first(&mut conn).await.unwrap();
        assert!(job.id > 0);
        run(&mut conn, "SET application_name = 'ends'").await;
        let cancelled = async {
            db.until_waiting(1).await;
            if is_committed {
                db.run("UPDATE sync_jobs SET completed_at = now(), locked_by = NULL WHERE locked_by IS NOT NULL")
                    .await;
            }
            run(&mut holder, &format!("SELECT pg_cancel_backend({pid})")).await;
        };
        let (ended, ()) = tokio::join!(claim::complete(&mut conn, &job), cancelled);
        run(&mut conn, "SET application_name = ''").await;
        let source = match ended {
            Err(Error::Database(source)) if !is_committed => source,
            Err(Error::CommitUnknown { source, .. }) if is_committed => source,
            ended => panic!("{is_committed}: {ended:?}"),
        };
        assert!(source.to_string().contains("canceling"), "{source}");
        db.run("UPDATE sync_jobs SET locked_by = NULL, locked_until = NULL")
            .await;
    }
}
