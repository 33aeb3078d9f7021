//! Blocking Diesel: calls that poll instead of waiting at the server.

use crate::blocking::{finish, insert, pid_of};
use crate::bookings::{committed, database, key_of};
use crate::polls::{until_alone, until_missed};
use advisory_runtime::blocking::{session, xact};
use advisory_runtime::{Error, Request, Wait, advisory_lock};
use diesel::pg::PgConnection;
use diesel::r2d2::ConnectionManager;
use std::time::Duration;
use tokio::task::spawn_blocking;

type Pool = diesel::r2d2::Pool<ConnectionManager<PgConnection>>;

const SHORT: Duration = Duration::from_millis(2);

fn take(conn: &mut PgConnection, scope: &str, request: Request) -> Result<(), Error> {
    let held = match scope {
        "xact" => xact::begin(conn, request)?,
        _ => session::acquire(conn, request)?,
    };
    finish(held);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_polling_call_is_not_a_waiter_and_can_time_out() {
    let db = database().await;
    let mut holder = db.establish();
    for scope in ["xact", "session"] {
        for request in [Request::new(7), Request::all([6, 7, 8])] {
            let mut conn = db.establish();
            let request = request.poll(SHORT);
            let pid = pid_of(&mut conn);
            let held = xact::begin(&mut holder, 7).unwrap();
            let wait = Duration::from_millis(30);
            let error = take(&mut conn, scope, request.clone().wait(wait)).unwrap_err();
            assert!(
                matches!(error, Error::TimedOut { waited, source: None, .. } if waited >= wait),
                "{scope}: {error:?}"
            );
            assert_eq!(pid_of(&mut conn), pid);
            let request = request.wait(Wait::Forever);
            let call = spawn_blocking(move || take(&mut conn, scope, request));
            until_missed(&db, pid).await;
            until_alone(&db).await;
            finish(held);
            call.await.unwrap().unwrap();
        }
    }
    db.until_quiet().await;
}

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
