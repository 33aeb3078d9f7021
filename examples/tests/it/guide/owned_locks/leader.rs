use advisory_runtime::{Error, OwnedLockGuard, Pool as _, Request, Wait, session};
use advisory_tests::Database;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::future::pending;
use std::time::Duration;
use tokio::sync::oneshot;

crate::guide::page!("owned-locks", 1);

/// A row for each start, and a transaction that is open until the jobs are dropped.
async fn run_jobs(pool: &Pool<AsyncPgConnection>) -> Result<(), Error> {
    let mut conn = pool.connection().await?;
    let start = diesel::sql_query("INSERT INTO term DEFAULT VALUES");
    start.execute(&mut conn).await?;
    conn.transaction(async |_| pending().await).await
}

/// Waits until the jobs were started that often.
async fn until_terms(db: &Database, count: u32) {
    let fewer = format!("SELECT count(*) FROM term HAVING count(*) < {count}");
    db.until_empty(Duration::from_secs(30), "another term", &fewer)
        .await;
}

#[tokio::test]
async fn one_leads_until_its_lock_is_lost_or_it_shuts_down() {
    let db = Database::create().await;
    db.run("CREATE TABLE term (begun timestamptz DEFAULT now())")
        .await;
    let mut processes = Vec::new();
    for _ in 0..3 {
        let (shutdown, told) = oneshot::channel();
        let (url, pool) = (db.url().to_owned(), db.bb8(1).await);
        let process = async move { lead(&url, &pool, async { told.await.unwrap() }).await };
        processes.push((tokio::spawn(process), shutdown));
    }
    until_terms(&db, 1).await;
    for terms in 2..=4 {
        let [leader] = &db.locks().await[..] else {
            panic!("there is one leader")
        };
        db.terminate(leader.pid).await;
        until_terms(&db, terms).await;
        let jobs = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND state = 'idle in transaction' HAVING count(*) <> 1";
        db.until_empty(Duration::from_secs(30), "one leader's jobs", jobs)
            .await;
    }
    for (process, shutdown) in processes {
        shutdown.send(()).unwrap();
        process.await.unwrap().unwrap();
    }
    db.until_quiet().await;
}
