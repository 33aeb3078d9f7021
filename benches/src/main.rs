//! Ours beside the rivals: `cargo run --release -p advisory-benches -- [--rounds N] [--only TEXT] [--json FILE] [--plots DIR]`.
//!
//! One run, on servers that it starts itself. Each case is measured in pairs, ours and then the rival, round after round; what is
//! printed is the median of the pairs' ratios, and in brackets between which two it lies with 95 %. Client and server are pinned
//! to one processor, where `taskset` is there: unpinned, the kernel's choice of a processor is a difference of three times.
//! A delay is made by a forwarder in this process (`delay`), which both sides of a pair pay for alike.
#![allow(clippy::print_stdout, reason = "the table is the point")]

mod case;
mod claims;
mod delay;
mod flags;
mod leases;
mod locked;
mod ours;
mod pinned;
mod plots;
mod pooled;
mod rivals;
mod scale;
mod server;
mod setting;
mod shown;
mod side;
mod spent;
mod spread;
mod svg;
mod waits;

use advisory_tests::Database;
use case::{Case, Measured};
use flags::Flags;
use server::Server;
use spent::Spent;
use std::error::Error;
use std::fs;
use std::time::Instant;
use waits::Waits;

fn main() -> Result<(), Box<dyn Error>> {
    let flags = Flags::parse()?;
    if let Some(status) = pinned::again()? {
        std::process::exit(status);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let measured = runtime.block_on(run(&flags))?;
    if let Some(file) = &flags.json {
        fs::write(file, format!("{measured:#}\n"))?;
    }
    Ok(())
}

async fn run(flags: &Flags) -> Result<serde_json::Value, Box<dyn Error>> {
    let start = Instant::now();
    if flags.only.is_none() {
        println!(
            "This takes about five minutes, half of it with a delay; `--only TEXT` picks the lines with this text."
        );
    }
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
    leases::run(&db, flags, tell).await?;
    if let Some(median) = claims::run(&db, flags, tell).await {
        println!("one claim from 1M rows: {median:.0?} (median)");
    }
    scale::run(&server, flags, tell).await?;
    let spent = spent::run(&server, flags).await?;
    for spent in &spent {
        println!("{spent}");
    }
    let waits = waits::run(&server, flags, tell).await?;
    for waits in &waits {
        println!("{waits}");
    }
    if let Some(folder) = &flags.plots {
        plots::draw(&server, folder).await?;
    }
    println!("{:.0?} in all", start.elapsed());
    Ok(serde_json::json!({
        "cases": cases.iter().map(Measured::json).collect::<Vec<_>>(),
        "processor_time": spent.iter().map(Spent::json).collect::<Vec<_>>(),
        "waits": waits.iter().map(Waits::json).collect::<Vec<_>>(),
    }))
}
