//! Ten processes start at once against an empty database. One runs the migrations, and nine wait
//! and then continue. Then the same again, and the one that runs them is killed halfway: another
//! finishes.
//!
//! `cargo run --example migrate` starts a PostgreSQL of its own, or uses
//! `ADVISORY_TEST_DATABASE_URL`; the processes are this program too. Look at `migrate`; `main`
//! starts the processes and shows a bar for each.

#![allow(clippy::print_stdout, reason = "the outcome is run to be read")]
#![allow(missing_docs, reason = "nothing in a program is public")]

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use advisory_runtime::migrations::{Migrator, Step};
use advisory_tests::Database;
use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!();
const MIGRATIONS_HERE: u64 = 4;
const PROCESSES: usize = 10;

/// The variables that tell a process the address of the database, and its name there.
const URL: &str = "MIGRATE_DATABASE_URL";
const NAME: &str = "MIGRATE_NAME";

/// The start of a service.
async fn migrate(url: &str) -> Outcome<()> {
    let mut done = 0;
    let report = Migrator::new(MIGRATIONS).on_step(move |step| {
        done += u64::from(matches!(step, Step::Done { .. }));
        println!("{done} {step}");
    });
    let report = report.run(url).await?;
    println!("0 applied {}, and goes on", report.applied.len());
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    if let (Ok(url), Ok(name)) = (env::var(URL), env::var(NAME)) {
        return migrate(&named(&url, &name)).await;
    }
    println!("{PROCESSES} processes start at once, with an empty database:");
    start(false).await?;
    println!("\nThe same again, and the one that migrates is killed:");
    start(true).await
}

/// Starts the processes, shows what they do, and prints the result.
async fn start(kills: bool) -> Outcome<()> {
    let db = Database::try_create().await?;
    let bars = MultiProgress::new();
    let (tell, told) = channel();
    let mut processes = Vec::new();
    for number in 0..PROCESSES {
        processes.push(Process::start(number, db.url(), &bars, tell.clone())?);
    }
    drop(tell);
    let outcome = watch(&mut processes, &told, kills)?;
    for process in &mut processes {
        process.child.wait()?;
        process.bar.abandon();
    }
    let Outcomes {
        migrated,
        waited,
        went_on,
    } = outcome;
    for name in migrated {
        println!("  {name}");
    }
    println!("  processes that waited for another: {waited}");
    println!("  processes that go on: {went_on}");
    let twice = "SELECT count(*) - count(DISTINCT migration) FROM history";
    println!("  migrations that ran twice: {}", db.count(twice).await);
    let applied = "SELECT count(*) FROM __diesel_schema_migrations";
    println!("  migrations that are applied: {}", db.count(applied).await);
    Ok(())
}

#[derive(Default)]
struct Outcomes {
    migrated: Vec<String>,
    waited: usize,
    went_on: usize,
}

/// Reads the output of the processes until they have ended, and kills the first one that runs its
/// second migration.
fn watch(processes: &mut [Process], told: &Receiver<Line>, mut kills: bool) -> Outcome<Outcomes> {
    let mut outcomes = Outcomes::default();
    let mut waiting = [false; PROCESSES];
    for Line { number, done, text } in told {
        let process = &mut processes[number];
        process.bar.set_position(done);
        process.bar.set_message(text.clone());
        if text.starts_with("waiting") {
            waiting[number] = true;
        }
        if let Some(applied) = text.strip_prefix("applied ") {
            outcomes.went_on += 1;
            process.bar.set_position(MIGRATIONS_HERE);
            if !applied.starts_with('0') {
                outcomes.migrated.push(format!("{}: {text}", process.name));
            }
        }
        if kills && text.starts_with("running") && done == 1 {
            kills = false;
            process.child.kill()?;
            process.bar.set_message("killed");
            outcomes
                .migrated
                .push(format!("{}: {text}, and is killed", process.name));
        }
    }
    outcomes.waited = waiting.iter().filter(|waited| **waited).count();
    Ok(outcomes)
}

/// Killed when it is dropped.
struct Process {
    name: String,
    child: Child,
    bar: ProgressBar,
}

/// What a process prints: how many migrations it has applied, and its step.
struct Line {
    number: usize,
    done: u64,
    text: String,
}

impl Process {
    fn start(number: usize, url: &str, bars: &MultiProgress, tell: Sender<Line>) -> Outcome<Self> {
        let name = format!("booking-service-{number}");
        let mut command = Command::new(env::current_exe()?);
        let command = command.env(NAME, &name).env(URL, url);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let style = ProgressStyle::with_template("{prefix:20} {bar:12} {pos}/{len}  {msg}")?;
        let bar = bars
            .add(ProgressBar::new(MIGRATIONS_HERE))
            .with_prefix(name.clone());
        let bar = bar.with_style(style);
        if let Some(printed) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(printed).lines().map_while(Result::ok) {
                    let Some((done, text)) = line.split_once(' ') else {
                        continue;
                    };
                    let (done, text) = (done.parse().unwrap_or(0), text.to_owned());
                    drop(tell.send(Line { number, done, text }));
                }
            });
        }
        Ok(Self { name, child, bar })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The address with the name that waiting processes show.
fn named(url: &str, name: &str) -> String {
    match (url.contains("://"), url.contains('?')) {
        (false, _) => format!("{url} application_name={name}"),
        (true, false) => format!("{url}?application_name={name}"),
        (true, true) => format!("{url}&application_name={name}"),
    }
}

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
