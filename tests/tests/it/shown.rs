//! What others see of a lock: its key pattern behind the application name of whoever holds it or waits for it.

use crate::bookings::{book, database, key_of};
use advisory_runtime::{Error, Isolation, Request, Wait, session, xact};
use advisory_tests::{Database, pid_of};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use std::process::Command;
use std::time::Duration;

const ROLE: &str = "ADVISORY_TEST_SHOWN_ROLE";

/// Waits until a backend calls itself so.
async fn until_named(db: &Database, pid: i32, name: &str) {
    let other = format!(
        "SELECT application_name FROM pg_stat_activity WHERE pid = {pid} AND application_name <> '{name}'"
    );
    let claim = format!("a backend named {name}");
    db.until_empty(Duration::from_secs(10), &claim, &other)
        .await;
}

async fn connect(db: &Database) -> (AsyncPgConnection, i32) {
    let mut conn = db.connect().await;
    conn.batch_execute("SET application_name = 'shop'")
        .await
        .unwrap();
    let pid = pid_of(&mut conn).await;
    (conn, pid)
}

/// A request that names its pattern, as the attribute's do.
fn room(number: i64) -> Request {
    struct Room(i64);
    impl advisory_runtime::LockKey for Room {
        fn key(&self) -> advisory_runtime::Key {
            key_of(self.0).into()
        }
        fn pattern(&self) -> &'static str {
            "room:<room>"
        }
    }
    Request::new(Room(number))
}

#[tokio::test]
async fn holder_and_waiter_show_the_pattern_and_then_their_own_name() {
    let db = database().await;
    let ((mut a, first), (mut b, second)) = (connect(&db).await, connect(&db).await);
    let held = xact::begin(&mut a, room(1)).await.unwrap();
    until_named(&db, first, "shop [room:<room>]").await;
    let waiting = tokio::spawn(async move {
        let booked = book(&mut b, 1, "x").await.unwrap();
        (b, booked)
    });
    db.until_waiting(key_of(1)).await;
    until_named(&db, second, "shop [room:<room>]").await;
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    let (_b, booked) = waiting.await.unwrap();
    assert!(booked);
    until_named(&db, first, "shop").await;
    until_named(&db, second, "shop").await;
}

#[tokio::test]
async fn every_way_to_hold_shows_it_and_every_way_out_takes_it_back() {
    let db = database().await;
    let (mut conn, pid) = connect(&db).await;
    for level in [Isolation::RepeatableRead, Isolation::Serializable] {
        let held = xact::begin(&mut conn, room(1).isolation(level))
            .await
            .unwrap();
        until_named(&db, pid, "shop [room:<room>]").await;
        xact::finish(held, Ok::<_, Error>(())).await.unwrap();
        until_named(&db, pid, "shop").await;
    }
    for wait in [
        Wait::Session,
        Wait::Never,
        Wait::For(Duration::from_secs(9)),
        Wait::Forever,
    ] {
        let held = session::acquire(&mut conn, room(1).wait(wait))
            .await
            .unwrap();
        until_named(&db, pid, "shop [room:<room>]").await;
        session::release(held, Ok::<_, Error>(())).await.unwrap();
        until_named(&db, pid, "shop").await;
        drop(
            session::acquire(&mut conn, room(1).wait(wait))
                .await
                .unwrap(),
        );
        until_named(&db, pid, "shop").await;
        drop(xact::begin(&mut conn, room(1).wait(wait)).await.unwrap());
        until_named(&db, pid, "shop").await;
    }
    let mut other = db.connect().await;
    let _held = session::acquire(&mut other, room(1)).await.unwrap();
    for wait in [Wait::Never, Wait::For(Duration::from_millis(20))] {
        session::acquire(&mut conn, room(1).wait(wait))
            .await
            .unwrap_err();
        until_named(&db, pid, "shop").await;
        xact::begin(&mut conn, room(1).wait(wait))
            .await
            .unwrap_err();
        until_named(&db, pid, "shop").await;
    }
}

#[tokio::test]
async fn of_locks_in_one_another_the_inner_one_shows_and_the_own_name_comes_back() {
    let db = database().await;
    let (mut conn, pid) = connect(&db).await;
    conn.batch_execute("SET application_name = 'shop [blue]'")
        .await
        .unwrap();
    let mut outer = session::acquire(&mut conn, room(1)).await.unwrap();
    until_named(&db, pid, "shop [room:<room>]").await;
    let inner = session::acquire(outer.conn(), room(2)).await.unwrap();
    session::release(inner, Ok::<_, Error>(())).await.unwrap();
    // Which is held still.
    until_named(&db, pid, "shop [room:<room>]").await;
    session::release(outer, Ok::<_, Error>(())).await.unwrap();
    until_named(&db, pid, "shop [blue]").await;
    let mut outer = session::acquire(&mut conn, room(1)).await.unwrap();
    let inner = session::acquire(outer.conn(), room(2).wait(Wait::Never))
        .await
        .unwrap();
    drop(inner);
    until_named(&db, pid, "shop [room:<room>]").await;
    drop(outer);
    until_named(&db, pid, "shop [blue]").await;
    conn.batch_execute("SET application_name = ''")
        .await
        .unwrap();
    let held = xact::begin(&mut conn, room(1)).await.unwrap();
    until_named(&db, pid, " [room:<room>]").await;
    drop(held);
}

