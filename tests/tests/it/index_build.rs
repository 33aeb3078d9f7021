//! `CREATE INDEX CONCURRENTLY` under a lock that other instances want too. It waits for every older
//! snapshot, and so for every session that waits at the server for the lock that its own session
//! holds.

use advisory_runtime::{Error, Key, advisory_lock, lock_key};
use advisory_tests::bookings::{database, execute};
use advisory_tests::futures::{spawn, spawn_blocking};
use advisory_tests::polls::until_missed;
use advisory_tests::{Database, pid_of};
use diesel::QueryResult;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Turn {
    held: oneshot::Sender<()>,
    go_on: oneshot::Receiver<()>,
}

async fn build(conn: &mut AsyncPgConnection, turn: Option<Turn>) -> QueryResult<()> {
    if let Some(Turn { held, go_on }) = turn {
        held.send(()).unwrap();
        go_on.await.unwrap();
    }
    conn.batch_execute("CREATE INDEX CONCURRENTLY IF NOT EXISTS booking_room ON booking (room)")
        .await
}

#[advisory_lock(
    key = "index-build",
    name = "index-build",
    scope = "session",
    wait = "1h"
)]
async fn waits(conn: &mut AsyncPgConnection, turn: Option<Turn>) -> Result<(), Error> {
    Ok(build(conn, turn).await?)
}

#[advisory_lock(
    key = "index-build",
    name = "index-build",
    scope = "session",
    wait = "1h",
    poll = "20ms"
)]
async fn polls(conn: &mut AsyncPgConnection, turn: Option<Turn>) -> Result<(), Error> {
    Ok(build(conn, turn).await?)
}

/// Another use of the lock, with a transaction.
#[advisory_lock(key = "index-build", name = "index-build", poll = "20ms")]
async fn polls_for_a_transaction(conn: &mut AsyncPgConnection) -> Result<usize, Error> {
    Ok(execute(conn, "SELECT FROM booking").await?)
}

#[advisory_lock(key = "index-build", name = "index-build", poll = "20ms")]
fn polls_on_a_thread(conn: &mut diesel::pg::PgConnection) -> Result<usize, Error> {
    Ok(advisory_tests::blocking::execute(
        conn,
        "SELECT FROM booking",
    )?)
}

type Instance = JoinHandle<Result<(), Error>>;

/// An instance that holds the lock, and the signal that lets it continue.
async fn holder(db: &Database) -> (Instance, oneshot::Sender<()>) {
    let mut conn = db.connect().await;
    let ((held, is_held), (go_on, told)) = (oneshot::channel(), oneshot::channel());
    let turn = Turn { held, go_on: told };
    let building = spawn(async move { waits(&mut conn, Some(turn)).await });
    is_held.await.unwrap();
    (building, go_on)
}

/// Shows that the test below can fail.
#[tokio::test]
async fn an_index_build_and_a_wait_for_its_lock_are_a_deadlock() {
    let db = database().await;
    let (building, go_on) = holder(&db).await;
    let mut conn = db.connect().await;
    let waiting = spawn(async move { waits(&mut conn, None).await });
    let Key::BigInt(key) = lock_key!("index-build", name = "index-build") else {
        unreachable!("a pattern's key is a bigint");
    };
    db.until_waiting(key).await;
    go_on.send(()).unwrap();
    let ended = [building.await.unwrap(), waiting.await.unwrap()];
    // The server chooses the victim.
    let is_victim = |ended: &Result<(), Error>| {
        let error = ended.as_ref().err();
        error.is_some_and(|error| format!("{error:?}").contains("deadlock detected"))
    };
    assert!(ended.iter().any(is_victim), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_polls_lets_an_index_build_pass() {
    let db = database().await;
    let (building, go_on) = holder(&db).await;
    let mut instances = Vec::new();
    for _ in 0..3 {
        let mut conn = db.connect().await;
        let pid = pid_of(&mut conn).await;
        instances.push(spawn(async move { polls(&mut conn, None).await }));
        until_missed(&db, pid).await;
    }
    let mut conn = db.connect().await;
    let pid = pid_of(&mut conn).await;
    instances.push(spawn(async move {
        polls_for_a_transaction(&mut conn).await.map(drop)
    }));
    until_missed(&db, pid).await;
    let mut conn = db.establish();
    let pid = advisory_tests::blocking::pid_of(&mut conn);
    instances.push(spawn_blocking(move || {
        polls_on_a_thread(&mut conn).map(drop)
    }));
    until_missed(&db, pid).await;
    go_on.send(()).unwrap();
    building.await.unwrap().unwrap();
    for instance in instances {
        instance.await.unwrap().unwrap();
    }
    let valid =
        "SELECT count(*) FROM pg_index WHERE indexrelid = 'booking_room'::regclass AND indisvalid";
    assert_eq!(db.count(valid).await, 1);
    db.until_quiet().await;
}
