//! Do the examples run, and print what they promise? A module an example.
//!
//! One binary, because each is a link; the programs are those that `cargo test` built beside it. One server for all of them, for
//! each would take longer to start its own than to show what it shows.

use std::env;
use std::process::{Command, Output};
use std::sync::LazyLock;

use advisory_tests::Database;
use tokio::runtime::Runtime;

mod account_cleanup;
mod balance_payment;
mod booking_race;
mod cleanup_scheduler;
mod fenced_report;
mod generate_events;
mod guarded_table;
mod guide;
mod hot_key;
mod leader;
mod migrate;
mod quickstart;
mod race_picture;
mod sync_workers;

/// What names a server to use.
const URL: &str = "ADVISORY_TEST_DATABASE_URL";

/// A server that ends with this program: who is given one of its databases makes others there.
static SERVER: LazyLock<(Database, Runtime)> = LazyLock::new(|| {
    let runtime = Runtime::new().expect("a runtime");
    (runtime.block_on(Database::create()), runtime)
});

/// Runs an example to its end.
fn run(example: &str, flags: &[&str]) -> Output {
    let test = env::current_exe().expect("this program");
    let build = test.ancestors().nth(2).expect("the build's folder");
    let program = build.join("examples").join(example);
    let mut command = Command::new(program);
    if env::var_os(URL).is_none() {
        command.env(URL, SERVER.0.url());
    }
    command
        .args(flags)
        .output()
        .expect("`cargo test` without `--test` builds the examples of its package")
}

/// Runs an example that has to succeed: what it printed.
fn printed_by(example: &str, flags: &[&str]) -> String {
    let output = run(example, flags);
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{said}");
    printed
}

/// What follows in the only line that begins like this.
fn line<'p>(printed: &'p str, begin: &str) -> &'p str {
    let mut lines = printed.lines().filter_map(|line| line.strip_prefix(begin));
    match (lines.next(), lines.next()) {
        (Some(line), None) => line.trim(),
        found => panic!("one line `{begin}`, and not {found:?} in\n{printed}"),
    }
}
