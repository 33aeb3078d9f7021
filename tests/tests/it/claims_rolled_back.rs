//! Transactions that end a claim and last longer than it: committed, and rolled back.

use crate::sync_job::{SCHEMA, SyncJob, assert_lost, brief, database, jobs, state_of, until};
use advisory_runtime::Pool;
use advisory_runtime::claim::{self, Claimed, End, Error, State};
use advisory_tests::statements::run;
use advisory_tests::{Database, OwnServer, Proxy, left_out, owns_server};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::future::pending;
use std::time::Duration;
use tokio::time::timeout;

const GENEROUS: Duration = Duration::from_secs(60);

async fn until_expired(db: &Database) {
    let left = "SELECT locked_until FROM sync_jobs WHERE locked_until > clock_timestamp()";
    db.until_none("the expiry", left).await;
}

fn end(commits: bool) -> Result<(), Error> {
    let rollback = Error::Database(diesel::result::Error::RollbackTransaction);
    commits.then_some(()).ok_or(rollback)
}

#[tokio::test]
async fn rolled_back_work_is_dropped_after_the_expiry() {
    let db = database(1).await;
    let (pool, mut conn) = (db.bb8(3).await, db.connect().await);
    for commits in [false, true] {
        let job = brief(&mut conn).await;
        let mut own = db.connect().await;
        let work = claim::renew_while(&pool, &job, async {
            let ended = own.transaction(async |conn| {
                claim::complete(conn, &job).await?;
                until_expired(&db).await;
                end(commits)
            });
            assert_eq!(ended.await.is_ok(), commits);
            if !commits {
                pending::<()>().await;
            }
        });
        let kept = timeout(GENEROUS, work).await;
        let kept = kept.expect("the work continues under a claim that has expired");
        if commits {
            kept.unwrap();
            assert_eq!(state_of(&mut conn, 1).await, State::Completed);
        } else {
            assert_lost(kept);
            assert_eq!(state_of(&mut conn, 1).await, State::Expired);
        }
    }
}

#[tokio::test]
async fn rolled_back_work_is_dropped_after_another_claim_was_seen() {
    let db = database(1).await;
    let proxy = Proxy::start(&db).await;
    let pool = Database::bb8_at(proxy.url(), 3).await;
    let (mut conn, mut own) = (db.connect().await, db.connect().await);
    let job = brief(&mut conn).await;
    let work = claim::renew_while(&pool, &job, async {
        let undone = own.transaction(async |conn| {
            claim::complete(conn, &job).await?;
            // From now on no renewal arrives.
            proxy.stop_forwarding();
            until_expired(&db).await;
            end(false)
        });
        undone.await.unwrap_err();
        let other = crate::sync_job::next(&mut conn).await;
        proxy.resume_forwarding();
        pending::<()>().await;
        drop(other);
    });
    let kept = timeout(GENEROUS, work).await;
    let kept = kept.expect("the work continues under another worker's claim");
    assert_lost(kept);
}

/// The transaction that releases the job lasts longer than the claim, and another worker has
/// claimed the row before its end is asked for.
async fn ended_late(commits: bool, is_nested: bool, is_released: bool) -> Result<(), Error> {
    let db = database(1).await;
    let proxy = Proxy::start(&db).await;
    let pool = Database::bb8_at(proxy.url(), 3).await;
    let (mut conn, mut own) = (db.connect().await, db.connect().await);
    let job = brief(&mut conn).await;
    let work = claim::run(&pool, &job, End::Fail, async {
        let release = async |conn: &mut AsyncPgConnection| {
            claim::release(conn, &job).await?;
            proxy.stop_forwarding();
            until_expired(&db).await;
            end(commits)
        };
        let ended = own.transaction(async |conn| {
            if is_nested {
                // The outer transaction is committed in any case.
                let ended = conn.transaction(release).await;
                assert_eq!(ended.is_ok(), commits);
                return Ok(());
            }
            release(conn).await
        });
        assert_eq!(ended.await.is_ok(), commits || is_nested);
        let other = crate::sync_job::next(&mut conn).await;
        if is_released {
            claim::release(&mut conn, &other).await?;
        }
        proxy.resume_forwarding();
        Ok(())
    });
    let ended = timeout(GENEROUS, work).await;
    ended.expect("it is not known how the transaction has ended")
}

