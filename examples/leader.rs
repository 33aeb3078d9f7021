//! Three processes campaign, and one leads. It is stopped; another takes over within the ttl; the
//! old leader wakes up, writes too late, and is refused.
//!
//! `cargo run --example leader` starts a PostgreSQL of its own, or uses
//! `ADVISORY_TEST_DATABASE_URL`; the processes are this program too. Look at `lead`; `main` stops
//! and resumes the processes.

#![allow(clippy::print_stdout, reason = "the outcome is run to be read")]
#![allow(missing_docs, reason = "nothing in a program is public")]

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

use advisory_runtime::Pool as _;
use advisory_runtime::lease::{self, Error, Lease, Leases, Request, Table};
use advisory_tests::Database;
use diesel::prelude::*;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

#[path = "process.rs"]
mod process;

use process::Process;

/// The variables that tell a process its name, and the address of the database.
const NAME: &str = "LEADER_NAME";
const URL: &str = "LEADER_DATABASE_URL";

/// After this time another process leads, if the leader is stopped.
const TTL: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(30);

const SCHEMA: &str = "
    CREATE TABLE terms (token bigint PRIMARY KEY, leader text NOT NULL);
    CREATE TABLE writes (leader text NOT NULL, token bigint NOT NULL, outcome text NOT NULL)";

diesel::table! {
    terms (token) {
        token -> BigInt,
        leader -> Text,
    }
}

diesel::table! {
    writes (token) {
        leader -> Text,
        token -> BigInt,
        outcome -> Text,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    if let (Ok(name), Ok(url)) = (env::var(NAME), env::var(URL)) {
        let pool = Pool::builder(AsyncDieselConnectionManager::new(url)).build()?;
        return lead(pool, name).await;
    }
    let db = Database::try_create().await?;
    db.run(SCHEMA).await;
    let pool = db.deadpool(2);
    Table::new().set_up(&mut pool.connection().await?).await?;
    let mut processes = Vec::new();
    for name in ["first", "second", "third"] {
        let mut command = Command::new(env::current_exe()?);
        let child = command.env(NAME, name).env(URL, db.url()).spawn()?;
        processes.push((name, Process(child)));
    }

    let (leader, token) = next_leader(&db, &pool, 0).await?;
    println!("{leader:<7} leads with token {token}");
    let old = processes.iter().find(|(name, _)| *name == leader);
    let (_, old) = old.ok_or("an unknown leader")?;
    old.signal("-STOP")?;
    let stopped = Instant::now();
    println!("{leader:<7} is stopped");
    let (next, larger) = next_leader(&db, &pool, token).await?;
    let within = if stopped.elapsed() <= TTL + Duration::from_secs(2) {
        "within the ttl"
    } else {
        "late, on a machine with much to do,"
    };
    println!(
        "{next:<7} leads {within} with a larger token: {}",
        larger > token
    );
    old.signal("-CONT")?;
    println!("{leader:<7} wakes up");
    let unanswered = format!(
        "SELECT 'no' WHERE NOT EXISTS (SELECT FROM writes WHERE token = {token} AND outcome <> 'written')"
    );
    db.until_empty(LONG, "the late write", &unanswered).await;
    let late: String = writes::table
        .filter(writes::token.eq(token).and(writes::outcome.ne("written")))
        .select(writes::outcome)
        .first(&mut pool.get().await?)
        .await?;
    println!("{leader:<7} writes with token {token}: {late}");
    Ok(())
}

/// Leads whenever no other process does, until the process ends.
async fn lead(pool: Pool<AsyncPgConnection>, name: String) -> Outcome<()> {
    let leases = Leases::new(pool.clone());
    let campaign = Request::text("cleanup").ttl(TTL);
    let ended: Result<_, anyhow::Error> = lease::lead(&leases, campaign, async |term| {
        // An error, such as a lost connection, ends the term: then any process can lead.
        if let Err(error) = announce(&pool, &name, &term).await {
            eprintln!("{name:<7} resigned: {error}");
            return Ok(());
        }
        // On its own task, which is not dropped with the body, so that only the fence stops it.
        // Many programs work like this.
        let work = tokio::spawn(work(pool.clone(), name.clone(), term));
        work.await?;
        Ok(())
    })
    .await;
    match ended? {}
}

async fn announce(pool: &Pool<AsyncPgConnection>, name: &str, term: &Lease) -> Result<(), Error> {
    let started = (terms::token.eq(term.token().get()), terms::leader.eq(name));
    let mut conn = pool.connection().await?;
    let insert = diesel::insert_into(terms::table).values(started);
    insert.execute(&mut conn).await?;
    Ok(())
}

/// Writes repeatedly, and prints whether each write was committed.
async fn work(pool: Pool<AsyncPgConnection>, name: String, term: Lease) {
    let mut pause = tokio::time::interval(Duration::from_millis(50));
    loop {
        pause.tick().await;
        let Ok(mut conn) = pool.connection().await else {
            continue;
        };
        let written = conn.transaction(async |conn| {
            term.fence(conn).await?;
            note(conn, &name, &term, "written").await
        });
        if let Err(Error::Lost { .. }) = written.await {
            drop(note(&mut conn, &name, &term, "refused").await);
            return;
        }
    }
}

async fn note(
    conn: &mut AsyncPgConnection,
    name: &str,
    term: &Lease,
    outcome: &str,
) -> Result<(), Error> {
    let token = term.token().get();
    let write = (
        writes::leader.eq(name),
        writes::token.eq(token),
        writes::outcome.eq(outcome),
    );
    let insert = diesel::insert_into(writes::table).values(write);
    insert.execute(conn).await?;
    Ok(())
}

/// Waits until a process leads with a larger token.
async fn next_leader(
    db: &Database,
    pool: &Pool<AsyncPgConnection>,
    token: i64,
) -> Outcome<(String, i64)> {
    let nobody = format!("SELECT 'no' WHERE NOT EXISTS (SELECT FROM terms WHERE token > {token})");
    db.until_empty(LONG, "a leader", &nobody).await;
    let later = terms::table
        .filter(terms::token.gt(token))
        .order(terms::token)
        .select((terms::leader, terms::token));
    Ok(later.first(&mut pool.get().await?).await?)
}

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
