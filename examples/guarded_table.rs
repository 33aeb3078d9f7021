//! One client books past the lock: without a guard the slot is booked twice, and with one the
//! database refuses the write.
//!
//! `cargo run --example guarded_table` starts a PostgreSQL of its own, or uses
//! `ADVISORY_TEST_DATABASE_URL`. Look at `book_without_lock`, which somebody wrote a year after
//! `book`. The guard is the migration in `guarded_table/up.sql`, as `cargo advisory migration
//! require --lock booking-slot --table bookings` prints it.

#![allow(clippy::print_stdout, reason = "the race is run to be read")]
#![allow(missing_docs, reason = "nothing in a program is public")]

use std::error::Error;

use advisory_runtime::{LockKey, advisory_lock};
use advisory_tests::Database;
use chrono::{Days, NaiveDate};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use tokio::sync::Barrier;
use uuid::Uuid;

diesel::table! {
    bookings (id) {
        id -> BigInt,
        tenant_id -> Uuid,
        date -> Date,
        guest -> Text,
    }
}

/// It has no unique constraint, as a slot for six guests could not: there a program has to count.
const SCHEMA: &str = "DROP TABLE IF EXISTS bookings;
    CREATE TABLE bookings (id bigserial PRIMARY KEY, tenant_id uuid, date date, guest text)";
const GUARD: &str = include_str!("guarded_table/up.sql");
const SLOTS: u64 = 20;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(LockKey)]
#[lock_key(
    "<tenant_id: uuid>:<date: date>",
    name = "booking-slot",
    guards = "bookings"
)]
struct SlotLock {
    tenant_id: Uuid,
    date: NaiveDate,
}

/// Books the slot if it is free, under its lock. The other client writes at the worst moment:
/// between the read and the write.
#[advisory_lock(key = slot)]
async fn book(
    conn: &mut AsyncPgConnection,
    slot: &SlotLock,
    moment: &Barrier,
) -> QueryResult<bool> {
    let is_free = is_free(conn, slot).await;
    moment.wait().await;
    moment.wait().await;
    if is_free? {
        insert(conn, slot, "Ada").await?;
        return Ok(true);
    }
    Ok(false)
}

/// The same, written by somebody who did not know about the lock.
async fn book_without_lock(
    conn: &mut AsyncPgConnection,
    slot: &SlotLock,
    moment: &Barrier,
) -> QueryResult<bool> {
    moment.wait().await;
    let booked = match is_free(conn, slot).await {
        Ok(true) => insert(conn, slot, "Grace").await.map(|()| true),
        other => other,
    };
    moment.wait().await;
    booked
}

async fn is_free(conn: &mut AsyncPgConnection, slot: &SlotLock) -> QueryResult<bool> {
    let bookings = bookings::table
        .filter(bookings::tenant_id.eq(slot.tenant_id))
        .filter(bookings::date.eq(slot.date));
    Ok(bookings.count().get_result::<i64>(conn).await? == 0)
}

async fn insert(conn: &mut AsyncPgConnection, slot: &SlotLock, guest: &str) -> QueryResult<()> {
    let booking = (
        bookings::tenant_id.eq(slot.tenant_id),
        bookings::date.eq(slot.date),
        bookings::guest.eq(guest),
    );
    let insert = diesel::insert_into(bookings::table).values(booking);
    insert.execute(conn).await.map(drop)
}

/// Races for each slot, and prints how many were booked twice and how many writes were refused.
async fn race(db: &Database, name: &str) -> Outcome<Option<String>> {
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let first = NaiveDate::from_ymd_opt(2027, 6, 1).ok_or("a date")?;
    let tenant_id = Uuid::new_v4();
    let (mut twice, mut refused, mut refusal) = (0, 0, None);
    for days in 0..SLOTS {
        let date = first + Days::new(days);
        let (slot, moment) = (SlotLock { tenant_id, date }, Barrier::new(2));
        let (booked, past_the_lock) = tokio::join!(
            book(&mut conn, &slot, &moment),
            book_without_lock(&mut other, &slot, &moment),
        );
        match (booked?, past_the_lock) {
            (true, Ok(true)) => twice += 1,
            (_, Err(error)) => {
                refused += 1;
                refusal = Some(error.to_string());
            }
            (_, Ok(_)) => {}
        }
    }
    println!("{name:<20}{SLOTS:>8}{twice:>16}{refused:>16}");
    Ok(refusal)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let db = Database::try_create().await?;
    let mut conn = db.connect().await;
    println!(
        "{:<20}{:>8}{:>16}{:>16}",
        "", "slots", "booked twice", "writes refused"
    );
    conn.batch_execute(SCHEMA).await?;
    race(&db, "without the guard").await?;
    conn.batch_execute(SCHEMA).await?;
    conn.batch_execute(GUARD).await?;
    if let Some(refusal) = race(&db, "with the guard").await? {
        println!("\nThe server said: {refusal}");
    }
    Ok(())
}
