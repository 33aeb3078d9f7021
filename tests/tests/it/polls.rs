//! Calls that poll instead of waiting at the server: their results, and what they leave unchanged.
//! Between two tries the connection of a call on a pool is in the pool.

use crate::calls::{AppError, book_patiently};
use advisory_runtime::monitor::{self, Names};
use advisory_runtime::{Error, Request, advisory_lock, session, xact};
use advisory_tests::bookings::{committed, database, execute, finish, insert, key_of};
use advisory_tests::futures::spawn;
use advisory_tests::pauses::pause;
use advisory_tests::polls::{HOUR, SHORT, until_idle, until_tried, ways};
use advisory_tests::{Database, assert_error, pid_of};
use diesel_async::pooled_connection::deadpool;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Waits until a call pauses after a missed try. The call is in its try until it has read the
/// answer, so the backend must have been idle for longer than that takes.
async fn until_pausing(db: &Database, pid: i32, state: &str) {
    let quiet =
        format!("state = '{state}' AND state_change < clock_timestamp() - interval '0.3 s'");
    until_idle(db, pid, &quiet).await;
}

async fn take(conn: &mut AsyncPgConnection, scope: &str, request: Request) -> Result<(), Error> {
    let held = match scope {
        "xact" => xact::begin(conn, request).await?,
        _ => session::acquire(conn, request).await?,
    };
    assert!(held.info().waited() > Duration::ZERO);
    held.finish(Ok(())).await
}

async fn miss<T: std::fmt::Debug>(
    db: &Database,
    pid: i32,
    call: Pin<&mut impl Future<Output = T>>,
) {
    tokio::select! {
        ended = call => panic!("{ended:?}"),
        () = until_pausing(db, pid, "idle") => {}
    }
}

#[advisory_lock(key = "shown-poll:<id>", name = "shown-poll", poll = "2ms")]
async fn poll_in_xact(conn: &mut AsyncPgConnection, id: i64) -> Result<(), Error> {
    execute(conn, &format!("SELECT {id}")).await?;
    Ok(())
}

#[advisory_lock(
    key = "shown-poll:<id>",
    name = "shown-poll",
    scope = "session",
    poll = "2ms"
)]
async fn poll_in_session(conn: &mut AsyncPgConnection, id: i64) -> Result<(), Error> {
    execute(conn, &format!("SELECT {id}")).await?;
    Ok(())
}

