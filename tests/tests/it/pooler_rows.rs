//! Leases and claims through a pooler in transaction mode, which can send each message to a
//! different backend. The pooler must track prepared statements, because Diesel uses them.

use crate::sync_job::{self, SyncJob, next, state_of};
use advisory_runtime::claim::{self, End, State};
use advisory_runtime::lease::{self, Error, Leases, Request, Table};
use advisory_runtime::{Pool as _, Wait, xact};
use advisory_tests::futures::spawn;
use advisory_tests::leases::{Pool, database, expire, fence, key, once, until_over, until_renewed};
use advisory_tests::poolers::tracking_bouncer;
use advisory_tests::{Bouncer, Database, assert_matches};
use diesel::prelude::*;
use diesel_async::{AsyncConnection, RunQueryDsl};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

const TTL: Duration = Duration::from_secs(60);
const SETTINGS: &str = "pool_mode = transaction\ndefault_pool_size = 3\nserver_round_robin = 1\n\
                        max_prepared_statements = 50";

diesel::table! {
    counter (n) { n -> BigInt }
}

fn pool(bouncer: &Bouncer, db: &Database) -> Pool {
    Database::deadpool_at(bouncer.url(db), 4)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_work_behind_a_pooler() {
    let db = database().await;
    db.run("CREATE TABLE counter AS SELECT 0::int8 AS n").await;
    let Some(bouncer) = tracking_bouncer(&db, SETTINGS).await else {
        return;
    };
    let pool = pool(&bouncer, &db);
    let leases = Leases::new(pool.clone());
    let db = std::sync::Arc::new(db);
    let mut bodies = JoinSet::new();
    for _ in 0..6 {
        let (leases, db) = (leases.clone(), std::sync::Arc::clone(&db));
        bodies.spawn(async move {
            for _ in 0..3 {
                let mut held = leases.acquire(Request::text("k")).await.unwrap();
                let added = held.run(async {
                    let n = db.count("SELECT n FROM counter").await;
                    db.run(&format!("UPDATE counter SET n = {}", n + 1)).await;
                });
                added.await.unwrap();
                held.finish(Ok::<_, Error>(())).await.unwrap();
            }
        });
    }
    bodies.join_all().await;
    assert_eq!(db.count("SELECT n FROM counter").await, 18);
    let old = leases.acquire(key("k").renew(TTL / 3000)).await.unwrap();
    until_renewed(old.lease()).await;
    expire(&db).await;
    until_over(old.lease()).await;
    let new = leases.acquire(key("k").keep(TTL)).await.unwrap();
    assert!(new.lease().token() > old.lease().token());
    {
        let mut conn = pool.get().await.unwrap();
        let late = fence(&mut conn, old.lease()).await;
        assert_matches!(late, Err(Error::Lost { .. }));
        let done = conn.transaction(async |conn| {
            new.lease().fence(conn).await?;
            new.lease().complete(conn).await
        });
        done.await.unwrap();
    }
    new.finish(Ok::<_, Error>(())).await.unwrap();
    let error = once(&leases, key("k")).await.unwrap_err();
    assert!(error.is_done(), "{error:?}");
    {
        let (mut conn, table) = (pool.get().await.unwrap(), Table::new());
        let row = table.find(&mut conn, Request::text("k")).await.unwrap();
        assert!(row.unwrap().is_done);
        table.sweep(&mut conn).await.unwrap();
    }
    drop(old);
    db.until_quiet().await;
}

/// A leader that shuts down is followed by another one, and each writes under its term and a
/// transaction-level lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_and_transaction_locks_work_behind_a_pooler() {
    let db = database().await;
    db.run("CREATE TABLE counter AS SELECT 0::int8 AS n").await;
    let Some(bouncer) = tracking_bouncer(&db, SETTINGS).await else {
        return;
    };
    let pool = pool(&bouncer, &db);
    let candidates = (0..3).map(|_| {
        let pool = pool.clone();
        spawn(async move {
            let done = Notify::new();
            lease::lead_until(
                &pool,
                Request::text("leader"),
                done.notified(),
                async |term| {
                    let mut conn = pool.connection().await?;
                    let mut held = xact::begin(&mut conn, 7).await?;
                    let added = async {
                        let conn = held.conn();
                        term.fence(conn).await?;
                        let n: i64 = counter::table.select(counter::n).first(conn).await?;
                        diesel::update(counter::table)
                            .set(counter::n.eq(n + 1))
                            .execute(conn)
                            .await?;
                        QueryResult::Ok(())
                    };
                    let added = added.await;
                    held.finish(added).await?;
                    drop(conn);
                    done.notify_one();
                    // Until the shutdown drops it.
                    std::future::pending::<QueryResult<()>>().await
                },
            )
            .await
        })
    });
    for candidate in candidates.collect::<Vec<_>>() {
        candidate.await.unwrap().unwrap();
    }
    assert_eq!(db.count("SELECT n FROM counter").await, 3);
    assert_eq!(db.locks().await, []);
}

/// A key is never granted twice, and the server's error says what is missing.
#[tokio::test]
async fn a_pooler_without_statement_tracking_is_an_error() {
    let db = database().await;
    let settings = SETTINGS.replace("statements = 50", "statements = 0");
    let Some(bouncer) = tracking_bouncer(&db, &settings).await else {
        return;
    };
    let leases = Leases::new(pool(&bouncer, &db));
    let mut refusals = Vec::new();
    while refusals.len() < 3 {
        match leases.acquire(Request::text("k").wait(Wait::Never)).await {
            // Its first statement was prepared on the backend that executed it: the next one runs
            // elsewhere.
            Ok(held) => drop(held),
            Err(error) if error.is_held() => {}
            Err(error) => refusals.push(error),
        }
    }
    for error in refusals {
        assert_matches!(error, Error::Pool(_) | Error::Database(_));
        assert!(
            format!("{error:?}").contains("prepared statement"),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn claims_work_behind_a_pooler_that_tracks_statements() {
    let db = sync_job::database(20).await;
    let Some(bouncer) = tracking_bouncer(&db, SETTINGS).await else {
        return;
    };
    let pool = pool(&bouncer, &db);
    let workers = (0..4).map(|_| {
        let pool = pool.clone();
        spawn(async move {
            let mut done = 0;
            loop {
                let job = claim::next::<SyncJob>("worker")
                    .first(&mut pool.connection().await?)
                    .await?;
                let Some(job) = job else {
                    return Ok::<_, claim::Error>(done);
                };
                let renewed = claim::renew(&mut pool.connection().await?, &job).await;
                renewed?;
                claim::run(&pool, &job, End::Fail, async { Ok::<_, claim::Error>(()) }).await?;
                done += 1;
            }
        })
    });
    let mut done = 0;
    for worker in workers.collect::<Vec<_>>() {
        done += worker.await.unwrap().unwrap();
    }
    assert_eq!(done, 20);
    db.run("INSERT INTO sync_jobs SELECT 21, 1, now()").await;
    let mut conn = pool.connection().await.unwrap();
    let job = next(&mut conn).await;
    claim::fail(&mut conn, &job, "no").await.unwrap();
    assert_eq!(state_of(&mut conn, 21).await, State::Failed);
}
