//! Blocking Diesel in an async program: a locked call on a thread that may block.

use advisory_runtime::blocking::xact;
use advisory_runtime::{Error, PoolError, advisory_lock};
use advisory_tests::blocking::insert;
use advisory_tests::bookings::{committed, database, key_of};
use advisory_tests::futures::{spawn, spawn_blocking};
use diesel::PgConnection;
use diesel::r2d2::{ConnectionManager, Pool};
use std::sync::mpsc;
use tokio::sync::oneshot;

type Connections = Pool<ConnectionManager<PgConnection>>;

/// Signals that it holds the lock, and waits for a signal.
#[advisory_lock(
    key = "room:<room>",
    name = "room",
    conn = pool.get().map_err(PoolError::new)?,
)]
fn book_when_told(
    pool: &Connections,
    room: i64,
    begun: oneshot::Sender<()>,
    go_on: &mpsc::Receiver<()>,
) -> Result<(), Error> {
    begun.send(()).unwrap();
    go_on.recv().unwrap();
    insert(conn, room, "Ada")?;
    Ok(())
}

/// Everything runs on one thread, which also queries the server meanwhile.
#[tokio::test]
async fn the_executor_is_free_while_a_call_waits_for_its_lock() {
    let db = database().await;
    let pool = db.r2d2(1);
    let mut holder = db.establish();
    let held = xact::begin(&mut holder, key_of(7)).unwrap();
    let (go, go_on) = mpsc::channel();
    go.send(()).unwrap();
    let (tell, _begun) = oneshot::channel();
    let call = spawn_blocking(move || book_when_told(&pool, 7, tell, &go_on));
    db.until_waiting(key_of(7)).await;
    held.finish(Ok::<_, Error>(())).unwrap();
    call.await.unwrap().unwrap();
    assert_eq!(committed(&db, 7).await, 1);
}

#[tokio::test]
async fn the_lock_of_a_dropped_caller_is_held_until_its_body_ends() {
    let db = database().await;
    let pool = db.r2d2(1);
    let (go, go_on) = mpsc::channel();
    let (tell, begun) = oneshot::channel();
    let handler =
        spawn(async move { spawn_blocking(move || book_when_told(&pool, 7, tell, &go_on)).await });
    begun.await.unwrap();
    handler.abort();
    assert!(handler.await.unwrap_err().is_cancelled());
    assert_eq!(db.locks().await.len(), 1);
    go.send(()).unwrap();
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 1);
}

/// There is only one thread for closures, and it is busy when the call arrives.
#[test]
fn a_closure_runs_even_if_its_caller_is_dropped_before() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let db = database().await;
        let pool = db.r2d2(1);
        let (leave, left) = mpsc::channel::<()>();
        drop(spawn_blocking(move || left.recv()));
        let (go, go_on) = mpsc::channel();
        go.send(()).unwrap();
        let (tell, begun) = oneshot::channel();
        drop(spawn_blocking(move || {
            book_when_told(&pool, 7, tell, &go_on)
        }));
        leave.send(()).unwrap();
        begun.await.unwrap();
        db.until_quiet().await;
        assert_eq!(committed(&db, 7).await, 1);
    });
}
