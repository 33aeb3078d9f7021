//! The order of locks: which edges are recorded, and which of them can cause a deadlock,
//! and for which time a lock counts as held.
//!
//! The records belong to the process, so each test has patterns of its own.
#![cfg(debug_assertions)]

use crate::calls::locked;
use advisory_runtime::inventory::{Edge, assert_lock_order, lock_order};
use advisory_runtime::{LockKey, Request, Wait, advisory_lock, blocking, session, xact};
use advisory_tests::bookings::{execute, finish};
use advisory_tests::lock_order::{edges, order};
use advisory_tests::{Database, Proxy};
use diesel::QueryResult;
use diesel::pg::PgConnection;
use diesel_async::{AsyncConnection, AsyncPgConnection};

locked!(ab_a(id) "ab-a:<id>", name = "ab-a");
locked!(ab_b(id) "ab-b:<id>", name = "ab-b");
locked!(ab_a_then_b(id) "ab-a:<id>", name = "ab-a" => ab_b);
locked!(ab_b_then_a(id) "ab-b:<id>", name = "ab-b" => ab_a);

#[tokio::test]
async fn two_orders_are_reported_even_if_nothing_waited() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    ab_a_then_b(&mut conn, 1).await.unwrap();
    assert_eq!(edges("ab-"), ["ab-a:<id> > ab-b:<id>"]);
    assert!(order("ab-").cycles.is_empty());
    ab_b_then_a(&mut conn, 1).await.unwrap();
    let cycles = order("ab-").cycles;
    assert_eq!(cycles.len(), 1, "{cycles:?}");
    let told = std::panic::catch_unwind(assert_lock_order);
    let told = *told.unwrap_err().downcast::<String>().unwrap();
    let here = |function: &str| {
        let site = format!("locked!({function}(");
        let mut lines = include_str!("order.rs").lines();
        let at = lines.position(|line| line.starts_with(&site)).unwrap() + 1;
        format!("by `{function}` (tests/tests/it/order.rs:{at})")
    };
    for part in [
        "`ab-a:<id>` → `ab-b:<id>`",
        "`ab-b:<id>` → `ab-a:<id>`",
        &here("ab_a"),
        &here("ab_b"),
        &here("ab_a_then_b"),
        &here("ab_b_then_a"),
        "keys = [",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

locked!(own(id) "own:<id>", name = "own");
locked!(own_outer(id) "own:<id>", name = "own" => own);

#[advisory_lock(key = "own:<id>", name = "own")]
async fn own_again(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    own(conn, id).await?;
    own(conn, id).await
}

#[tokio::test]
async fn another_key_of_a_pattern_is_a_hazard_and_the_same_is_not() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    own_again(&mut conn, 1).await.unwrap();
    assert!(edges("own:").is_empty());
    own_outer(&mut conn, 1).await.unwrap();
    assert_eq!(edges("own:"), ["own:<id> > own:<id>"]);
    assert_eq!(order("own:").cycles.len(), 1);
}

locked!(again_a(id) "again-a:<id>", name = "again-a");

#[advisory_lock(key = "again-b:<id>")]
async fn again_b(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    again_a(conn, id).await
}

#[advisory_lock(key = "again-a:<id>", name = "again-a")]
async fn again(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    again_b(conn, id).await
}

#[tokio::test]
async fn a_lock_that_the_session_already_has_is_not_an_edge() {
    let db = Database::create().await;
    again(&mut db.connect().await, 1).await.unwrap();
    assert_eq!(edges("again-"), ["again-a:<id> > again-b:<id>"]);
}

#[advisory_lock(keys = ["pair-a:<id>", "pair-b:<id>"], name = "pair")]
async fn pair(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    pair_c(conn, id).await
}

locked!(pair_c(id) "pair-c:<id>");

#[derive(LockKey)]
#[lock_key("pair-d:<id>")]
struct D {
    id: i64,
}

#[advisory_lock(keys = [D { id }, D { id: id + 1 }])]
async fn pair_d(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    pair_c(conn, id).await
}

#[advisory_lock(keys = [D { id }, "pair-e:<id>", 424_242])]
async fn pair_e(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    pair_c(conn, id).await
}