/// Between two tries the last query of its session shows what it requests.
#[tokio::test]
async fn a_polling_call_is_shown_below_the_lock_and_names_it() {
    let db = database().await;
    let key = advisory_pattern::Derivation::Sha256.key("shown-poll:1");
    for way in ["xact", "session", "nested"] {
        let (mut holder, mut watcher) = (db.connect().await, db.connect().await);
        let held = session::acquire(&mut holder, key).await.unwrap();
        let mut conn = db.connect().await;
        let pid = pid_of(&mut conn).await;
        let call = spawn(async move {
            match way {
                "xact" => poll_in_xact(&mut conn, 1).await,
                "session" => poll_in_session(&mut conn, 1).await,
                _ => {
                    conn.transaction(async |conn| poll_in_xact(conn, 1).await)
                        .await
                }
            }
        });
        // Between two tries at some moments: about half of the time.
        let shown = async {
            loop {
                let seen = monitor::locks(&mut watcher, &Names::none()).await.unwrap();
                let lock = seen
                    .locks
                    .iter()
                    .find(|lock| lock.key == key.into())
                    .unwrap();
                if lock.tries.iter().any(|one| one.pid == pid) {
                    return lock
                        .names
                        .iter()
                        .map(|name| name.key.clone())
                        .collect::<Vec<_>>();
                }
            }
        };
        let shown = tokio::time::timeout(Duration::from_secs(30), shown).await;
        assert_eq!(shown.expect(way), ["shown-poll:<id>"], "{way}");
        held.finish(Ok::<_, Error>(())).await.unwrap();
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn the_last_try_is_at_the_end_of_the_wait() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let wait = Duration::from_secs(1);
    for (scope, request) in ways().into_iter().step_by(3) {
        let pid = pid_of(&mut conn).await;
        let held = xact::begin(&mut holder, 7).await.unwrap();
        let request = request.wait(wait).poll(HOUR);
        let started = Instant::now();
        let mut call = Box::pin(take(&mut conn, scope, request));
        miss(&db, pid, call.as_mut()).await;
        finish(held).await;
        // On a machine that is suspended for a second nothing can be observed.
        let is_in_time = started.elapsed() < wait;
        let taken = call.await;
        assert!(taken.is_ok() || !is_in_time, "{scope}: {taken:?}");
        assert!(
            started.elapsed() >= wait,
            "{scope}: {:?}",
            started.elapsed()
        );
    }
}

#[tokio::test]
async fn a_call_dropped_between_tries_keeps_its_connection() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, 7).await.unwrap();
    let pid = pid_of(&mut conn).await;
    for (scope, request) in ways() {
        let mut call = Box::pin(take(&mut conn, scope, request.poll(HOUR)));
        miss(&db, pid, call.as_mut()).await;
        drop(call);
        assert_eq!(db.locks().await.len(), 1, "{scope}: none but the holder's");
        assert_eq!(pid_of(&mut conn).await, pid, "{scope}");
        take(&mut conn, scope, Request::new(9)).await.unwrap();
        assert_eq!(pid_of(&mut conn).await, pid, "{scope}");
    }
    finish(held).await;
    db.until_quiet().await;
}

