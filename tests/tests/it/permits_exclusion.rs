//! As many calls as there are permits are in their bodies at once, and never more.

use advisory_runtime::{Error, advisory_lock};
use advisory_tests::blocking;
use advisory_tests::bookings::{database, execute};
use advisory_tests::futures::spawn_blocking;
use diesel::pg::PgConnection;
use diesel_async::pooled_connection::deadpool;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Barrier;

/// How many statements a body runs while the room is full: time for many tries of the others.
const STAY: usize = 400;

struct Room {
    inside: AtomicUsize,
    most: AtomicUsize,
    /// Passed when as many have arrived as there are permits.
    full: Barrier,
}

impl Room {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inside: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            full: Barrier::new(3),
        })
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    async fn fill(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        self.full.wait().await;
    }

    /// Stays for a while, in which one more could enter, and leaves.
    async fn stay(&self, conn: &mut AsyncPgConnection) -> Result<(), Error> {
        self.fill().await;
        for _ in 0..STAY {
            execute(conn, "SELECT 1").await?;
        }
        self.leave();
        Ok(())
    }

    fn stay_on_a_thread(&self, conn: &mut PgConnection) -> Result<(), Error> {
        tokio::runtime::Handle::current().block_on(self.fill());
        for _ in 0..STAY {
            blocking::execute(conn, "SELECT 1")?;
        }
        self.leave();
        Ok(())
    }

    fn most(&self) -> usize {
        AtomicUsize::load(&self.most, Ordering::SeqCst)
    }
}

#[advisory_lock(key = 42, permits = 3, name = "three", poll = "2ms")]
async fn in_transaction(conn: &mut AsyncPgConnection, room: &Room) -> Result<(), Error> {
    room.stay(conn).await
}

#[advisory_lock(key = 42, permits = 3, name = "three", scope = "session", conn = pool.get().await?, wait = "1h", poll = "2ms")]
async fn in_session(pool: &deadpool::Pool<AsyncPgConnection>, room: &Room) -> anyhow::Result<()> {
    Ok(room.stay(conn).await?)
}

#[advisory_lock(
    key = 42,
    permits = 3,
    name = "three",
    isolation = "serializable",
    poll = "2ms"
)]
async fn in_snapshot(conn: &mut AsyncPgConnection, room: &Room) -> Result<(), Error> {
    room.stay(conn).await
}

/// Twelve calls of all kinds, four times as many as there are permits. Each stays in the body until
/// there are three, so they end only if three are allowed.
#[tokio::test(flavor = "multi_thread")]
async fn as_many_bodies_run_as_there_are_permits() {
    let db = database().await;
    let (room, pool) = (Room::new(), db.deadpool(3));
    let mut calls = tokio::task::JoinSet::new();
    for call in 0..12 {
        let (room, pool, url) = (Arc::clone(&room), pool.clone(), db.url().to_owned());
        calls.spawn(async move {
            let mut conn = AsyncPgConnection::establish(&url).await.unwrap();
            match call % 4 {
                0 => in_transaction(&mut conn, &room).await.unwrap(),
                1 => in_session(&pool, &room).await.unwrap(),
                2 => in_snapshot(&mut conn, &room).await.unwrap(),
                _ => {
                    let nested = conn
                        .transaction::<_, Error, _>(async |conn| in_transaction(conn, &room).await);
                    nested.await.unwrap();
                }
            }
        });
    }
    calls.join_all().await;
    assert_eq!(room.most(), 3);
    db.until_quiet().await;
}

#[advisory_lock(key = 42, permits = 3, name = "three", poll = "2ms")]
fn on_a_thread(conn: &mut PgConnection, room: &Room) -> Result<(), Error> {
    room.stay_on_a_thread(conn)
}

#[advisory_lock(key = 42, permits = 3, name = "three", scope = "session", poll = "2ms")]
fn in_session_on_a_thread(conn: &mut PgConnection, room: &Room) -> Result<(), Error> {
    room.stay_on_a_thread(conn)
}

#[tokio::test(flavor = "multi_thread")]
async fn on_blocking_connections_too() {
    let db = database().await;
    let room = Room::new();
    let calls: Vec<_> = (0..9)
        .map(|call| {
            let (room, mut conn) = (Arc::clone(&room), db.establish());
            spawn_blocking(move || match call % 2 {
                0 => on_a_thread(&mut conn, &room),
                _ => in_session_on_a_thread(&mut conn, &room),
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(room.most(), 3);
    db.until_quiet().await;
}