#[tokio::test]
async fn keys_of_one_call_are_separate_locks_without_an_order() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    pair(&mut conn, 1).await.unwrap();
    let known = ["pair-a:<id> > pair-c:<id>", "pair-b:<id> > pair-c:<id>"];
    assert_eq!(edges("pair-"), known);
    pair_d(&mut conn, 1).await.unwrap();
    assert_eq!(edges("pair-")[2..], ["pair-d:<id> > pair-c:<id>"]);
    pair_e(&mut conn, 1).await.unwrap();
    assert_eq!(edges("pair-")[3..], ["pair-e:<id> > pair-c:<id>"]);
    let numbers = lock_order().edges;
    assert!(numbers.iter().any(|edge| edge.held.lock == "424242"));
    let both = Request::all([D { id: 8 }, D { id: 9 }]);
    let mut held = xact::begin(&mut conn, both).await.unwrap();
    pair(held.conn(), 5).await.unwrap();
    let more = ["pair-d:<id> > pair-a:<id>", "pair-d:<id> > pair-b:<id>"];
    for edge in more {
        assert!(edges("pair-").contains(&edge.to_owned()), "{edge}");
    }
    drop(held);
}

locked!(try_a(id) "try-a:<id>", name = "try-a");
locked!(try_b(id) "try-b:<id>", name = "try-b", wait = "never" => try_a);
locked!(try_a_then_b(id) "try-a:<id>", name = "try-a" => try_b_too);
locked!(try_b_too(id) "try-b:<id>", name = "try-b", wait = "never");

#[tokio::test]
async fn what_does_not_wait_is_held_and_makes_no_edge() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    try_a_then_b(&mut conn, 1).await.unwrap();
    assert!(edges("try-").is_empty());
    try_b(&mut conn, 1).await.unwrap();
    assert_eq!(edges("try-"), ["try-b:<id> > try-a:<id>"]);
}

locked!(read_a(id) "read-a:<id>", name = "read-a", mode = "shared");
locked!(read_b(id) "read-b:<id>", name = "read-b", mode = "shared");
locked!(read_a_then_b(id) "read-a:<id>", name = "read-a", mode = "shared" => read_b);
locked!(read_b_then_a(id) "read-b:<id>", name = "read-b", mode = "shared" => read_a);

#[advisory_lock(key = "raise:<id>", name = "raise")]
async fn raise(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    execute(conn, &format!("SELECT {id}")).await.map(drop)
}

#[advisory_lock(key = "raise:<id>", name = "raise", mode = "shared")]
async fn read_and_raise(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    raise(conn, id).await
}

#[tokio::test]
async fn only_upgrading_readers_wait_for_each_other() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    read_a_then_b(&mut conn, 1).await.unwrap();
    read_b_then_a(&mut conn, 1).await.unwrap();
    assert_eq!(edges("read-").len(), 2);
    assert!(order("read-").cycles.is_empty());
    read_and_raise(&mut conn, 1).await.unwrap();
    assert_eq!(order("raise:").cycles.len(), 1);
}

#[advisory_lock(key = "plain-b:<id>")]
fn plain_b(conn: &mut PgConnection, id: i64) -> QueryResult<()> {
    let _ = (conn, id);
    Ok(())
}

#[advisory_lock(key = "plain-a:<id>")]
fn plain_a(conn: &mut PgConnection, other: &mut PgConnection, id: i64) -> QueryResult<()> {
    plain_b(other, id)?;
    plain_c(conn, id)
}

