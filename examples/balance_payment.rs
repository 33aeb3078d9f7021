//! Payments between two accounts in both directions at once: without a lock, money is lost.
//!
//! `cargo run --example balance_payment` starts a PostgreSQL of its own, or uses
//! `ADVISORY_TEST_DATABASE_URL`. Look at `pay`; `pay_without_lock` is the same without the
//! attribute.

#![allow(clippy::print_stdout, reason = "the figures are run to be read")]
#![allow(missing_docs, reason = "nothing in a program is public")]

use std::process::ExitCode;

use advisory_runtime::{Error, LockKey, advisory_lock};
use advisory_tests::Database;
use diesel::prelude::*;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use tokio::task::JoinSet;

diesel::table! {
    accounts (id) {
        id -> BigInt,
        balance -> BigInt,
    }
}

const SCHEMA: &str = "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)";

/// An account's balance. Every function that changes one holds this lock.
#[derive(LockKey)]
#[lock_key("account:<id>")]
struct AccountLock {
    id: i64,
}

/// Whether the account had enough. Both accounts are locked, in one round trip and always in the
/// same order: payments in opposite directions never deadlock.
#[advisory_lock(keys = [AccountLock { id: from }, AccountLock { id: to }], wait = "30s")]
async fn pay(conn: &mut AsyncPgConnection, from: i64, to: i64, amount: i64) -> Result<bool, Error> {
    move_money(conn, from, to, amount).await
}

/// A transaction is not enough: two calls read the same balance, and the later one overwrites the
/// other.
async fn pay_without_lock(
    conn: &mut AsyncPgConnection,
    from: i64,
    to: i64,
    amount: i64,
) -> Result<bool, Error> {
    conn.transaction(async |conn| move_money(conn, from, to, amount).await)
        .await
}

/// Reads, decides, writes.
async fn move_money(
    conn: &mut AsyncPgConnection,
    from: i64,
    to: i64,
    amount: i64,
) -> Result<bool, Error> {
    let left = balance(conn, from).await? - amount;
    if left < 0 {
        return Ok(false);
    }
    let mut changed = [(from, left), (to, balance(conn, to).await? + amount)];
    // Without the lock, rows that are written in any order deadlock.
    changed.sort_unstable();
    for (id, balance) in changed {
        diesel::update(accounts::table.find(id))
            .set(accounts::balance.eq(balance))
            .execute(conn)
            .await?;
    }
    Ok(true)
}

async fn balance(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<i64> {
    let account = accounts::table.find(id).select(accounts::balance);
    account.first(conn).await
}

const CLIENTS: i64 = 8;
const PAYMENTS: i64 = 50;
const IN_EACH: i64 = 1_000;

/// The sum of a client's payments.
#[derive(Default)]
struct Paid {
    made: i64,
    refused: i64,
    /// From account 1 to account 2, less what came back.
    moved: i64,
}

/// Pays in both directions.
async fn client(pool: Pool<AsyncPgConnection>, number: i64, is_locked: bool) -> Outcome<Paid> {
    let mut paid = Paid::default();
    for payment in 0..PAYMENTS {
        let (from, to) = if (number + payment) % 2 == 0 {
            (1, 2)
        } else {
            (2, 1)
        };
        let amount = 1 + (number * 211 + payment * 97) % 900;
        let mut conn = pool.get().await?;
        let is_paid = if is_locked {
            pay(&mut conn, from, to, amount).await?
        } else {
            pay_without_lock(&mut conn, from, to, amount).await?
        };
        if is_paid {
            paid.made += 1;
            paid.moved += if from == 1 { amount } else { -amount };
        } else {
            paid.refused += 1;
        }
    }
    Ok(paid)
}

/// Prints the sum of all payments, and returns whether each account has its share. A correct total
/// alone could be luck.
async fn payments(db: &Database, pool: &Pool<AsyncPgConnection>, is_locked: bool) -> Outcome<bool> {
    db.run("TRUNCATE accounts; INSERT INTO accounts VALUES (1, 1000), (2, 1000)")
        .await;
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(client(pool.clone(), number, is_locked));
    }
    let mut all = Paid::default();
    while let Some(client) = clients.join_next().await {
        let paid = client??;
        all.made += paid.made;
        all.refused += paid.refused;
        all.moved += paid.moved;
    }
    let Paid {
        made,
        refused,
        moved,
    } = all;
    let mut conn = pool.get().await?;
    let (first, second) = (balance(&mut conn, 1).await?, balance(&mut conn, 2).await?);
    let name = if is_locked {
        "with the lock"
    } else {
        "without the lock"
    };
    let together = first + second;
    println!("{name:<18}{first:>8}{second:>11}{together:>10}{made:>6}{refused:>9}");
    Ok((first, second) == (IN_EACH - moved, IN_EACH + moved))
}

#[tokio::main]
async fn main() -> Outcome<ExitCode> {
    let db = Database::try_create().await?;
    db.run(SCHEMA).await;
    let pool = db.deadpool(usize::try_from(CLIENTS)?);
    let all = 2 * IN_EACH;
    println!("{CLIENTS} clients make {PAYMENTS} payments each, from either account to the other\n");
    println!("                  account 1  account 2  together  paid  refused");
    println!("{:<18}{IN_EACH:>8}{IN_EACH:>11}{all:>10}", "at the start");
    let without = payments(&db, &pool, false).await?;
    let with = payments(&db, &pool, true).await?;
    println!("\nrefused: the account had too little");
    if without {
        eprintln!("no money was lost or made without the lock, so this proves nothing");
        return Ok(ExitCode::FAILURE);
    }
    if !with {
        eprintln!("money was lost or made in spite of the lock: this is a bug");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
