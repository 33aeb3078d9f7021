use advisory_runtime::lease::{self, Error, Lease, Leases, Request, Table};
use advisory_runtime::monitor::{self, Names};
use advisory_runtime::{LockKey, Pool as _, Wait};
use advisory_tests::{Database, OwnServer, left_out, owns_server};
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

crate::guide::page!("leadership", 1);

struct Process {
    task: JoinHandle<Result<(), Error>>,
    shutdown: oneshot::Sender<()>,
}

impl Process {
    async fn start(db: &Database) -> Self {
        Self::of(db.bb8(2).await)
    }

    fn of(pool: Pool<AsyncPgConnection>) -> Self {
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
    let refused = Leases::new(db.bb8(1).await).acquire(campaign).await;
    assert!(refused.unwrap_err().is_held(), "there is a leader");
    let names = Names::of_program().unwrap();
    let leases = monitor::leases(&mut conn, &Table::new(), &names).await;
    let site = &leases.unwrap()[0].names[0].sites[0];
    assert_eq!(
        site.purpose.as_deref(),
        Some("The leader deletes old sessions.")
    );
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

crate::guide::page!("leadership", 2);

#[tokio::test]
async fn a_deposed_leader_begins_a_new_term() {
    let db = Database::create().await;
    db.run("CREATE TABLE session (expires timestamptz)").await;
    let mut conn = db.connect().await;
    Table::new().set_up(&mut conn).await.unwrap();
    expire_a_session(&db).await;
    let process = Process::start(&db).await;
    until_cleaned_up(&db).await;
    let token = "SELECT token FROM advisory_lease";
    let term = db.count(token).await;
    depose(&mut conn).await.unwrap();
    // The body of the old term is asleep for a minute, and dropped at the next renewal.
    expire_a_session(&db).await;
    until_cleaned_up(&db).await;
    assert!(db.count(token).await > term);
    process.shutdown.send(()).unwrap();
    process.task.await.unwrap().unwrap();
}

/// The server restarts while the leader waits for its answer.
#[tokio::test]
async fn the_leader_survives_a_restart_of_the_server() {
    if !owns_server() {
        return left_out("restart", "the server is not our own");
    }
    let server = OwnServer::start().await;
    let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
    Table::new().set_up(&mut conn).await.unwrap();
    // Two messages: a `BEGIN` at the end of one would include what is before it.
    for message in [
        "CREATE TABLE session (expires timestamptz); INSERT INTO session VALUES (now() - interval '1 day')",
        "BEGIN; LOCK TABLE session",
    ] {
        conn.batch_execute(message).await.unwrap();
    }
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(server.url());
    let pool = Pool::builder().max_size(2).build(manager).await.unwrap();
    let process = Process::of(pool);
    // In the transaction that locks the table, the first result would be repeated.
    let mut watcher = AsyncPgConnection::establish(server.url()).await.unwrap();
    let waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    until_rows(&mut watcher, waiting, 1).await;
    server.stop("fast").await;
    server.start_again().await;
    let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
    until_rows(&mut conn, "SELECT 1 FROM session", 0).await;
    process.shutdown.send(()).unwrap();
    process.task.await.unwrap().unwrap();
}

async fn until_rows(conn: &mut AsyncPgConnection, query: &str, rows: usize) {
    let found = async {
        let mut pause = tokio::time::interval(Duration::from_millis(20));
        loop {
            pause.tick().await;
            if diesel::sql_query(query).execute(conn).await.unwrap() == rows {
                return;
            }
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(60), found).await;
    found.expect(query);
}
