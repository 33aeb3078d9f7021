//! The comment that names a lock to others: in front of the message that requests it, in
//! `pg_stat_activity`, in the server's log, and in its deadlock reports. The application's name is
//! not changed.

use crate::calls::{book, book_blocking};
use crate::observers::again;
use advisory_runtime::monitor::{Shown, show};
use advisory_runtime::{
    Error, Isolation, Key, LockKey, Request, Wait, advisory_lock, session, xact,
};
use advisory_tests::bookings::{database, key_of};
use advisory_tests::futures::{dropped, spawn, spawn_blocking};
use advisory_tests::odd_texts::{Texts, assert_nothing_was_smuggled};
use advisory_tests::{Database, blocking, pid_of};
use diesel::{Connection as _, PgConnection, QueryResult};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::time::Duration;

const ROLE: &str = "ADVISORY_TEST_SHOWN_ROLE";
const AN_HOUR: Duration = Duration::from_secs(3600);

#[advisory_lock(key = "odd:<text>")]
async fn odd(conn: &mut AsyncPgConnection, text: &str) -> QueryResult<usize> {
    _ = conn;
    Ok(text.len())
}

/// No rendered key ends the comment, or adds a statement to the message.
async fn no_key_ends_the_comment(db: &Database) {
    db.run("INSERT INTO booking VALUES (0, 'canary')").await;
    let mut conn = db.connect().await;
    let mut random = Texts(0x0DD5_EED5);
    for _ in 0..1_000 {
        let text = random.text();
        let end = odd(&mut conn, &text).await;
        end.unwrap_or_else(|error| panic!("{text:?}: {error:?}"));
    }
    assert_nothing_was_smuggled(&mut conn).await;
}

/// A request that names its pattern, as the attribute's do.
fn rooms(numbers: &[i64]) -> Request {
    struct Room(i64);
    impl LockKey for Room {
        fn key(&self) -> Key {
            key_of(self.0).into()
        }
        fn pattern(&self) -> &'static str {
            "room:<room>"
        }
    }
    Request::all(numbers.iter().copied().map(Room))
}

/// Waits until the backend's query begins with this; its session has kept its name.
async fn until_shown(db: &Database, pid: i32, comment: &str) {
    let other = format!(
        "SELECT application_name || ': ' || query FROM pg_stat_activity WHERE pid = {pid} \
         AND NOT (application_name = 'shop' AND starts_with(query, '{comment}'))"
    );
    let claim = format!("a backend that shows {comment}");
    db.until_empty(Duration::from_secs(10), &claim, &other)
        .await;
}

async fn connect(db: &Database) -> (AsyncPgConnection, i32) {
    let mut conn = db.connect().await;
    let own_name = "SET application_name = 'shop'";
    conn.batch_execute(own_name).await.unwrap();
    let pid = pid_of(&mut conn).await;
    (conn, pid)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Xact,
    Nested,
    Session,
}

#[tokio::test]
async fn every_call_that_waits_shows_its_pattern() {
    let db = database().await;
    let (mut holder, key) = (db.connect().await, key_of(1));
    let held = session::acquire(&mut holder, key).await.unwrap();
    for request in [
        rooms(&[1]),
        rooms(&[1]).shared(),
        rooms(&[1, 2, 3]),
        rooms(&[1]).wait(AN_HOUR),
        rooms(&[1]).wait(Wait::Forever),
        rooms(&[1, 2]).max_hold(AN_HOUR),
        rooms(&[1]).isolation(Isolation::Serializable),
        rooms(&[1, 2])
            .isolation(Isolation::RepeatableRead)
            .wait(AN_HOUR)
            .max_hold(AN_HOUR),
    ] {
        for way in [Way::Xact, Way::Nested, Way::Session] {
            let is_strict = !format!("{request:?}").contains("isolation: ReadCommitted");
            if is_strict && way != Way::Xact {
                continue;
            }
            let ((mut conn, pid), request) = (connect(&db).await, request.clone());
            let waiting = async {
                match way {
                    Way::Xact => xact::begin(&mut conn, request).await.map(drop),
                    Way::Session => session::acquire(&mut conn, request).await.map(drop),
                    Way::Nested => {
                        let mut outer = xact::begin(&mut conn, 1).await?;
                        xact::begin(outer.conn(), request).await.map(drop)
                    }
                }
            };
            let seen = async {
                db.until_waiting(key).await;
                until_shown(&db, pid, "/*advisory:room:<room>*/").await;
            };
            dropped(waiting, seen).await;
            db.until_no_waiters(key).await;
        }
    }
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_call_that_waits_shows_its_pattern() {
    let db = database().await;
    let mut holder = db.connect().await;
    let held = session::acquire(&mut holder, key_of(1)).await.unwrap();
    let mut conn = db.establish();
    blocking::execute(&mut conn, "SET application_name = 'shop'").unwrap();
    let pid = blocking::pid_of(&mut conn);
    let waiting = spawn_blocking(move || book_blocking(&mut conn, 1, "Ada").unwrap());
    db.until_waiting(key_of(1)).await;
    until_shown(&db, pid, "/*advisory:room:<room>*/").await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert!(waiting.await.unwrap());
}

/// Does nothing unless another test starts it.
#[tokio::test]
async fn the_process_that_shows_something_else() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (shown, comment) = match role.as_str() {
        "key" => (Shown::Key, "/*advisory:room:17*/"),
        _ => (Shown::Nothing, "S"),
    };
    show(shown);
    let db = database().await;
    let ((mut conn, pid), mut other) = (connect(&db).await, db.connect().await);
    let held = xact::begin(&mut other, rooms(&[17])).await.unwrap();
    let seen = async {
        db.until_waiting(key_of(17)).await;
        until_shown(&db, pid, comment).await;
    };
    dropped(book(&mut conn, 17, "x"), seen).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
    if shown == Shown::Key {
        no_key_ends_the_comment(&db).await;
    }
}

