//! Locks at the node that has the rows, on one PostgreSQL: the same locks as without `at`. `citus`
//! has them in a cluster.

use advisory_runtime::{Error, Key, advisory_lock, lock_key, monitor, xact};
use advisory_tests::bookings::execute;
use advisory_tests::futures::{spawn, spawn_blocking};
use advisory_tests::{Database, LockedKey, assert_error};
use diesel::pg::PgConnection;
use diesel::sql_types::Text;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

diesel::table! {
    tenant (id) {
        id -> Text,
    }
}

/// No name of a tenant ends the literal or the comment that it stands in.
const TENANT: &str = "a'b\\c */; é";

async fn database() -> Database {
    let db = Database::create().await;
    // A type whose `=` another schema has too, and no index.
    db.run("CREATE TABLE tenant (id text NOT NULL)").await;
    db.run(r"INSERT INTO tenant VALUES (E'a\'b\\c */; é')")
        .await;
    db
}

fn key() -> i64 {
    advisory_pattern::Derivation::Sha256.key(&format!("tenant:{TENANT}"))
}

#[advisory_lock(key = "tenant:<id>", name = "tenant", at = (tenant::id, id), handle = lock, max_hold = "1m")]
async fn locked(
    conn: &mut AsyncPgConnection,
    db: &Database,
    id: &str,
) -> Result<Vec<LockedKey>, Error> {
    lock.check(conn).await?;
    let held = db.locks().await.into_iter().map(|lock| lock.key).collect();
    execute(conn, "INSERT INTO tenant VALUES ('new')").await?;
    Ok(held)
}

#[advisory_lock(keys = ["tenant:<id>", "tenant:<other>"], name = "tenant", at = (tenant::id, id), wait = "never", on_held = Ok(false))]
async fn try_two(conn: &mut AsyncPgConnection, id: &str, other: &str) -> Result<bool, Error> {
    _ = conn;
    Ok(true)
}

#[advisory_lock(key = "tenant:<id>", name = "tenant", at = (tenant::id, id), wait = "never")]
fn try_blocking(conn: &mut PgConnection, id: &str) -> Result<(), Error> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "tenant:<id>", name = "tenant", at = (tenant::id, id), wait = "100ms")]
async fn wait(conn: &mut AsyncPgConnection, id: &str) -> Result<(), Error> {
    _ = conn;
    Ok(())
}

async fn hold(
    conn: &mut AsyncPgConnection,
    id: &str,
    others: impl Future<Output = ()>,
) -> Result<(), Error> {
    let held = xact::begin(conn, lock_key!("tenant:<id: text>", name = "tenant")).await?;
    others.await;
    held.finish(Ok(())).await
}

#[tokio::test]
async fn the_lock_is_the_one_without_the_argument() {
    let db = database().await;
    let mut conn = db.connect().await;
    assert_eq!(
        locked(&mut conn, &db, TENANT).await.unwrap(),
        [LockedKey::Bigint(key())]
    );
    assert!(db.locks().await.is_empty());
    let nested = conn.transaction(async |conn| locked(conn, &db, TENANT).await);
    assert_eq!(nested.await.unwrap(), [LockedKey::Bigint(key())]);
    assert!(try_two(&mut conn, TENANT, "b").await.unwrap());
    // No row of the table is touched.
    assert_eq!(db.count("SELECT count(*) FROM tenant").await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_wait_ends_while_another_session_holds_it() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    hold(&mut holder, TENANT, async {
        assert!(!try_two(&mut conn, TENANT, "b").await.unwrap());
        assert_error!(wait(&mut conn, TENANT).await, TimedOut);
        let nested = conn.transaction(async |conn| {
            let waited = wait(conn, TENANT).await.unwrap_err();
            assert!(waited.is_busy(), "{waited:?}");
            assert!(!try_two(conn, TENANT, "b").await?);
            assert_eq!(execute(conn, "SELECT 1").await?, 1);
            Ok::<_, Error>(())
        });
        nested.await.unwrap();
        let mut blocking = db.establish();
        let tried = spawn_blocking(move || try_blocking(&mut blocking, TENANT));
        assert_error!(tried.await.unwrap(), NotAvailable);
    })
    .await
    .unwrap();
    assert!(db.locks().await.is_empty());
}

#[derive(diesel::QueryableByName)]
struct Shown {
    #[diesel(sql_type = Text)]
    query: String,
}

/// A waiting call's query names its key.
#[tokio::test]
async fn a_waiting_call_is_shown_with_its_name() {
    #[advisory_lock(key = "tenant:<id>", name = "tenant", at = (tenant::id, id))]
    async fn plain(conn: &mut AsyncPgConnection, id: &str) -> Result<(), Error> {
        _ = conn;
        Ok(())
    }
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let mut observer = db.connect().await;
    hold(&mut holder, TENANT, async {
        // In a task of its own: this one holds the lock.
        let waiting = spawn(async move { plain(&mut conn, TENANT).await });
        let look = async {
            db.until_waiting(key()).await;
            let waits = "SELECT query FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()";
            let query = diesel::sql_query(waits)
                .get_result::<Shown>(&mut observer)
                .await;
            let query = query.unwrap().query;
            assert!(query.starts_with("/*"), "{query}");
            assert_eq!(monitor::keys_of(&query), [Key::BigInt(key())], "{query}");
        };
        tokio::select! {
            ended = waiting => panic!("{ended:?}"),
            () = look => {}
        }
    })
    .await
    .unwrap();
}
