use advisory_runtime::lease::{self, Request, Table};
use advisory_runtime::{Error, Pool as _, Wait};
use advisory_tests::Database;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

crate::guide::runs_the_page!("leadership", "leadership.rs");

async fn run(
    pool: &Pool<AsyncPgConnection>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    let campaign = Request::text("cleanup").ttl(Duration::from_secs(15));
    lease::lead_until(pool, campaign, shutdown, async |term| {
        let mut minute = tokio::time::interval(Duration::from_secs(60));
        loop {
            minute.tick().await;
            let mut conn = pool.connection().await?;
            conn.transaction(async |conn| {
                term.fence(conn).await?; // refused if another process leads by now
                diesel::sql_query("DELETE FROM session WHERE expires < now()")
                    .execute(conn)
                    .await?;
                Ok::<_, Error>(())
            })
            .await?;
        }
    })
    .await
}

struct Process {
    task: JoinHandle<Result<(), Error>>,
    shutdown: oneshot::Sender<()>,
}

impl Process {
    async fn start(db: &Database) -> Self {
        let pool = db.bb8(2).await;
        let (shutdown, told) = oneshot::channel();
        let task = tokio::spawn(async move { run(&pool, async { told.await.unwrap() }).await });
        Self { task, shutdown }
    }
}

async fn expire_a_session(db: &Database) {
    db.run("INSERT INTO session VALUES (now() - interval '1 day')")
        .await;
}

async fn until_cleaned_up(db: &Database) {
    let expired = "SELECT 'expired' FROM session";
    db.until_empty(Duration::from_secs(30), "no expired session", expired)
        .await;
}

#[tokio::test]
async fn one_cleans_up_until_its_shutdown_and_then_another() {
    let db = Database::create().await;
    db.run("CREATE TABLE session (expires timestamptz)").await;
    let mut conn = db.connect().await;
    Table::new().set_up(&mut conn).await.unwrap();
    expire_a_session(&db).await;
    let first = Process::start(&db).await;
    until_cleaned_up(&db).await;
    let second = Process::start(&db).await;
    let campaign = Request::text("cleanup").wait(Wait::Never);
    let refused = Table::new().acquire(&mut conn, campaign).await;
    assert!(refused.unwrap_err().is_busy(), "there is a leader");
    expire_a_session(&db).await;
    let token = "SELECT token FROM advisory_lease";
    let term = db.count(token).await;

    first.shutdown.send(()).unwrap();
    first.task.await.unwrap().unwrap();
    let leads = format!(
        "SELECT count(*) FROM advisory_lease WHERE token = {term} AND expires_at > clock_timestamp()"
    );
    assert_eq!(db.count(&leads).await, 0, "its term is over at once");
    until_cleaned_up(&db).await;
    assert!(db.count(token).await > term);
    second.shutdown.send(()).unwrap();
    second.task.await.unwrap().unwrap();
}