/// On one thread, since on several an answer can arrive during the poll that sends the request.
#[tokio::test]
async fn a_call_dropped_in_a_try_leaves_no_lock() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let of_holder = pid_of(&mut holder).await;
    let held = xact::begin(&mut holder, 7).await.unwrap();
    let others = format!(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND pid <> {of_holder} \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    );
    for (scope, request) in ways().into_iter().step_by(2) {
        let mut closed = 0;
        for polls in 1..16 {
            let mut call = Box::pin(take(&mut conn, scope, request.clone().poll(SHORT)));
            let mut left = polls;
            poll_fn(|context| {
                left -= 1;
                assert!(call.as_mut().poll(context).is_pending());
                if left == 0 {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            drop(call);
            db.until_none("no lock but the holder's", &others).await;
            if take(&mut conn, scope, Request::new(9)).await.is_err() {
                closed += 1;
                conn = db.connect().await;
            }
        }
        assert!(
            (1..15).contains(&closed),
            "{scope}: {closed} of 15 were in a try"
        );
    }
    finish(held).await;
    db.until_quiet().await;
}

#[tokio::test]
async fn inside_a_transaction_each_try_is_a_separate_statement() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let pid = pid_of(&mut conn).await;
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    conn.transaction::<_, Error, _>(async |conn| {
        insert(conn, 1, "before").await?;
        let request = Request::new(key_of(7))
            .poll(SHORT)
            .wait(Duration::from_millis(30));
        assert_error!(xact::begin(conn, request).await, TimedOut);
        // Dropped between two tries.
        let mut call = Box::pin(xact::begin(conn, Request::new(key_of(7)).poll(HOUR)));
        tokio::select! {
            ended = call.as_mut() => panic!("{:?}", ended.map(drop)),
            () = until_pausing(&db, pid, "idle in transaction") => {}
        }
        drop(call);
        insert(conn, 2, "between").await?;
        // Sees what the holder commits while the call polls.
        let release = async {
            until_idle(&db, pid, "state = 'idle in transaction'").await;
            let mut held = held;
            insert(held.conn(), 7, "holder").await.unwrap();
            finish(held).await;
        };
        let (booked, ()) = tokio::join!(book_patiently(conn, 7), release);
        assert!(!booked?);
        Ok(())
    })
    .await
    .unwrap();
    for room in [1, 2, 7] {
        assert_eq!(committed(&db, room).await, 1);
    }
    db.until_quiet().await;
}

struct Repository(deadpool::Pool<AsyncPgConnection>);

impl Repository {
    #[advisory_lock(key = "room:<room>", name = "room", conn = self.0.get().await?, wait = "1h", poll = interval, handle = lock)]
    async fn book(&self, room: i64, interval: Duration) -> Result<Duration, AppError> {
        insert(conn, room, "Ada").await?;
        Ok(lock.waited())
    }

    #[advisory_lock(key = "room:<room>", name = "room", scope = "session", pool = self.0, poll = interval)]
    async fn book_in_session(&self, room: i64, interval: Duration) -> Result<usize, AppError> {
        Ok(insert(conn, room, "Ada").await?)
    }

    #[advisory_lock(keys = ["room:<room>", "room:<other>"], name = "room", conn = self.0.get().await?, wait = "40ms", poll = "2ms", on_held = Err(AppError::Busy))]
    async fn book_two(&self, room: i64, other: i64) -> Result<usize, AppError> {
        insert(conn, room, "Ada").await?;
        Ok(insert(conn, other, "Ada").await?)
    }

    #[advisory_lock(key = "polled-in-line:<room>", pool = self.0, queue = 16, wait = "1h", poll = "2ms")]
    async fn book_in_line(&self, room: i64) -> Result<usize, AppError> {
        Ok(insert(conn, room, "Ada").await?)
    }

    fn is_free(&self) -> bool {
        self.0.status().available == 1
    }
}

/// Waits until the pool's one connection is back, and its last statement was a try.
async fn until_back(db: &Database, repository: &Repository) {
    loop {
        until_tried(db).await;
        if repository.is_free() {
            return;
        }
        pause().await;
    }
}

#[tokio::test]
async fn between_two_tries_the_connection_is_back_in_its_pool() {
    let db = database().await;
    let mut holder = db.connect().await;
    let repository = Repository(db.deadpool(1));
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    // Another key is locked meanwhile, on the only connection.
    let mut calls: [Pin<Box<dyn Future<Output = ()>>>; 2] = [
        Box::pin(async { panic!("{:?}", repository.book(7, HOUR).await) }),
        Box::pin(async { panic!("{:?}", repository.book_in_session(7, HOUR).await) }),
    ];
    for call in &mut calls {
        tokio::select! {
            () = call => {}
            () = until_back(&db, &repository) => {}
        }
        repository.book(8, HOUR).await.unwrap();
    }
    // When they are dropped, the pool is unchanged.
    drop(calls);
    assert!(repository.is_free());
    assert_eq!(db.locks().await.len(), 1);
    assert_eq!(repository.book_two(8, 7).await, Err(AppError::Busy));
    let calls = async {
        tokio::join!(
            repository.book(7, SHORT),
            repository.book_in_session(7, SHORT),
            repository.book_in_line(7),
            repository.book_in_line(7),
            async {
                until_back(&db, &repository).await;
                finish(held).await;
            }
        )
    };
    let (booked, in_session, in_line, behind, ()) = calls.await;
    // Time in which another call had the connection counts too.
    assert!(booked.unwrap() >= SHORT / 2);
    assert_eq!([in_session, in_line, behind], [Ok(1), Ok(1), Ok(1)]);
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [4, 2]);
    db.until_quiet().await;
}

#[tokio::test]
async fn a_pool_closed_between_tries_ends_the_call_with_its_error() {
    let db = database().await;
    let mut holder = db.connect().await;
    let repository = Repository(db.deadpool(1));
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    let (booked, ()) = tokio::join!(repository.book(7, SHORT), async {
        until_back(&db, &repository).await;
        repository.0.close();
    });
    assert_eq!(booked, Err(AppError::Pool));
    finish(held).await;
}
