//! The race shows what the README says it does.

use std::process::Output;

fn booking_race(flags: &[&str]) -> Output {
    crate::run("booking_race", flags)
}

fn number(json: &serde_json::Value, run: &str, name: &str) -> i64 {
    json[run][name]
        .as_i64()
        .unwrap_or_else(|| panic!("no number {run}.{name} in {json}"))
}

#[test]
fn the_lock_ends_double_bookings() {
    let output = booking_race(&["--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let json = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(number(&json, "without", "double_bookings") > 0);
    assert!(number(&json, "without", "bookings") > 20);
    assert_eq!(number(&json, "with", "double_bookings"), 0);
    assert_eq!(number(&json, "with", "bookings"), 20);
    assert!(number(&json, "with", "waits") > 0);
    assert!(json["with"]["seconds"].is_f64() && json["without"]["seconds"].is_f64());
}

#[test]
fn the_table_has_a_line_for_each_run() {
    let output = booking_race(&["--clients", "40", "--slots=4"]);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(
        table.starts_with("40 clients, 4 slots, 20 connections\n"),
        "{table}"
    );
    for name in ["without the lock", "with the lock"] {
        assert_eq!(table.matches(&format!("\n{name} ")).count(), 1, "{table}");
    }
}

#[test]
fn the_error_for_a_wrong_flag_says_what_to_write() {
    for (flags, message) in [
        (
            &["--clients", "0"],
            "--clients 0: expected a number from 2 to 10000",
        ),
        (
            &["--pool", "many"],
            "--pool many: expected a number from 2 to 250",
        ),
        (
            &["--slots", "0"],
            "--slots 0: expected a number from 1 to 10000",
        ),
        (&["--color", "red"], "invalid option '--color'"),
    ] {
        let output = booking_race(flags);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(message) && said.contains("--help"), "{said}");
    }
}

#[test]
fn help_names_every_flag() {
    let output = booking_race(&["--help"]);
    let help = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    for flag in ["--clients", "--slots", "--pool", "--json"] {
        assert!(help.contains(flag), "{help}");
    }
}

/// The README shows the example's own table, so that both stay the same.
#[test]
fn the_readme_shows_what_the_race_prints() {
    let readme = include_str!("../../../README.md");
    let output = booking_race(&[]);
    let table = String::from_utf8_lossy(&output.stdout);
    let words = |text: &str| {
        let is_word = |word: &&str| !word.starts_with(|c: char| c.is_ascii_digit());
        let words = text.split_whitespace().filter(is_word);
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let shown = readme
        .split("```text\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("the README's table");
    assert_eq!(words(shown), words(&table));
}
