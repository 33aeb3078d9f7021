//! Do the examples run, and print what they promise? A module an example.
//!
//! One binary, because each is a link; the programs are those that `cargo test` built beside it.

use std::env;
use std::process::{Command, Output};

mod account_cleanup;
mod balance_payment;
mod booking_race;
mod cleanup_scheduler;
mod fenced_report;
mod generate_events;
mod hot_key;
mod sync_workers;

/// Runs an example to its end.
fn run(example: &str, flags: &[&str]) -> Output {
    let test = env::current_exe().expect("this program");
    let build = test.ancestors().nth(2).expect("the build's folder");
    let program = build.join("examples").join(example);
    Command::new(program)
        .args(flags)
        .output()
        .expect("`cargo test` without `--test` builds the examples of its package")
}

/// Runs an example that has to succeed: what it printed.
fn printed_by(example: &str) -> String {
    let output = run(example, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{said}");
    printed
}

/// The line that begins so, and there is one of: what stands behind.
fn line<'p>(printed: &'p str, begin: &str) -> &'p str {
    let mut lines = printed.lines().filter_map(|line| line.strip_prefix(begin));
    match (lines.next(), lines.next()) {
        (Some(line), None) => line.trim(),
        found => panic!("one line `{begin}`, and not {found:?} in\n{printed}"),
    }
}
