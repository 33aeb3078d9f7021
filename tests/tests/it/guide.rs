//! Statements of the guide that no other test covers: work that needs no lock, time inside a body,
//! and how keys and tokens of other programs are taken over.

use advisory_runtime::{Error, Isolation, Key, LockKey, Request, advisory_lock, xact};
use advisory_tests::bookings::{bookings, committed, database, execute, insert, run};
use advisory_tests::futures::spawn;
use advisory_tests::{assert_matches, leases};
use diesel::QueryResult;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

/// The key that another program derives from a text whose `sha256` a locked function uses:
/// PostgreSQL's `hashtext`.
const OLD: &str = "hashtext('booking:7')";

/// A number that other code computes.
struct Old<'a>(&'a str);

impl LockKey for Old<'_> {
    fn key(&self) -> Key {
        advisory_pattern::Derivation::Hashtext.key(self.0).into()
    }
}

/// For the roll-out: it takes the old program's lock, and the new one.
#[advisory_lock(keys = [Old(&format!("booking:{room}")), "moved:booking:<room>"])]
async fn book_under_both(
    conn: &mut AsyncPgConnection,
    room: i64,
    guest: &str,
) -> QueryResult<bool> {
    if bookings(conn, room).await? > 0 {
        return Ok(false);
    }
    insert(conn, room, guest).await?;
    Ok(true)
}

#[tokio::test]
async fn old_and_new_programs_of_a_roll_out_exclude_each_other() {
    let db = database().await;
    let (mut old, mut new) = (db.connect().await, db.connect().await);
    let key = Old("booking:7").key();
    let Key::BigInt(number) = key else {
        unreachable!("a number: {key}")
    };
    run(&mut old, &format!("SELECT pg_advisory_lock({OLD})")).await;
    insert(&mut old, 7, "old").await.unwrap();
    let booked = spawn(async move { book_under_both(&mut new, 7, "new").await });
    db.until_waiting(number).await;
    run(&mut old, &format!("SELECT pg_advisory_unlock({OLD})")).await;
    assert!(!booked.await.unwrap().unwrap(), "it reads the old booking");

    let mut new = db.connect().await;
    let held = xact::begin(&mut new, key).await.unwrap();
    let waiting =
        spawn(async move { execute(&mut old, &format!("SELECT pg_advisory_lock({OLD})")).await });
    db.until_waiting(number).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(committed(&db, 7).await, 1);
}

/// PostgreSQL's own text, as Diesel returns it.
#[tokio::test]
async fn what_a_constraint_or_a_row_can_hold_needs_no_lock() {
    let db = database().await;
    let (mut one, mut other) = (db.connect().await, db.connect().await);
    db.run(
        "CREATE TABLE stay (during int4range, EXCLUDE USING gist (during WITH &&));
         CREATE TABLE account (id int8 PRIMARY KEY); INSERT INTO account VALUES (1);
         CREATE TABLE payment (account int8 REFERENCES account)",
    )
    .await;
    let stay = "INSERT INTO stay VALUES ('[1,5)')";
    assert_eq!(execute(&mut one, stay).await, Ok(1));
    let overlaps = execute(&mut one, stay).await;
    let kind = DatabaseErrorKind::ExclusionViolation;
    assert_matches!(&overlaps, Err(DieselError::DatabaseError(found, _)) if *found == kind);
    run(&mut other, "SET lock_timeout = '50ms'").await;
    for (lock, may_refer) in [("FOR NO KEY UPDATE", true), ("FOR UPDATE", false)] {
        run(&mut one, "BEGIN").await;
        run(&mut one, &format!("SELECT FROM account {lock}")).await;
        let referred = execute(&mut other, "INSERT INTO payment VALUES (1)").await;
        assert_eq!(referred.is_ok(), may_refer, "{lock}: {referred:?}");
        run(&mut one, "ROLLBACK").await;
    }
}

#[tokio::test]
async fn now_in_a_body_is_from_before_the_wait_and_the_clock_is_not() {
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        let db = database().await;
        let (mut holder, mut conn) = (db.connect().await, db.connect().await);
        let held = xact::begin(&mut holder, 7).await.unwrap();
        let waiter = spawn(async move {
            let mut held = xact::begin(&mut conn, Request::new(7).isolation(isolation)).await?;
            let seen = diesel::dsl::sql::<diesel::sql_types::Text>(
                "SELECT concat(now() < (SELECT until FROM released), clock_timestamp() > (SELECT until FROM released))",
            );
            let seen: String = seen.get_result(held.conn()).await?;
            held.finish(Ok::<_, Error>(seen)).await
        });
        db.until_waiting(7).await;
        db.run("CREATE TABLE released AS SELECT clock_timestamp() AS until")
            .await;
        held.finish(Ok::<_, Error>(())).await.unwrap();
        assert_eq!(waiter.await.unwrap().unwrap(), "tt", "{isolation:?}");
    }
}

/// Storage that has the old program's last token accepts the next one from here.
#[tokio::test]
async fn tokens_continue_after_those_of_another_program() {
    let page = include_str!("../../../advisory-runtime/docs/moving.md");
    let (_, rest) = page.split_once("SELECT setval").unwrap();
    let (statement, _) = rest.split_once(';').unwrap();
    let db = leases::database().await;
    db.run(&format!(
        "CREATE TABLE syncguard_fence_counters (fence_key text PRIMARY KEY, fence bigint NOT NULL DEFAULT 0, key_debug text);
         INSERT INTO syncguard_fence_counters VALUES ('fence:report:2026-11', 4711, 'report:2026-11'), ('fence:new', 0, NULL);
         SELECT setval{statement}"
    ))
    .await;
    let granting = leases::leases_at(db.url(), 1);
    let mut last = 4711;
    for key in ["report:2026-11", "new"] {
        let token = leases::once(&granting, leases::key(key)).await.unwrap();
        assert!(token.get() > last, "{key}");
        last = token.get();
    }
}

#[tokio::test]
async fn the_number_of_hashtext_on_the_page_is_the_servers() {
    let page = include_str!("../../../advisory-runtime/docs/moving.md");
    let (before, _) = page.split_once("// The same text under").unwrap();
    let (_, shown) = before.rsplit_once("Key::BigInt(").unwrap();
    let (shown, _) = shown.split_once(')').unwrap();
    let db = database().await;
    let number = db.count("SELECT hashtext('t1:2025-01-15')").await;
    assert_eq!(number.to_string(), shown);
}
