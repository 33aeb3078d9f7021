//! Requests that find nothing generated yet all generate it: how does only one, without the others waiting on a connection?
//!
//! `cargo run --example generate_events` starts a PostgreSQL of its own, or uses `ADVISORY_TEST_DATABASE_URL`.
//! The functions to look at are `generate`, which is refused at once while another request generates, and `list_patiently`, which
//! asks again later; `generate_without_lock` is the first one's twin.

#![allow(clippy::print_stdout, reason = "the figures are run to be read")]
#![allow(missing_docs, reason = "nothing in a program is public")]

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use advisory_runtime::advisory_lock;
use advisory_tests::Database;
use chrono::{Days, NaiveDate};
use diesel::prelude::*;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use tokio::task::JoinSet;
use uuid::Uuid;

#[path = "generate_events/error.rs"]
mod error;

use error::EventError;

diesel::table! {
    schedules (id) {
        id -> Uuid,
        generated_to -> Date,
    }
}

diesel::table! {
    events (id) {
        id -> BigInt,
        schedule_id -> Uuid,
        day -> Date,
    }
}

const SCHEMA: &str = "CREATE TABLE schedules (id uuid PRIMARY KEY, generated_to date NOT NULL);
    CREATE TABLE events (id bigserial PRIMARY KEY, schedule_id uuid NOT NULL, day date NOT NULL)";

/// The events of a schedule to this day, which are generated if nobody has asked for them before.
async fn list(
    pool: &Pool<AsyncPgConnection>,
    schedule_id: Uuid,
    to: NaiveDate,
    is_locked: bool,
) -> Result<Vec<NaiveDate>, EventError> {
    let mut conn = pool.get().await?;
    if generated_to(&mut conn, schedule_id).await? < to {
        if is_locked {
            generate(&mut conn, schedule_id, to).await?;
        } else {
            generate_without_lock(&mut conn, schedule_id, to).await?;
        }
    }
    let days = events::table
        .filter(events::schedule_id.eq(schedule_id))
        .filter(events::day.le(to))
        .select(events::day)
        .order(events::day);
    Ok(days.load(&mut conn).await?)
}

/// Generates a schedule's events; an error where somebody else is at it.
///
/// The key is the UUID's text and its number the beginning of the MD5: the lock is also that of a program that takes it by hand, with
/// `pg_try_advisory_xact_lock(('x' || substr(md5($1), 1, 16))::bit(64)::bigint)`.
#[advisory_lock(key = "<schedule_id>", derivation = "md5", wait = "never")]
async fn generate(
    conn: &mut AsyncPgConnection,
    schedule_id: Uuid,
    to: NaiveDate,
) -> Result<(), EventError> {
    generate_rest(conn, schedule_id, to).await
}

/// In a transaction, and that is not enough: two of them generate the same days.
async fn generate_without_lock(
    conn: &mut AsyncPgConnection,
    schedule_id: Uuid,
    to: NaiveDate,
) -> Result<(), EventError> {
    conn.transaction(async |conn| generate_rest(conn, schedule_id, to).await)
        .await
}

async fn generate_rest(
    conn: &mut AsyncPgConnection,
    schedule_id: Uuid,
    to: NaiveDate,
) -> Result<(), EventError> {
    // Looked at again: whoever had the lock before may have generated them.
    let from = generated_to(conn, schedule_id).await?;
    if from >= to {
        return Ok(());
    }
    let missing: Vec<_> = from
        .iter_days()
        .skip(1)
        .take_while(|day| *day <= to)
        .map(|day| (events::schedule_id.eq(schedule_id), events::day.eq(day)))
        .collect();
    diesel::insert_into(events::table)
        .values(missing)
        .execute(conn)
        .await?;
    diesel::update(schedules::table.find(schedule_id))
        .set(schedules::generated_to.eq(to))
        .execute(conn)
        .await?;
    Ok(())
}

async fn generated_to(conn: &mut AsyncPgConnection, schedule_id: Uuid) -> QueryResult<NaiveDate> {
    let schedule = schedules::table.find(schedule_id);
    let generated_to = schedule.select(schedules::generated_to);
    generated_to.first(conn).await
}

/// Twenty seconds, should a machine with much to do put the one that generates aside.
const TRIES: usize = 13;

