//! Ours beside the rivals: `cargo run --release -p advisory-benches -- [--rounds N] [--json FILE]`.
//!
//! One run on one server that it starts itself. Each case is measured in pairs, ours and then the rival, round after round; what is
//! printed is the median of the pairs' ratios, with the lowest and the highest in brackets. Client and server are pinned to one
//! processor, where `taskset` is there: unpinned, the kernel's choice of a processor is a difference of three times.
#![allow(clippy::print_stdout, reason = "the table is the point")]

mod case;
mod claims;
mod flags;
mod leases;
mod pinned;
mod two_tables;
mod xact;

use advisory_tests::Database;
use case::Case;
use flags::Flags;
use std::error::Error;
use std::fs;

fn main() -> Result<(), Box<dyn Error>> {
    let flags = Flags::parse()?;
    if let Some(status) = pinned::again()? {
        std::process::exit(status);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let cases = runtime.block_on(run(&flags))?;
    if let Some(file) = &flags.json {
        let cases: Vec<_> = cases.iter().map(Case::json).collect();
        let text = serde_json::to_string_pretty(&serde_json::json!({ "cases": cases }))?;
        fs::write(file, text + "\n")?;
    }
    Ok(())
}

async fn run(flags: &Flags) -> Result<Vec<Case>, Box<dyn Error>> {
    let db = Database::try_create().await?;
    println!("{}", Case::HEAD);
    let mut cases = Vec::new();
    for is_durable in [false, true] {
        // What it is for a program whose server is its own: the harness turns it off, for its server is gone at the end.
        let fsync = if is_durable { "on" } else { "off" };
        db.run(&format!("ALTER SYSTEM SET fsync = {fsync}")).await;
        db.run("SELECT pg_reload_conf()").await;
        for connections in [1, 16] {
            let case = leases::run(&db, connections, fsync, flags.rounds).await?;
            println!("{case}");
            cases.push(case);
        }
    }
    db.run("ALTER SYSTEM SET fsync = off").await;
    db.run("SELECT pg_reload_conf()").await;
    for case in xact::run(&db, flags.rounds).await? {
        println!("{case}");
        cases.push(case);
    }
    let (case, median) = claims::run(&db, flags.rounds).await?;
    println!("{case}\n\none claim from 1M rows: {median:.0?} (median)");
    cases.push(case);
    Ok(cases)
}