#[tokio::test]
async fn a_late_end_counts_only_if_it_was_committed() {
    let (held, released, committed, nested, undone) = tokio::join!(
        ended_late(false, false, false),
        ended_late(false, false, true),
        ended_late(true, false, false),
        ended_late(true, true, true),
        ended_late(false, true, false),
    );
    for lost in [held, released, undone] {
        assert_lost(lost);
    }
    committed.unwrap();
    nested.unwrap();
}

/// A crash can lose an open transaction's log, and the server then gives its number to another one.
#[tokio::test]
async fn a_transaction_that_a_crash_has_lost_is_rolled_back() {
    if !owns_server() {
        return left_out("crash", "the server is not our own");
    }
    let server = OwnServer::start().await;
    let connect = async || AsyncPgConnection::establish(server.url()).await.unwrap();
    let mut conn = connect().await;
    for set in [
        "wal_writer_delay = '10s'",
        "wal_writer_flush_after = '1GB'",
        "autovacuum = off",
    ] {
        let set = format!("ALTER SYSTEM SET {set}");
        run(&mut conn, &set).await;
    }
    run(&mut conn, SCHEMA).await;
    run(&mut conn, &jobs(1)).await;
    server.stop("fast").await;
    server.start_again().await;
    let mut conn = connect().await;
    let job = crate::sync_job::next(&mut conn).await;
    let pool = Database::bb8_at(server.url(), 3).await;
    let mut earlier = connect().await;
    let done = claim::run(&pool, &job, End::Fail, async {
        // Another number that the crash loses.
        run(&mut earlier, "BEGIN; SELECT pg_current_xact_id()").await;
        let ended = conn.transaction(async |conn| {
            claim::complete(conn, &job).await?;
            server.stop("immediate").await;
            Ok::<_, Error>(())
        });
        ended.await.unwrap_err();
        server.start_again().await;
        Ok::<_, Error>(())
    });
    done.await.unwrap();
    assert_eq!(state_of(&mut connect().await, 1).await, State::Completed);
}

/// That transaction is still open when it is asked for.
#[tokio::test]
async fn an_end_in_a_tests_transaction_counts_after_the_expiry() {
    let db = database(1).await;
    let pool = db.bb8(1).await;
    {
        let mut conn = Pool::connection(&pool).await.unwrap();
        conn.begin_test_transaction().await.unwrap();
    }
    let job = brief(&mut Pool::connection(&pool).await.unwrap()).await;
    let result: Result<(), Error> = claim::run(&pool, &job, End::Fail, async {
        let mut conn = Pool::connection(&pool).await?;
        let ended = conn.transaction(async |conn| {
            claim::complete(conn, &job).await?;
            let expire =
                "SELECT pg_catalog.pg_sleep_until(pg_catalog.now() + interval '5 seconds')";
            diesel::sql_query(expire).execute(conn).await.unwrap();
            Ok(())
        });
        ended.await
    })
    .await;
    result.unwrap();
}

#[tokio::test]
async fn work_with_a_released_job_outlives_another_workers_claim() {
    let db = database(1).await;
    let (pool, mut conn, mut own) = (db.bb8(3).await, db.connect().await, db.connect().await);
    let job = brief(&mut conn).await;
    let kept = claim::renew_while(&pool, &job, async {
        own.transaction(async |conn| claim::release(conn, &job).await)
            .await
            .unwrap();
        let other: Claimed<SyncJob> = crate::sync_job::next(&mut conn).await;
        // It was claimed longer ago than the first claim lasts.
        let later = "locked_until < clock_timestamp() + interval '295 seconds'";
        until(&db, later).await;
        drop(other);
        7
    });
    assert_eq!(kept.await.unwrap(), 7);
}
