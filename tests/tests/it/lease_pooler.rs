//! Leases behind a pooler in transaction mode that tracks prepared statements, while each message
//! goes to another backend.

use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::lease::{self, Error, Leases, Request, Table};
use advisory_runtime::{Pool as _, Wait, xact};
use advisory_tests::leases::{database, expire, key};
use advisory_tests::{Bouncer, Database, left_out};
use diesel::prelude::*;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

const WHAT: &str = "leases behind a pooler";
const TTL: Duration = Duration::from_secs(60);
const SETTINGS: &str = "pool_mode = transaction\ndefault_pool_size = 3\nserver_round_robin = 1\n\
                        max_prepared_statements = 50";

diesel::table! {
    counter (n) { n -> BigInt }
}

fn pool(bouncer: &Bouncer, db: &Database) -> Pool<AsyncPgConnection> {
    let manager = AsyncDieselConnectionManager::new(bouncer.url(db));
    Pool::builder(manager).max_size(4).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_work_behind_a_pooler() {
    let db = database().await;
    db.run("CREATE TABLE counter AS SELECT 0::int8 AS n").await;
    let bouncer = match Bouncer::start_tracking(&db, SETTINGS).await {
        Ok(bouncer) => bouncer,
        Err(why) => return left_out(WHAT, why),
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
    let (mut a, mut b) = (pool.get().await.unwrap(), pool.get().await.unwrap());
    let table = Table::new();
    let old = table.acquire(&mut a, key("k").keep(TTL)).await.unwrap();
    assert!(table.renew(&mut b, &old, TTL * 2).await.unwrap());
    expire(&db).await;
    let new = table.acquire(&mut b, key("k").keep(TTL)).await.unwrap();
    assert!(new.token() > old.token());
    let late = a.transaction(async |a| old.fence(a).await);
    assert!(matches!(late.await, Err(Error::Lost { .. })));
    let done = b.transaction(async |b| {
        new.fence(b).await?;
        new.complete(b).await
    });
    done.await.unwrap();
    let error = table.acquire(&mut a, key("k")).await.unwrap_err();
    assert!(error.is_done(), "{error:?}");
    let row = table
        .find(&mut a, Request::text("k"))
        .await
        .unwrap()
        .unwrap();
    assert!(row.is_done);
    table.sweep(&mut a).await.unwrap();
    db.until_quiet().await;
}

/// A leader that shuts down is followed by another one, and each writes under its term and a
/// transaction-level lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_and_transaction_locks_work_behind_a_pooler() {
    let db = database().await;
    db.run("CREATE TABLE counter AS SELECT 0::int8 AS n").await;
    let bouncer = match Bouncer::start_tracking(&db, SETTINGS).await {
        Ok(bouncer) => bouncer,
        Err(why) => return left_out(WHAT, why),
    };
    let pool = pool(&bouncer, &db);
    let candidates = (0..3).map(|_| {
        let pool = pool.clone();
        tokio::spawn(async move {
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
    let bouncer = match Bouncer::start_tracking(&db, &settings).await {
        Ok(bouncer) => bouncer,
        Err(why) => return left_out(WHAT, why),
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
        assert!(
            matches!(error, Error::Pool(_) | Error::Database(_)),
            "{error:?}"
        );
        assert!(
            format!("{error:?}").contains("prepared statement"),
            "{error:?}"
        );
    }
}
