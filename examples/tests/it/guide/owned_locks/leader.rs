use advisory_runtime::{Error, OwnedLockGuard, Pool as _, Request, Wait, session};
use advisory_tests::Database;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::future::pending;
use std::time::Duration;
use tokio::sync::oneshot;

/// Any number that nothing else in the database locks.
const LEADER: i64 = 7_100;

async fn lead(
    url: &str,
    pool: &Pool<AsyncPgConnection>,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    tokio::pin!(shutdown);
    loop {
        // A connection for the lock alone: the jobs have the pool's.
        let conn = AsyncPgConnection::establish(url).await?;
        let Some(mut lock) = campaign(conn, &mut shutdown).await? else {
            return Ok(());
        };
        tokio::select! {
            result = run_jobs(pool) => return Ok(result?),
            () = lock.lost() => {} // the jobs were dropped; campaign again
            () = &mut shutdown => {
                lock.finish(Ok::<_, Error>(())).await?; // another process can lead at once
                return Ok(());
            }
        }
    }
}

/// Tries every second. `None` at the shutdown.
async fn campaign(
    mut conn: AsyncPgConnection,
    mut shutdown: impl Future<Output = ()> + Unpin,
) -> Result<Option<OwnedLockGuard<AsyncPgConnection>>, Error> {
    loop {
        match session::acquire_owned(conn, Request::new(LEADER).wait(Wait::Never)).await {
            Ok(lock) => return Ok(Some(lock)),
            Err(failed) if failed.error.is_busy() => conn = *failed.connection,
            Err(failed) => return Err(failed.into()),
        }
        tokio::select! {
            // As on the page: the interval between two tries.
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            () = &mut shutdown => return Ok(None),
        }
    }
}

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