#[tokio::test]
async fn a_name_that_a_body_sets_stays() {
    let db = database().await;
    let (mut conn, pid) = connect(&db).await;
    let mut held = xact::begin(&mut conn, room(1)).await.unwrap();
    let set = held.conn().batch_execute("SET application_name = 'one'");
    set.await.unwrap();
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    until_named(&db, pid, "one").await;
    for (wait, name) in [(Wait::Session, "two"), (Wait::Never, "three")] {
        let mut held = session::acquire(&mut conn, room(1).wait(wait))
            .await
            .unwrap();
        let sql = format!("SET application_name = '{name}'");
        held.conn().batch_execute(&sql).await.unwrap();
        session::release(held, Ok::<_, Error>(())).await.unwrap();
        until_named(&db, pid, name).await;
    }
}

#[tokio::test]
async fn a_lock_that_is_lost_in_the_body_shows_no_longer() {
    let db = database().await;
    for wait in [Wait::Session, Wait::Never] {
        let (mut conn, pid) = connect(&db).await;
        // The second time by statements that the session has prepared.
        for _ in 0..2 {
            let mut held = session::acquire(&mut conn, room(1).wait(wait))
                .await
                .unwrap();
            let lose = "SELECT pg_advisory_unlock_all()";
            held.conn().batch_execute(lose).await.unwrap();
            let ended = session::release(held, Ok::<_, Error>(())).await;
            assert!(matches!(ended, Err(Error::LockLost { .. })), "{ended:?}");
            until_named(&db, pid, "shop").await;
        }
    }
}

#[tokio::test]
async fn odd_patterns_and_names_are_shown_alike_by_statements_that_are_prepared() {
    struct Odd(&'static str);
    impl advisory_runtime::LockKey for Odd {
        fn key(&self) -> advisory_runtime::Key {
            7.into()
        }
        fn pattern(&self) -> &'static str {
            self.0
        }
    }
    let db = database().await;
    let long = "0123456789".repeat(7);
    let cut = "0123456789012345 [01234567890123456789012345678901234567890123\
               4";
    let odd = [
        ("it's \\ ü %s $1", "it?s ? ? %s $1"),
        ("',0);SELECT 1;--", "?,0);SELECT 1;--"),
    ];
    for wait in [Wait::Session, Wait::Never] {
        let mut conn = db.connect().await;
        let pid = pid_of(&mut conn).await;
        let set = format!("SET standard_conforming_strings = off; SET application_name = '{long}'");
        conn.batch_execute(&set).await.unwrap();
        for _ in 0..2 {
            for (pattern, shown) in odd {
                let own = &long[..63 - shown.len() - 3];
                let request = Request::new(Odd(pattern)).wait(wait);
                let held = xact::begin(&mut conn, request.clone()).await.unwrap();
                until_named(&db, pid, &format!("{own} [{shown}]")).await;
                xact::finish(held, Ok::<_, Error>(())).await.unwrap();
                let held = session::acquire(&mut conn, request).await.unwrap();
                until_named(&db, pid, &format!("{own} [{shown}]")).await;
                session::release(held, Ok::<_, Error>(())).await.unwrap();
                until_named(&db, pid, &long[..63]).await;
            }
            let pattern = "0123456789012345678901234567890123456789012345678901234567890123456789";
            let held = xact::begin(&mut conn, Request::new(Odd(pattern)).wait(wait))
                .await
                .unwrap();
            until_named(&db, pid, cut).await;
            xact::finish(held, Ok::<_, Error>(())).await.unwrap();
        }
    }
}

/// Does nothing where it is not called by another test.
#[tokio::test]
async fn the_process_that_shows_something_else() {
    use advisory_runtime::monitor::{Shown, show};
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let db = database().await;
    let (mut conn, pid) = connect(&db).await;
    show(if role == "key" {
        Shown::Key
    } else {
        Shown::Nothing
    });
    let name = if role == "key" {
        "shop [room:17]"
    } else {
        "shop"
    };
    let mut other = db.connect().await;
    // The second time by statements that the session has prepared.
    for is_first in [true, false] {
        let held = xact::begin(&mut other, room(17)).await.unwrap();
        let waiting = tokio::spawn(async move {
            let booked = book(&mut conn, 17, "x").await.unwrap();
            (conn, booked)
        });
        db.until_waiting(key_of(17)).await;
        until_named(&db, pid, name).await;
        drop(held);
        let booked;
        (conn, booked) = waiting.await.unwrap();
        assert_eq!(booked, is_first);
    }
}

#[tokio::test]
async fn a_process_shows_the_rendered_key_or_nothing_when_it_says_so() {
    for role in ["key", "nothing"] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "shown::the_process_that_shows_something_else"]);
        child.env(ROLE, role);
        let ended = tokio::task::spawn_blocking(move || child.output().unwrap());
        let output = ended.await.unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}