#[advisory_lock(key = "plain-c:<id>")]
fn plain_c(conn: &mut PgConnection, id: i64) -> QueryResult<()> {
    let _ = (conn, id);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_calls_have_an_order_too() {
    let db = Database::create().await;
    let (mut conn, mut other) = (db.establish(), db.establish());
    plain_a(&mut conn, &mut other, 1).unwrap();
    let known = ["plain-a:<id> > plain-b:<id>", "plain-a:<id> > plain-c:<id>"];
    assert_eq!(edges("plain-"), known);
    let mut held = blocking::xact::begin(&mut conn, 424_245).unwrap();
    plain_c(held.conn(), 1).unwrap();
    drop(held);
    let edges = lock_order().edges;
    let edge = edges.iter().find(|edge| edge.held.lock == "424245");
    assert!(edge.unwrap().held.place.contains("order.rs:"), "{edge:?}");
}

locked!(trip_a(id) "trip-a:<id>");
locked!(trip_b(id) "trip-b:<id>");

#[tokio::test]
async fn the_server_is_asked_only_inside_diesels_own_transaction() {
    let db = Database::create().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    proxy.reset();
    for _ in 0..2 {
        trip_a(&mut conn, 1).await.unwrap();
        trip_b(&mut conn, 1).await.unwrap();
    }
    assert_eq!(proxy.round_trips(), 8, "{:#?}", proxy.queries());
    proxy.reset();
    conn.transaction::<_, diesel::result::Error, _>(async |conn| {
        trip_a(conn, 1).await?;
        trip_b(conn, 1).await
    })
    .await
    .unwrap();
    // Prepared and executed, in addition to the six of the calls and the transaction.
    assert_eq!(proxy.round_trips(), 8, "{:#?}", proxy.queries());
}

const RECORD: &str = "ADVISORY_LOCK_ORDER";

/// What so many processes, each with only this test, append to a new file.
async fn recorded(name: &str, test: &str, processes: u32) -> String {
    let file = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    // From an earlier, failed process with the same number.
    drop(std::fs::remove_file(&file));
    for _ in 0..processes {
        crate::observers::again(&[test], RECORD, &file).await;
    }
    let lines = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    lines
}

#[advisory_lock(key = "alone")]
async fn alone(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[tokio::test]
async fn a_process_without_nested_locks_leaves_an_empty_record() {
    const FILE: &str = "advisory-no-order";
    if std::env::var(RECORD).is_ok_and(|file| file.contains(FILE)) {
        let db = Database::create().await;
        return alone(&mut db.connect().await).await.unwrap();
    }
    let this = "order::a_process_without_nested_locks_leaves_an_empty_record";
    assert_eq!(recorded(FILE, this, 1).await, "");
}

#[tokio::test]
async fn each_process_appends_its_records_to_the_given_file() {
    let orders = "order::two_orders_are_reported_even_if_nothing_waited";
    let lines = recorded("advisory-lock-order", orders, 2).await;
    let held = lines
        .lines()
        .map(|line| Edge::decode(line).unwrap().held.lock);
    let known = ["ab-a:<id>", "ab-b:<id>", "ab-a:<id>", "ab-b:<id>"];
    assert_eq!(held.collect::<Vec<_>>(), known);
}

/// A call that locks two rows, one after the other, under its own lock.
macro_rules! import {
    ($import:ident $key:literal $(, $more:ident = $value:tt)* => $row:ident $pattern:literal) => {
        locked!($row(id) $pattern, name = $pattern);

        #[advisory_lock(key = $key $(, $more = $value)*)]
        async fn $import(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
            $row(conn, id).await?;
            $row(conn, id + 1).await
        }
    };
}

import!(one "gate" => row "gated:<id>");
import!(of_each "gate-each:<id>" => row_of_each "each-row:<id>");
import!(shared "gate-shared", mode = "shared" => row_of_shared "shared-row:<id>");
import!(permits "gate-permits", permits = 2, poll = "5ms" => row_of_permits "permits-row:<id>");

#[tokio::test]
async fn only_one_exclusive_lock_around_both_rules_a_deadlock_out() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    one(&mut conn, 1).await.unwrap();
    of_each(&mut conn, 1).await.unwrap();
    shared(&mut conn, 1).await.unwrap();
    permits(&mut conn, 1).await.unwrap();
    assert_eq!(edges("gated:"), ["gated:<id> > gated:<id>"]);
    assert!(order("gated:").cycles.is_empty());
    for row in ["each-row:", "shared-row:", "permits-row:"] {
        assert_eq!(order(row).cycles.len(), 1, "{row}");
    }
}

locked!(row_of_some(id) "some-row:<id>");

async fn two_rows(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    row_of_some(conn, 1).await?;
    row_of_some(conn, 2).await
}

#[advisory_lock(key = "gate-some")]
async fn import_some(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    two_rows(conn).await
}

#[tokio::test]
async fn a_lock_that_one_call_did_without_rules_nothing_out() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    import_some(&mut conn).await.unwrap();
    assert_eq!(edges("some-row:").len(), 1);
    assert!(order("some-row:").cycles.is_empty());
    conn.transaction(async |conn| two_rows(conn).await)
        .await
        .unwrap();
    import_some(&mut conn).await.unwrap();
    assert_eq!(order("some-row:").cycles.len(), 1);
}

