//! Does the code of the guide's pages about testing and watching do what they say? It is here as the pages show it.

use crate::bookings::{self, database};
use advisory_runtime::monitor::{self, Names};
use advisory_runtime::testing::Observer;
use advisory_runtime::{Error, advisory_lock, lock_key, xact};
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::time::Duration;

/// Of the page "testing".
mod testing {
    use super::*;

    #[advisory_lock(key = "room:<room>", name = "room")]
    async fn book(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
        let insert = diesel::sql_query("INSERT INTO booking VALUES ($1, 'Ada')");
        insert
            .bind::<diesel::sql_types::BigInt, _>(room)
            .execute(conn)
            .await
    }

    /// What the function does.
    pub(super) async fn books_a_room(mut conn: AsyncPgConnection) {
        conn.begin_test_transaction().await.unwrap();
        assert_eq!(book(&mut conn, 7).await, Ok(1));
    }

    /// That two of them meet: the second waits while the first writes.
    pub(super) async fn one_waits_for_the_other(
        mut a: AsyncPgConnection,
        mut b: AsyncPgConnection,
        other: AsyncPgConnection,
    ) {
        let room = 7;
        let key = lock_key!("room:<room: int>", name = "room");
        let (first, second) = Observer::new(other)
            .interleave(key, book(&mut a, room), book(&mut b, room))
            .await;
        assert!(first.is_ok() && second.is_ok());
    }
}

#[tokio::test]
async fn the_tests_of_the_page_pass() {
    let db = database().await;
    testing::books_a_room(db.connect().await).await;
    assert_eq!(bookings::committed(&db, 7).await, 0, "a test transaction");
    let (a, b, other) = (db.connect().await, db.connect().await, db.connect().await);
    testing::one_waits_for_the_other(a, b, other).await;
    assert_eq!(bookings::committed(&db, 7).await, 2);
}

/// For a probe: whether somebody has waited for longer than half a minute.
async fn is_stuck(conn: &mut AsyncPgConnection) -> Result<bool, Box<dyn std::error::Error>> {
    let names = Names::of_program()?;
    let seen = monitor::locks(conn, &names).await?;
    let mut waiters = seen.locks.iter().flat_map(|lock| &lock.waiters);
    Ok(waiters.any(|waiter| waiter.waited > Duration::from_secs(30)))
}

#[tokio::test]
async fn the_probe_of_the_page_is_quiet_where_a_wait_is_short() {
    let db = database().await;
    let (mut holder, mut waiter) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, 7).await.unwrap();
    let waiting = tokio::spawn(async move {
        let held = xact::begin(&mut waiter, 7).await?;
        xact::finish(held, Ok::<_, Error>(())).await
    });
    db.until_waiting(7).await;
    assert!(!is_stuck(&mut db.connect().await).await.unwrap());
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    waiting.await.unwrap().unwrap();
}

/// Without white space, and without the commas that depend on where a line ends.
fn tokens(code: &str) -> String {
    let code: String = code.split_whitespace().collect();
    [",)", ",}"]
        .iter()
        .fold(code, |code, end| code.replace(end, &end[1..]))
        .replace("pub(super)", "")
}

#[test]
fn the_code_is_the_pages() {
    let module = tokens(include_str!("guide_testing.rs"));
    for (page, first) in [
        (
            include_str!("../../../advisory-runtime/docs/testing.md"),
            "#[advisory_lock(key = \"room:<room>\", name = \"room\")]",
        ),
        (
            include_str!("../../../advisory-runtime/docs/watching.md"),
            "/// For a probe",
        ),
    ] {
        let (_, code) = page.split_once(first).unwrap();
        let (code, _) = code.split_once("\n```").unwrap();
        let code = code.trim_end_matches("\n# fn main() {}");
        assert!(module.contains(&tokens(code)), "not run: {code}");
    }
}
