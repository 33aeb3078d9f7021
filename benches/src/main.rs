//! Benchmarks against the rivals: `cargo run --release -p advisory-benches -- --help`.
//!
//! Times are measured on servers that it starts itself. Each case is measured in pairs, ours and
//! then the rival, in rounds. The output is the median of the pairs' ratios, with its 95 % interval
//! in brackets. Client and server are pinned to one processor if `taskset` is available: without
//! that, the kernel's choice of processors changes times by a factor of three. Delays are made by a
//! forwarder in this process (`delay`), which costs both sides of a pair the same. Instructions
//! (`instructions`) do not depend on the load of the machine.
#![allow(clippy::print_stdout, reason = "the table is the point")]

mod callgrind;
mod case;
mod charts;
mod claims;
mod curves;
mod delay;
mod flags;
mod instructions;
mod jobs;
mod leases;
mod limits;
mod locked;
mod machine;
mod ours;
mod pinned;
mod pooled;
mod publish;
mod queue;
mod record;
mod rivals;
mod scale;
mod server;
mod setting;
mod shown;
mod side;
mod spread;
mod standby;
mod tables;
mod waits;
mod ways;

use advisory_tests::Database;
use case::{Case, Measured};
use flags::{Flags, Task};
use instructions::Counted;
use limits::Limits;
use serde_json::{Value, json};
use server::Server;
use std::error::Error;
use std::time::Instant;
use waits::Waits;
use ways::Way;

fn main() -> Result<(), Box<dyn Error>> {
    let flags = Flags::parse()?;
    if matches!(flags.task, Task::Clock)
        && let Some(status) = pinned::again()?
    {
        std::process::exit(status);
    }
    let runtime = if matches!(flags.task, Task::RunQueue { .. }) {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?
    } else {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
    };
    runtime.block_on(run(&flags))
}

async fn run(flags: &Flags) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    match &flags.task {
        Task::Publish => return publish::publish(),
        Task::Call { way, times, url } => {
            let way = Way::find(way).ok_or("no such way")?;
            way.call(url, *times).await;
            return Ok(());
        }
        Task::Clock => {
            let others = record::quiet(flags)?;
            let figures = clock(flags).await?;
            let busy = others.and_then(|others| others.since());
            record::keep(flags, "clock", figures, busy).await?;
        }
        Task::RunQueue { queue, words } => return queue::run_here(queue, words).await,
        Task::Queue => {
            let (figures, busy) = queue::run(flags).await?;
            record::keep(flags, "queue", figures, Some(busy)).await?;
        }
        Task::Instructions => {
            let counted = instructions::count(flags).await?;
            let counted: Vec<_> = counted.iter().map(Counted::json).collect();
            let figures = json!({ "instructions": counted });
            record::keep(flags, "instructions", figures, None).await?;
        }
    }
    println!("{:.0?} in all", start.elapsed());
    Ok(())
}

async fn clock(flags: &Flags) -> Result<Value, Box<dyn Error>> {
    if flags.only.is_none() {
        println!("This takes about seven minutes; `--only TEXT` picks the lines with this text.");
    }
    // In memory `fsync` would cost nothing.
    advisory_tests::keep_data_on_disk();
    let server = Server::start().await?;
    let db = Database::try_create().await?;
    println!("{}", Case::HEAD);
    let mut cases = Vec::new();
    let tell = &mut |measured: Measured| {
        println!("{measured}");
        cases.push(measured);
    };
    locked::run(&server, flags, tell).await;
    shown::run(&db, flags, tell).await;
    standby::run(flags, tell).await?;
    leases::run(&db, flags, tell).await?;
    if let Some(median) = claims::run(&db, flags, tell).await {
        println!("one claim from 1M rows: {median:.0?} (median)");
    }
    jobs::run(&db, flags, tell).await?;
    let limits = limits::run(&db, flags).await?;
    scale::run(&server, flags, tell).await?;
    let waits = waits::run(&server, flags, tell).await?;
    for waits in &waits {
        println!("{waits}");
    }
    let curves = if flags.wants("curves") {
        Some(curves::run(&server).await)
    } else {
        None
    };
    Ok(json!({
        "cases": cases.iter().map(Measured::json).collect::<Vec<_>>(),
        "limits": limits.iter().map(Limits::json).collect::<Vec<_>>(),
        "waits": waits.iter().map(Waits::json).collect::<Vec<_>>(),
        "curves": curves,
    }))
}
