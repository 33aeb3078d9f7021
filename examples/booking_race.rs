//! Two hundred clients fight for twenty slots: once without a lock, then with one.
//!
//! `cargo run --example booking_race` starts a PostgreSQL of its own, or uses
//! `ADVISORY_TEST_DATABASE_URL`. Look at `book`; `book_without_lock` is the same without the
//! attribute.

#![allow(clippy::print_stdout, reason = "the race is run to be read")]
#![allow(missing_docs, reason = "nothing in a program is public")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use advisory_runtime::advisory_lock;
use advisory_tests::Database;
use chrono::{Days, NaiveDate};
use diesel::prelude::*;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use tokio::task::JoinSet;
use uuid::Uuid;

const CLIENTS: usize = 200;
const SLOTS: usize = 20;
const CONNECTIONS: usize = 20;

diesel::table! {
    bookings (id) {
        id -> BigInt,
        tenant_id -> Uuid,
        date -> Date,
        guest -> Text,
    }
}

/// It has no unique constraint, as a slot for six guests could not: there a program has to count.
const SCHEMA: &str = "CREATE TABLE bookings (id bigserial, tenant_id uuid, date date, guest text);
    CREATE TABLE waits (pid int, since timestamptz, UNIQUE (pid, since))";

/// Adds the calls that wait for a lock right now.
const NOTE_WAITS: &str = "INSERT INTO waits SELECT pid, waitstart FROM pg_locks
    WHERE locktype = 'advisory' AND waitstart IS NOT NULL
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ON CONFLICT DO NOTHING";

/// Books the slot if it is free: reads, then writes. Returns the booking's number, or `None` if the
/// slot is taken.
async fn book_if_free(
    conn: &mut AsyncPgConnection,
    tenant_id: Uuid,
    date: NaiveDate,
    guest: &str,
) -> QueryResult<Option<i64>> {
    let slot = bookings::table
        .filter(bookings::tenant_id.eq(tenant_id))
        .filter(bookings::date.eq(date));
    if slot.count().get_result::<i64>(conn).await? > 0 {
        return Ok(None);
    }
    let booking = (
        bookings::tenant_id.eq(tenant_id),
        bookings::date.eq(date),
        bookings::guest.eq(guest),
    );
    let insert = diesel::insert_into(bookings::table).values(booking);
    let id = insert.returning(bookings::id).get_result(conn).await?;
    Ok(Some(id))
}

/// Runs in a transaction that holds the lock of this tenant and day.
#[advisory_lock(key = "<tenant_id>:<date>", scope = "xact")]
async fn book(
    conn: &mut AsyncPgConnection,
    tenant_id: Uuid,
    date: NaiveDate,
    guest: &str,
) -> QueryResult<Option<i64>> {
    book_if_free(conn, tenant_id, date, guest).await
}

/// A transaction is not enough: two calls can both find the slot free.
async fn book_without_lock(
    conn: &mut AsyncPgConnection,
    tenant_id: Uuid,
    date: NaiveDate,
    guest: &str,
) -> QueryResult<Option<i64>> {
    conn.transaction(async |conn| book_if_free(conn, tenant_id, date, guest).await)
        .await
}

type Slots = Arc<Vec<(Uuid, NaiveDate)>>;

/// Tries the slots one after the other, beginning with `first`, until one is booked or all are
/// full.
async fn client(
    pool: Pool<AsyncPgConnection>,
    slots: Slots,
    first: usize,
    guest: String,
    locked: bool,
) -> Outcome<()> {
    for (tenant_id, date) in slots.iter().cycle().skip(first).take(slots.len()).copied() {
        let mut conn = pool.get().await?;
        let booked = if locked {
            book(&mut conn, tenant_id, date, &guest).await?
        } else {
            book_without_lock(&mut conn, tenant_id, date, &guest).await?
        };
        if booked.is_some() {
            break;
        }
    }
    Ok(())
}

/// Prints the figures of a race, and returns how many bookings were one too many.
async fn race(db: &Database, pool: &Pool<AsyncPgConnection>, locked: bool) -> Outcome<i64> {
    db.run("TRUNCATE bookings, waits").await;
    let slot = |n: usize| {
        let day = NaiveDate::default() + Days::new(n as u64 % 5);
        (Uuid::from_u128(n as u128 / 5), day)
    };
    let slots: Slots = Arc::new((0..SLOTS).map(slot).collect());

    let start = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        // Neighbours begin with the same slot, so that they meet.
        let first = number * SLOTS / CLIENTS;
        let (pool, slots, guest) = (pool.clone(), Arc::clone(&slots), format!("guest {number}"));
        clients.spawn(client(pool, slots, first, guest, locked));
    }
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    while !clients.is_empty() {
        tokio::select! {
            Some(done) = clients.join_next() => done??,
            _ = looks.tick() => db.run(NOTE_WAITS).await,
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let name = if locked {
        "with the lock"
    } else {
        "without the lock"
    };
    let bookings = db.count("SELECT count(*) FROM bookings").await;
    let slots = "SELECT count(DISTINCT (tenant_id, date)) FROM bookings";
    let double = bookings - db.count(slots).await;
    let waits = db.count("SELECT count(*) FROM waits").await;
    println!("{name:<18}{bookings:>8}  {double:>15}  {waits:>5}  {seconds:>7.2}");
    Ok(double)
}

#[tokio::main]
async fn main() -> Outcome<ExitCode> {
    let db = Database::try_create().await?;
    db.run(SCHEMA).await;
    let pool = db.deadpool(CONNECTIONS);
    // All connections are opened first, so that both runs have them.
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        open.push(pool.get().await?);
    }
    drop(open);
    println!("{CLIENTS} clients, {SLOTS} slots, {CONNECTIONS} connections\n");
    println!("                  bookings  double bookings  waits  seconds");
    let without = race(&db, &pool, false).await?;
    let with = race(&db, &pool, true).await?;
    println!("\nwaits: calls seen waiting for their lock in pg_locks, which is read every 5 ms");
    if without == 0 {
        eprintln!("no double booking without the lock, so this proves nothing");
    }
    if with > 0 {
        eprintln!("double bookings in spite of the lock: this is a bug");
    }
    Ok(if without > 0 && with == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