locked!(kept_a(id) "kept-a:<id>");
locked!(kept_b(id) "kept-b:<id>");
locked!(kept_c(id) "kept-c:<id>");

#[tokio::test]
async fn a_nested_calls_lock_is_held_to_the_transactions_end() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    conn.transaction::<_, diesel::result::Error, _>(async |conn| {
        kept_a(conn, 1).await?;
        // Rolled back, and its lock released.
        let undone = conn.transaction::<(), diesel::result::Error, _>(async |conn| {
            kept_c(conn, 1).await?;
            Err(diesel::result::Error::RollbackTransaction)
        });
        undone.await.unwrap_err();
        kept_b(conn, 1).await
    })
    .await
    .unwrap();
    let known = ["kept-a:<id> > kept-b:<id>", "kept-a:<id> > kept-c:<id>"];
    assert_eq!(edges("kept-"), known);
    // Another transaction on the same connection.
    conn.transaction(async |conn| kept_c(conn, 1).await)
        .await
        .unwrap();
    conn.transaction(async |conn| kept_a(conn, 1).await)
        .await
        .unwrap();
    kept_b(&mut conn, 1).await.unwrap();
    kept_a(&mut conn, 1).await.unwrap();
    assert_eq!(edges("kept-"), known);
}

locked!(left_a(id) "left-a:<id>");
locked!(left_b(id) "left-b:<id>");
locked!(left_e(id) "left-e:<id>");

#[advisory_lock(key = "left-c:<id>")]
async fn left_c(
    conn: &mut AsyncPgConnection,
    other: &mut AsyncPgConnection,
    id: i64,
) -> QueryResult<()> {
    left_a(conn, id).await?;
    left_b(conn, id).await?;
    left_d(other, id).await
}

locked!(left_d(id) "left-d:<id>");

#[tokio::test]
async fn under_a_call_it_is_held_to_that_calls_end() {
    let db = Database::create().await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    left_c(&mut conn, &mut other, 1).await.unwrap();
    left_e(&mut conn, 1).await.unwrap();
    assert_eq!(
        edges("left-"),
        [
            "left-a:<id> > left-b:<id>",
            "left-a:<id> > left-d:<id>",
            "left-b:<id> > left-d:<id>",
            "left-c:<id> > left-a:<id>",
            "left-c:<id> > left-b:<id>",
            "left-c:<id> > left-d:<id>",
        ]
    );
}

locked!(test_a(id) "test-a:<id>");
locked!(test_b(id) "test-b:<id>");

#[tokio::test]
async fn locks_kept_by_a_test_transaction_are_not_the_programs_order() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    conn.begin_test_transaction().await.unwrap();
    test_a(&mut conn, 1).await.unwrap();
    test_b(&mut conn, 1).await.unwrap();
    conn.transaction(async |conn| test_a(conn, 2).await)
        .await
        .unwrap();
    conn.transaction(async |conn| test_b(conn, 2).await)
        .await
        .unwrap();
    assert!(edges("test-").is_empty());
}

locked!(by_hand(id) "hand-a:<id>");

#[tokio::test]
async fn a_lock_taken_by_hand_is_held_until_it_is_released() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    let mut held = session::acquire(&mut conn, 424_243).await.unwrap();
    let never = Request::new(424_244).wait(Wait::Never);
    finish(xact::begin(held.conn(), never).await.unwrap()).await;
    by_hand(held.conn(), 1).await.unwrap();
    finish(held).await;
    by_hand(&mut conn, 1).await.unwrap();
    let numbers = lock_order().edges;
    let under = numbers
        .iter()
        .filter(|edge| edge.asked.lock == "hand-a:<id>");
    let under: Vec<&Edge> = under.collect();
    assert_eq!(under.len(), 1, "{under:?}");
    assert_eq!(under[0].held.lock, "424243");
    assert!(under[0].held.place.contains("order.rs:"), "{under:?}");
}
