//! Several processes sync the chunks of a matrix, one of them is killed, and another takes over its
//! chunk.
//!
//! `cargo run --example sync_workers` starts a PostgreSQL of its own, or uses
//! `ADVISORY_TEST_DATABASE_URL`; the workers are this program too. Look at `worker`; this file
//! starts the workers, kills one, and counts.

#![allow(clippy::print_stdout, reason = "the outcome is run to be read")]
#![allow(missing_docs, reason = "nothing in a program is public")]

use std::env;
use std::error::Error;
use std::process::{Child, Command};
use std::time::Duration;

use advisory_tests::Database;
use diesel_async::SimpleAsyncConnection;

#[path = "sync_workers/worker.rs"]
mod worker;

/// The variable that tells a process that it is a worker.
const WORKER: &str = "SYNC_WORKER";
const URL: &str = "SYNC_DATABASE_URL";

const MATRIX: i64 = 7;

const SCHEMA: &str = "
    CREATE TABLE sync_checkpoints (
        matrix_id bigint,
        chunk_hash text,
        row_count bigint,
        last_synced_at timestamptz,
        locked_until timestamptz,
        locked_by text,
        PRIMARY KEY (matrix_id, chunk_hash)
    );
    CREATE TABLE source (chunk_hash text, cell bigint);
    CREATE TABLE target (chunk_hash text, cell bigint);
    INSERT INTO sync_checkpoints SELECT 7, md5(chunk::text) FROM generate_series(1, 12) AS chunk;
    INSERT INTO source SELECT chunk_hash, cell FROM sync_checkpoints, generate_series(1, 100) AS cell";

/// Records the first claims, before they are renewed.
const FIRST: &str =
    "CREATE TABLE first AS SELECT * FROM sync_checkpoints WHERE locked_until IS NOT NULL";

/// The chunks that have not been renewed since.
const NOT_RENEWED: &str = "SELECT chunk_hash FROM sync_checkpoints
    WHERE locked_until IN (SELECT locked_until FROM first)";

/// Records the claims at the moment of the kill.
const LAST: &str =
    "CREATE TABLE last AS SELECT * FROM sync_checkpoints WHERE locked_until > clock_timestamp()";

const UNSYNCED: &str = "SELECT chunk_hash FROM sync_checkpoints WHERE last_synced_at IS NULL";

/// The chunks that were synced only when the claim on them had expired.
const TAKEN_OVER: &str =
    "SELECT count(*) FROM sync_checkpoints AS now JOIN last USING (matrix_id, chunk_hash)
    WHERE now.last_synced_at >= last.locked_until";

const GENEROUS: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Outcome<()> {
    if let (Ok(name), Ok(url)) = (env::var(WORKER), env::var(URL)) {
        return Ok(worker::run(&url, &name, MATRIX).await?);
    }
    let db = Database::try_create().await?;
    db.run(SCHEMA).await;

    // The source does not answer yet, so that the first worker stays in its first chunk.
    let mut source = db.connect().await;
    source.batch_execute("BEGIN; LOCK TABLE source").await?;
    let mut first = start(&db, "worker-1")?;
    db.until_active("source").await;
    db.run(FIRST).await;
    println!("worker-1 has claimed a chunk");
    db.until_empty(GENEROUS, "a renewal", NOT_RENEWED).await;
    println!("worker-1 is at it for longer, and has renewed its claim");

    // `kill -9`: it cannot clean up.
    first.kill()?;
    first.wait()?;
    println!("worker-1 is killed");
    db.run(LAST).await;
    source.batch_execute("COMMIT").await?;

    let mut others = Vec::new();
    for name in ["worker-2", "worker-3", "worker-4"] {
        others.push(start(&db, name)?);
    }
    println!("worker-2, worker-3 and worker-4 sync what is left");
    db.until_empty(GENEROUS, "every chunk", UNSYNCED).await;
    for mut worker in others {
        if !worker.wait()?.success() {
            return Err("a worker has failed".into());
        }
    }

    let count = async |sql| db.count(sql).await;
    let chunks = count("SELECT count(*) FROM sync_checkpoints").await;
    let rows = count("SELECT count(*) FROM target").await;
    let counted = count("SELECT sum(row_count) FROM sync_checkpoints").await;
    let twice = rows - count("SELECT count(DISTINCT (chunk_hash, cell)) FROM target").await;
    println!("\n{chunks} chunks synced, {rows} rows, {counted} by the checkpoints, {twice} twice");
    let taken_over = count(TAKEN_OVER).await;
    println!("{taken_over} chunk taken over when the claim of worker-1 had expired");
    Ok(())
}

fn start(db: &Database, name: &str) -> std::io::Result<Child> {
    let mut worker = Command::new(env::current_exe()?);
    worker.env(WORKER, name).env(URL, db.url()).spawn()
}

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
