//! What public programs keep an advisory lock for, with a guard that owns its connection: the examples of the guide's page, run.

use crate::bookings::{committed, database, execute};
use crate::dropped_call::until_ended;
use advisory_runtime::{Error, LockKey, Pool as _, Request, Wait, session};
use advisory_tests::{Database, LockedKey};
use diesel_async::pooled_connection::deadpool::{Object, Pool};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::pin::Pin;
use tokio::sync::{mpsc, oneshot, watch};

const LEADER: i64 = 7_100;

/// A leader with a connection for its lock alone. It says when it leads, and by which process of the server; its jobs run until they
/// are dropped. Others campaign whenever `again` changes.
async fn lead(
    url: String,
    leads: mpsc::UnboundedSender<i32>,
    mut again: watch::Receiver<()>,
    shutdown: oneshot::Receiver<()>,
) -> Result<u32, Error> {
    let mut shutdown = Pin::from(Box::new(shutdown));
    let mut terms = 0;
    loop {
        let mut conn = AsyncPgConnection::establish(&url).await.unwrap();
        let mut lock = loop {
            match session::acquire_owned(conn, Request::new(LEADER).wait(Wait::Never)).await {
                Ok(lock) => break lock,
                Err(failed) if failed.error.is_busy() => conn = *failed.connection,
                Err(failed) => return Err(failed.into()),
            }
            tokio::select! {
                _ = again.changed() => {}
                _ = &mut shutdown => return Ok(terms),
            }
        };
        terms += 1;
        leads
            .send(advisory_tests::pid_of(lock.conn()).await)
            .unwrap();
        tokio::select! {
            () = std::future::pending() => {}
            () = lock.lost() => {}
            _ = &mut shutdown => {
                lock.release().await?;
                return Ok(terms);
            }
        }
    }
}

#[tokio::test]
async fn a_leader_steps_down_when_its_lock_is_lost_and_at_its_shutdown() {
    let db = database().await;
    let (leads, mut led) = mpsc::unbounded_channel();
    let (again, _) = watch::channel(());
    let mut processes = Vec::new();
    for _ in 0..3 {
        let (stop, shutdown) = oneshot::channel();
        let process = lead(
            db.url().to_owned(),
            leads.clone(),
            again.subscribe(),
            shutdown,
        );
        processes.push((tokio::spawn(process), stop));
    }
    let mut pid = led.recv().await.unwrap();
    for _ in 0..5 {
        assert_eq!(db.locks().await.len(), 1);
        db.terminate(pid).await;
        // A client can hear of the end before the lock is free, and nobody tells it to try again.
        until_ended(&db, pid, "a leader that is terminated").await;
        again.send(()).unwrap();
        pid = led.recv().await.unwrap();
    }
    let mut terms = 0;
    for (process, stop) in processes {
        stop.send(()).unwrap();
        terms += process.await.unwrap().unwrap();
    }
    // One that had not seen the last change yet can lead once more, between two of these ends.
    while led.try_recv().is_ok() {
        terms -= 1;
    }
    assert_eq!(terms, 6);
    db.until_quiet().await;
}

#[derive(LockKey)]
#[lock_key("document:<id>")]
struct DocumentLock {
    id: i64,
}

type Socket = mpsc::Receiver<String>;

/// Whether the document is opened, and a task serves its client.
async fn edit(pool: &Pool<AsyncPgConnection>, id: i64, socket: Socket) -> Result<bool, Error> {
    let request = Request::new(DocumentLock { id }).wait(Wait::Never);
    match session::acquire_owned(pool.connection().await?, request).await {
        Ok(lock) => {
            tokio::spawn(serve(lock, socket));
            Ok(true)
        }
        Err(failed) if failed.error.is_busy() => Ok(false),
        Err(failed) => Err(failed.into()),
    }
}

async fn serve(
    mut lock: session::OwnedLock<Object<AsyncPgConnection>>,
    mut socket: Socket,
) -> Result<(), Error> {
    while let Some(change) = socket.recv().await {
        let conn: &mut AsyncPgConnection = lock.conn();
        execute(conn, &change).await?;
    }
    drop(lock.release().await?);
    Ok(())
}

#[tokio::test]
async fn a_lock_is_held_for_as_long_as_a_clients_connection() {
    let db = database().await;
    let pool = db.deadpool(2);
    let (client, socket) = mpsc::channel(1);
    assert!(edit(&pool, 7, socket).await.unwrap());
    let (_other, socket) = mpsc::channel(1);
    assert!(!edit(&pool, 7, socket).await.unwrap());
    let change = "INSERT INTO booking VALUES (7, 'Ada')";
    client.send(change.to_owned()).await.unwrap();
    drop(client);
    db.until_no_locks().await;
    assert_eq!(committed(&db, 7).await, 1);
    // A client whose change fails ends its task, which drops the lock.
    let (client, socket) = mpsc::channel(1);
    assert!(edit(&pool, 7, socket).await.unwrap());
    client.send("SELECT 1/0".to_owned()).await.unwrap();
    db.until_no_locks().await;
    let (_client, socket) = mpsc::channel(1);
    assert!(edit(&pool, 7, socket).await.unwrap());
}

type ReportLock = session::OwnedLock<AsyncPgConnection>;

async fn held(db: &Database) -> Vec<LockedKey> {
    db.locks().await.into_iter().map(|lock| lock.key).collect()
}

#[tokio::test]
async fn a_worker_hands_its_lock_to_another_task() {
    const REPORT: i64 = 7_200;
    let db = database().await;
    let (reports, mut queue) = mpsc::channel::<ReportLock>(1);
    let lock = session::acquire_owned(db.connect().await, REPORT).await;
    reports.send(lock.unwrap()).await.unwrap();
    assert_eq!(held(&db).await, [LockedKey::Bigint(REPORT)]);
    let printer = tokio::spawn(async move {
        let mut lock = queue.recv().await.unwrap();
        lock.check().await?;
        execute(lock.conn(), "INSERT INTO booking VALUES (7, 'Ada')").await?;
        drop(lock.release().await?);
        Ok::<_, Error>(())
    });
    printer.await.unwrap().unwrap();
    assert_eq!(held(&db).await, []);
    // The printer is gone: unsent data is dropped, and its lock with it.
    let lock = session::acquire_owned(db.connect().await, REPORT).await;
    drop(reports.send(lock.unwrap()).await.unwrap_err());
    db.until_no_locks().await;
}
