//! The stress test: each slot is booked once, each lease has one holder and each job is done once,
//! while faults are injected.
//!
//! `cargo run --release -p advisory-stress` starts a server of its own and several processes that
//! contend for slots, leases and jobs (`worker_pool`, `worker`, `load`, `critical_section`,
//! `leased_work`, `job`, `migration`), applies a fault repeatedly (`fault`) until the run has made
//! enough progress (`run`, `progress`), and then checks (`checker`) what the clients (`history`)
//! and the database (`schema`) have recorded. With `--bug` a known bug replaces our lock (`buggy`),
//! and the checker has to find it. `docs/stress.md` says what this shows, and what it does not.

#![allow(clippy::print_stdout, reason = "the table is the point")]

mod absence;
mod assignment;
mod bug;
mod buggy;
mod chance;
mod checker;
mod clock;
mod cluster;
mod connection;
mod critical_section;
mod fault;
mod figures;
mod flags;
mod history;
mod job;
mod leased_work;
mod load;
mod migration;
mod named;
mod operation_kind;
mod outcome;
mod progress;
mod records;
mod report;
mod run;
mod schema;
mod server;
mod violation;
mod worker;
mod worker_pool;

use crate::assignment::Assignment;
use crate::connection::Failure;
use crate::figures::Figures;
use crate::flags::Flags;
use crate::run::Plan;
use crate::server::Server;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    if let Some(assignment) = Assignment::of_this_process() {
        return match worker::run(&assignment) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("advisory-stress: a worker: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let flags = match Flags::parse() {
        Ok(Some(flags)) => flags,
        Ok(None) => {
            print!("{}", Flags::help());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("advisory-stress: {error}\nsee `cargo run -p advisory-stress -- --help`");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let all = match runtime {
        Ok(runtime) => runtime.block_on(all(&flags)),
        Err(error) => Err(error.into()),
    };
    match all {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("advisory-stress: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A folder for the histories. Dropping this removes it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // It is a temporary folder, so leftovers do no harm.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Runs every fault, and returns whether the results are as expected.
async fn all(flags: &Flags) -> Result<bool, Failure> {
    let folder = format!("advisory-stress-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(folder));
    fs::create_dir(&folder.0)?;
    let server = Server::start().await;
    let (faults, bugs): (Vec<_>, Vec<_>) = flags.runs.iter().partition(|(_, bug)| bug.is_none());
    let runs = u64::try_from(faults.len().max(1))?;
    let plan = Plan {
        operations: i64::try_from(flags.operations.div_ceil(runs))?,
        within: Duration::from_secs(flags.within),
        workers: usize::try_from(flags.workers)?,
        hold: Duration::from_millis(flags.hold),
        seed: flags.seed,
    };
    let mut all: Vec<Figures> = Vec::new();
    for (head, runs) in [(report::FAULTS, faults), (report::BUGS, bugs)] {
        if runs.is_empty() {
            continue;
        }
        println!("{head}");
        for (fault, bug) in &runs {
            let figures = run::run(&server, *fault, *bug, &plan, &folder.0).await?;
            println!("{}", report::line(&figures));
            all.push(figures);
        }
        if runs.iter().all(|(_, bug)| bug.is_none()) {
            println!("\n{}\n\n{}\n", report::kinds(&all), report::total(&all));
        }
    }
    if let Some(file) = &flags.json {
        let runs: Vec<_> = all.iter().map(Figures::json).collect();
        fs::write(file, format!("{:#}\n", json!({"runs": runs})))?;
    }
    let mut made = all.iter().filter(|figures| figures.left_out.is_none());
    // With a bug, finding it is the expected result.
    Ok(made.all(|figures| match figures.bug {
        None => figures.violations.is_empty(),
        Some(bug) => figures.broken(bug.rule()) > 0,
    }))
}