#[tokio::test]
async fn a_process_shows_the_rendered_key_or_nothing_when_it_says_so() {
    for role in ["key", "nothing"] {
        let process = "query_comment::the_process_that_shows_something_else";
        again(&[process], ROLE, role).await;
    }
}

struct Odd(&'static str);

impl LockKey for Odd {
    fn key(&self) -> Key {
        Key::BigInt(7)
    }
    fn pattern(&self) -> &'static str {
        self.0
    }
}

/// A text that ended the comment would be a syntax error, or run the rest as SQL.
async fn no_text_ends_the_comment(url: &str, texts: usize) {
    let mut conn = AsyncPgConnection::establish(url).await.unwrap();
    let create = "CREATE TABLE IF NOT EXISTS booking (room int8 NOT NULL, guest text NOT NULL);\
                  INSERT INTO booking VALUES (0, 'canary')";
    conn.batch_execute(create).await.unwrap();
    let blocking_url = url.to_owned();
    let mut blocking = spawn_blocking(move || PgConnection::establish(&blocking_url).unwrap())
        .await
        .unwrap();
    let mut random = Texts(0x0DD5_EED5);
    for number in 0..texts {
        let pattern: &'static str = random.text().leak();
        let request = Request::new(Odd(pattern));
        let tried = request.clone().wait(Wait::Never);
        let end = match number % 7 {
            0 => begin(&mut conn, request).await,
            1 => begin(&mut conn, tried).await,
            2 => begin(&mut conn, request.isolation(Isolation::Serializable)).await,
            3 => acquire(&mut conn, request).await,
            4 => acquire(&mut conn, tried).await,
            5 => {
                let nested = conn.transaction(async |conn| begin(conn, request).await);
                nested.await
            }
            _ => {
                let held = advisory_runtime::blocking::xact::begin(&mut blocking, request);
                held.map(blocking::finish)
            }
        };
        end.unwrap_or_else(|error| panic!("{pattern:?}: {error:?}"));
        if number % 100 == 99 {
            assert_nothing_was_smuggled(&mut conn).await;
        }
    }
    assert_nothing_was_smuggled(&mut conn).await;
}

async fn begin(conn: &mut AsyncPgConnection, request: Request) -> Result<(), Error> {
    let held = xact::begin(conn, request).await?;
    held.finish(Ok(())).await
}

async fn acquire(conn: &mut AsyncPgConnection, request: Request) -> Result<(), Error> {
    let held = session::acquire(conn, request).await?;
    held.finish(Ok(())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pattern_ends_the_comment_or_smuggles_a_statement() {
    let db = Database::create().await;
    no_text_ends_the_comment(db.url(), 2_000).await;
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let mut conn = db.connect().await;
        let name = format!("advisory_{}_{encoding}", std::process::id()).to_lowercase();
        db.run(&format!(
            "CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
        ))
        .await;
        let own: String = {
            use diesel_async::RunQueryDsl;
            let own =
                diesel::dsl::sql::<diesel::sql_types::Text>("SELECT current_database()::text");
            own.get_result(&mut conn).await.unwrap()
        };
        let url = db.url().replace(&own, &name);
        let ended = spawn(async move { no_text_ends_the_comment(&url, 500).await }).await;
        db.run(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
        ended.unwrap();
    }
}
