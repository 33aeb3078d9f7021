//! One worker process: it puts the database under load, and obeys the controller.
//!
//! On standard input: `go` begins the load, `hog MS` takes all connections of the pool for that
//! long, `block` makes the next bodies of a lease and of a job block the runtime, `linger` makes
//! them take as long without blocking, and `stop` ends the load until the next `go`. The end of the
//! input, for example when the controller has exited, ends the process. On standard output: `open`
//! once it can begin, then the time of the last success and the progress, and `quiet` once the load
//! has ended. The pool stays open until the process exits, so that what a broken guard leaves in it
//! shows.

use crate::absence::Absence;
use crate::assignment::Assignment;
use crate::chance::Chance;
use crate::clock::pass;
use crate::load::Load;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod,
};
use std::io::{self, BufRead, Write};
use std::process::exit;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// More of them than connections.
const TASKS: u32 = 10;
const CONNECTIONS: usize = 7;
/// Behind a pooler: few enough that no connection is opened, or closed, while others work; see
/// [`open_all`].
const POOLED_TASKS: u32 = 3;

/// Runs until the controller has exited.
pub(crate) fn run(assignment: &Assignment) -> Result<(), Box<dyn std::error::Error>> {
    let mut config = ManagerConfig::default();
    if assignment.is_pooled {
        // The other way to check a connection is a prepared statement.
        config.recycling_method = RecyclingMethod::Fast;
    }
    let manager = AsyncDieselConnectionManager::new_with_config(&assignment.url, config);
    let pool = Pool::builder(manager).max_size(CONNECTIONS).build()?;
    let load = Arc::new(Load::new(assignment.clone(), pool.clone())?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let goes = Arc::new(Notify::new());
    let (heard, stopped, handle) = (
        Arc::clone(&goes),
        Arc::clone(&load),
        runtime.handle().clone(),
    );
    let hogged = pool.clone();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            match line.split_once(' ') {
                None if line == "go" => {
                    stopped.resume();
                    heard.notify_one();
                }
                Some(("hog", time)) => {
                    let time = Duration::from_millis(time.parse().unwrap_or(0));
                    handle.spawn(hog(hogged.clone(), time));
                }
                None if line == "block" => stopped.make_absent(Absence::Blocks),
                None if line == "linger" => stopped.make_absent(Absence::Lingers),
                _ => stopped.stop(),
            }
        }
        exit(0);
    });
    runtime.block_on(async {
        if assignment.is_pooled {
            open_all(&pool).await;
        }
        say("open");
        for round in 0.. {
            goes.notified().await;
            work(&load, assignment, round).await;
            say("quiet");
        }
    });
    Ok(())
}

/// Opens all connections before any work starts. diesel-async sets up a connection with prepared
/// statements, which it sends without waiting in between. If that fails, or the connection is
/// closed soon after, pgbouncer before 1.21 gives the backend to another client while answers are
/// still outstanding, and that client reads them as its own.
async fn open_all(pool: &Pool<AsyncPgConnection>) {
    let mut connections = Vec::new();
    while connections.len() < CONNECTIONS {
        connections.extend(pool.get().await.ok());
    }
}

/// Takes every connection, and gives them back after a while.
async fn hog(pool: Pool<AsyncPgConnection>, time: Duration) {
    let mut connections = Vec::new();
    let taken = timeout(time, async {
        for _ in 0..CONNECTIONS {
            connections.extend(pool.get().await.ok());
        }
        pass(time).await;
    });
    drop(taken.await);
}

async fn work(load: &Arc<Load>, assignment: &Assignment, round: u64) {
    let mut tasks = JoinSet::new();
    for number in 0..if assignment.is_pooled {
        POOLED_TASKS
    } else {
        TASKS
    } {
        let task = (u64::from(number) << 40) ^ (round << 48);
        let seed = assignment.seed ^ task ^ assignment.number.cast_unsigned();
        let load = Arc::clone(load);
        tasks.spawn(async move { load.task(Chance(seed)).await });
    }
    let leader = Arc::clone(load);
    tasks.spawn(async move { Box::pin(leader.lead()).await });
    let migrator = Arc::clone(load);
    tasks.spawn(async move { Box::pin(migrator.migrate()).await });
    let worker = Arc::clone(load);
    let seed = assignment.seed ^ (round << 48) ^ assignment.number.cast_unsigned();
    tasks.spawn(async move { Box::pin(worker.jobs(Chance(!seed))).await });
    let mut ended = tokio::spawn(async move {
        while let Some(ended) = tasks.join_next().await {
            if ended.is_err() {
                // A panic, which the controller detects by the end of the process.
                exit(1);
            }
        }
    });
    let between = Duration::from_millis(20);
    while timeout(between, &mut ended).await.is_err() {
        say_progress(load);
    }
    say_progress(load);
}

fn say_progress(load: &Load) {
    let (success, progress) = load.progress();
    say(&format!("{success} {progress}"));
}

fn say(line: &str) {
    let mut stdout = io::stdout().lock();
    let said = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    if said.is_err() {
        // The controller has stopped reading.
        exit(1);
    }
}