/// Asks again while somebody else generates them, each time after twice as long, and holds no connection meanwhile. What no waiting
/// helps is an error at once. The events, and how many tries were refused.
async fn list_patiently(
    pool: &Pool<AsyncPgConnection>,
    schedule_id: Uuid,
    to: NaiveDate,
    is_locked: bool,
) -> Result<(Vec<NaiveDate>, usize), EventError> {
    let mut pause = Duration::from_millis(5);
    let mut refused = 0;
    loop {
        match list(pool, schedule_id, to, is_locked).await {
            Err(EventError::Lock(error)) if error.is_busy() && refused + 1 < TRIES => refused += 1,
            listed => return listed.map(|events| (events, refused)),
        }
        #[expect(clippy::disallowed_methods, reason = "between two tries passes time")]
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

const SCHEDULES: usize = 10;
/// For each schedule, all at once.
const REQUESTS: usize = 20;
const DAYS: u64 = 30;

/// Requests for the same days at once: gives back how many events there are then.
async fn requests(db: &Database, pool: &Pool<AsyncPgConnection>, is_locked: bool) -> Outcome<i64> {
    db.run("TRUNCATE schedules, events").await;
    let mut requests = JoinSet::new();
    for _ in 0..SCHEDULES {
        let (schedule_id, to) = new_schedule(db).await;
        for _ in 0..REQUESTS {
            let pool = pool.clone();
            requests.spawn(async move { list_patiently(&pool, schedule_id, to, is_locked).await });
        }
    }
    let mut refused = 0;
    while let Some(request) = requests.join_next().await {
        refused += request??.1;
    }
    let events = db.count("SELECT count(*) FROM events").await;
    let twice = events
        - db.count("SELECT count(DISTINCT (schedule_id, day)) FROM events")
            .await;
    let name = if is_locked {
        "with the lock"
    } else {
        "without the lock"
    };
    println!("{name:<18}{events:>6}{twice:>11}{refused:>9}");
    Ok(events)
}

/// A program that takes the lock by hand keeps this one out.
async fn beside_a_lock_by_hand(db: &Database, pool: &Pool<AsyncPgConnection>) -> Outcome<()> {
    let (schedule_id, to) = new_schedule(db).await;
    let by_hand = format!(
        "BEGIN; SELECT pg_try_advisory_xact_lock(('x' || substr(md5('{schedule_id}'), 1, 16))::bit(64)::bigint)"
    );
    db.run(&by_hand).await;
    println!("\nanother program has the lock, taken by hand:");
    match list(pool, schedule_id, to, true).await {
        Ok(events) => println!("  listed: {} events", events.len()),
        Err(error) => println!("  refused: {error}"),
    }
    db.run("COMMIT").await;
    println!("it has committed:");
    let (events, _) = list_patiently(pool, schedule_id, to, true).await?;
    println!("  listed: {} events", events.len());
    Ok(())
}

/// A schedule of which nothing is generated, and the day to which it is asked for.
async fn new_schedule(db: &Database) -> (Uuid, NaiveDate) {
    let (id, nothing) = (Uuid::new_v4(), NaiveDate::default());
    db.run(&format!(
        "INSERT INTO schedules VALUES ('{id}', '{nothing}')"
    ))
    .await;
    (id, nothing + Days::new(DAYS))
}

#[tokio::main]
async fn main() -> Outcome<ExitCode> {
    let db = Database::try_create().await?;
    db.run(SCHEMA).await;
    let pool = db.deadpool(REQUESTS);
    // All connections are opened beforehand, so that the first run finds them open.
    let mut open = Vec::new();
    for _ in 0..REQUESTS {
        open.push(pool.get().await?);
    }
    drop(open);
    println!(
        "{SCHEDULES} schedules; {REQUESTS} requests each list the same {DAYS} days, which nobody has generated\n"
    );
    println!("                  events  too many  refused");
    let without = requests(&db, &pool, false).await?;
    let with = requests(&db, &pool, true).await?;
    beside_a_lock_by_hand(&db, &pool).await?;
    let days = i64::try_from(SCHEDULES)? * i64::try_from(DAYS)?;
    if without == days {
        eprintln!("no event twice without the lock, so this proves nothing");
        return Ok(ExitCode::FAILURE);
    }
    if with != days {
        eprintln!("events twice in spite of the lock: this is a bug");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
