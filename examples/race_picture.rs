//! Draws the booking race over time, without the lock and with it: the picture at the top of the
//! README.
//!
//! `cargo run --example race_picture -- docs/race.svg` measures five calls that want one slot, each
//! way, and writes the file. Without a file name it prints the picture. The times are those of the
//! run; only the work between read and write is stretched, to 20 ms, so that the bars can be seen.

#![allow(clippy::print_stdout, reason = "the picture is the output")]
#![allow(missing_docs, reason = "nothing in a program is public")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use advisory_runtime::advisory_lock;
use advisory_tests::Database;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

#[path = "race_picture/drawing.rs"]
mod drawing;

use drawing::{Call, drawing};

const CALLS: usize = 5;

diesel::table! {
    bookings (id) {
        id -> BigInt,
        slot -> Integer,
    }
}

#[derive(QueryableByName)]
struct Found {
    #[diesel(sql_type = BigInt)]
    bookings: i64,
}

/// Reads, works for 20 ms, and writes if it found no booking. Returns when the body began, and
/// whether it booked.
async fn book_if_free(conn: &mut AsyncPgConnection, slot: i32) -> QueryResult<(Instant, bool)> {
    let began = Instant::now();
    let look = "SELECT count(*) AS bookings FROM bookings WHERE slot = $1";
    let look = diesel::sql_query(look).bind::<Integer, _>(slot);
    let Found { bookings } = look.get_result(conn).await?;
    if bookings > 0 {
        return Ok((began, false));
    }
    diesel::sql_query("SELECT pg_sleep(0.02)")
        .execute(conn)
        .await?;
    let booking = diesel::insert_into(bookings::table).values(bookings::slot.eq(slot));
    booking.execute(conn).await?;
    Ok((began, true))
}

#[advisory_lock(key = "picture:<slot>", scope = "xact")]
async fn book(conn: &mut AsyncPgConnection, slot: i32) -> QueryResult<(Instant, bool)> {
    book_if_free(conn, slot).await
}

async fn book_without_lock(
    conn: &mut AsyncPgConnection,
    slot: i32,
) -> QueryResult<(Instant, bool)> {
    conn.transaction(async |conn| book_if_free(conn, slot).await)
        .await
}

/// All calls at once, for one slot. Each way has its own slot.
async fn race(db: &Database, locked: bool) -> Outcome<Vec<Call>> {
    let start = Arc::new(Barrier::new(CALLS));
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let (start, mut conn) = (Arc::clone(&start), db.connect().await);
        calls.spawn(async move {
            start.wait().await;
            let asked = Instant::now();
            let (began, booked) = if locked {
                book(&mut conn, 2).await?
            } else {
                book_without_lock(&mut conn, 1).await?
            };
            QueryResult::Ok((asked, began, Instant::now(), booked))
        });
    }
    let mut times = Vec::new();
    while let Some(call) = calls.join_next().await {
        times.push(call??);
    }
    let first = times.iter().map(|(asked, ..)| *asked).min();
    let first = first.ok_or("no call")?;
    let ms = |at: Instant| at.duration_since(first).as_secs_f64() * 1000.0;
    let mut drawn: Vec<_> = times
        .into_iter()
        .map(|(asked, began, ended, booked)| Call {
            asked: ms(asked),
            began: ms(began),
            ended: ms(ended),
            booked,
        })
        .collect();
    drawn.sort_by(|a, b| a.ended.total_cmp(&b.ended));
    Ok(drawn)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let db = Database::try_create().await?;
    db.run("CREATE TABLE bookings (id bigserial, slot int)")
        .await;
    // The first run opens files and fills caches, and is not drawn.
    race(&db, false).await?;
    db.run("TRUNCATE bookings").await;
    tokio::time::timeout(Duration::from_secs(60), async {
        let (without, with) = (race(&db, false).await?, race(&db, true).await?);
        let svg = drawing(&without, &with).to_string();
        match std::env::args().nth(1) {
            Some(file) => std::fs::write(file, svg)?,
            None => println!("{svg}"),
        }
        Ok(())
    })
    .await?
}

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
