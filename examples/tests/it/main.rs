//! The examples run, and print what they promise. There is one module per example.
//!
//! There is one binary, because each must be linked; `cargo test` has built the examples next to
//! it. All of them share one server, because starting one takes longer than an example.

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
mod shards;
mod sync_workers;

/// The variable with the address of the server to use.
const URL: &str = "ADVISORY_TEST_DATABASE_URL";

/// A server that ends with this program. An example gets the address of one of its databases, and
/// creates others there.
static SERVER: LazyLock<(Database, Runtime)> = LazyLock::new(|| {
    let runtime = Runtime::new().expect("a runtime");
    (runtime.block_on(Database::create()), runtime)
});

/// Runs an example until it exits.
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

/// Runs an example that must succeed, and returns its output.
fn printed_by(example: &str, flags: &[&str]) -> String {
    let output = run(example, flags);
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{said}");
    printed
}

/// The rest of the only line that begins like this.
fn line<'p>(printed: &'p str, begin: &str) -> &'p str {
    let mut lines = printed.lines().filter_map(|line| line.strip_prefix(begin));
    match (lines.next(), lines.next()) {
        (Some(line), None) => line.trim(),
        found => panic!("one line `{begin}`, and not {found:?} in\n{printed}"),
    }
}

/// The whole numbers of that line.
fn figures<const N: usize>(printed: &str, begin: &str) -> [i64; N] {
    let words = line(printed, begin).split_whitespace();
    let figures: Vec<i64> = words.filter_map(|word| word.parse().ok()).collect();
    figures.try_into().expect("as many as expected")
}
