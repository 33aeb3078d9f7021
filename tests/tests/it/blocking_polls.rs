//! Blocking Diesel: between two tries, a pool has the connection of a call that polls.

use advisory_runtime::advisory_lock;
use advisory_runtime::blocking::xact;
use advisory_tests::blocking::{finish, insert};
use advisory_tests::bookings::{committed, database, key_of};
use advisory_tests::futures::spawn_blocking;
use diesel::pg::PgConnection;
use diesel::r2d2::ConnectionManager;

type Pool = diesel::r2d2::Pool<ConnectionManager<PgConnection>>;

#[advisory_lock(key = "room:<room>", name = "room", conn = pool.get()?, wait = "1h", poll = "2ms")]
fn book(pool: &Pool, room: i64) -> anyhow::Result<usize> {
    Ok(insert(conn, room, "Ada")?)
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "session", pool = pool, poll = "2ms", wait = "20ms", on_held = Ok(0))]
fn book_or_skip(pool: &Pool, room: i64) -> anyhow::Result<usize> {
    Ok(insert(conn, room, "Ada")?)
}

#[tokio::test(flavor = "multi_thread")]
async fn between_two_tries_the_connection_is_back_in_its_pool() {
    let db = database().await;
    let pool = db.r2d2(1);
    let mut holder = db.establish();
    let held = xact::begin(&mut holder, key_of(7)).unwrap();
    let calls = [7, 7].map(|room| {
        let pool = pool.clone();
        spawn_blocking(move || book(&pool, room))
    });
    // Both share one connection, which a third call uses in between.
    for _ in 0..3 {
        assert_eq!(book_or_skip(&pool, 7).unwrap(), 0);
        assert_eq!(book(&pool, 8).unwrap(), 1);
    }
    assert_eq!(db.locks().await.len(), 1, "none but the holder's");
    finish(held);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), 1);
    }
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [2, 3]);
    assert_eq!(book_or_skip(&pool, 7).unwrap(), 1);
    db.until_quiet().await;
}
