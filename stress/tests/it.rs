//! A short stress test: no fault breaks a rule, and each known bug breaks the rule that it is known
//! for.

use serde_json::Value;
use std::fs;
use std::process::Command;

/// Runs the stress test with these flags: whether it succeeded, and what it printed.
fn run(name: &str, flags: &[&str]) -> (Vec<Value>, bool, String) {
    let file = format!("{name}-{}.json", std::process::id());
    let file = std::env::temp_dir().join(file);
    let output = Command::new(env!("CARGO_BIN_EXE_advisory-stress"))
        .args(["--workers", "2", "--hold", "250", "--json"])
        .arg(&file)
        .args(flags)
        .output()
        .expect("`cargo test` builds the program of its package");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    eprintln!("{said}{errors}");
    let figures = fs::read(&file).unwrap_or_else(|error| panic!("{error}: {errors}"));
    fs::remove_file(&file).expect("the file that was read");
    let mut figures: Value = serde_json::from_slice(&figures).expect("one JSON object");
    let Value::Array(runs) = figures["runs"].take() else {
        panic!("no runs: {figures}");
    };
    (runs, output.status.success(), said)
}

/// All but `block-runtime`: docs/stress.md has what it shows with the short ttl of this program.
const FAULTS: [&str; 18] = [
    "calm",
    "kill-client",
    "stop-client",
    "terminate-backends",
    "restart-fast",
    "restart-immediate",
    "drop-packets",
    "cut-connections",
    "vanish",
    "pgbouncer",
    "lock-table-full",
    "pool-exhausted",
    "commit-held-up",
    "failover",
    "alter-type",
    "long-text",
    "stall-connections",
    "abort-job",
];

#[test]
fn each_fault_of_the_program_is_tested_here() {
    let output = Command::new(env!("CARGO_BIN_EXE_advisory-stress"))
        .arg("--help")
        .output()
        .expect("`cargo test` builds the program of its package");
    let help = String::from_utf8_lossy(&output.stdout);
    let faults = help.lines().find_map(|line| line.strip_prefix("Faults: "));
    let faults = faults.expect("a list").split(", ");
    let faults: Vec<_> = faults.filter(|fault| *fault != "block-runtime").collect();
    assert_eq!(faults, FAULTS);
}

#[test]
fn no_rule_is_broken_whatever_fails() {
    let mut flags = vec!["--operations", "7200"];
    for fault in FAULTS {
        flags.extend(["--only", fault]);
    }
    let (runs, is_sound, _) = run("faults", &flags);
    assert!(is_sound, "a rule was broken, or a run failed");
    assert_eq!(runs.len(), FAULTS.len());
    for run in &runs {
        if let Some(why) = run["left_out"].as_str() {
            let needed = match run["fault"].as_str() {
                Some("failover") => "pg_rewind",
                _ => "pgbouncer",
            };
            advisory_tests::left_out(needed, why);
            continue;
        }
        for (rule, broken) in run["violations"].as_object().unwrap() {
            assert_eq!(broken, 0, "{rule}: {run:#}");
        }
        // A run continues until it has shown this much.
        assert!(run["operations"].as_u64().unwrap() >= 400, "{run:#}");
        assert!(run["confirmed"].as_u64().unwrap() >= 10, "{run:#}");
        assert!(run["taken"].as_u64().unwrap() >= 10, "{run:#}");
        let injected = run["injected"].as_u64().unwrap();
        assert!(injected >= 2 || run["fault"] == "calm", "{run:#}");
        assert!(run["recovery_micros"]["longest"].is_u64(), "{run:#}");
        for (kind, counts) in run["kinds"].as_object().unwrap() {
            // Behind a pooler in transaction mode only this works.
            let is_here = run["fault"] != "pgbouncer"
                || ["wait", "never", "bounded", "poll"].contains(&kind.as_str());
            let granted = counts["granted"].as_u64().unwrap();
            assert!(granted >= 2 || !is_here, "{kind}: {run:#}");
        }
    }
}

#[test]
fn each_known_bug_breaks_its_rule() {
    let bugs = [
        ("lock-out", "too many holders"),
        ("unlock-before-commit", "doubled"),
        ("one-statement", "doubled"),
        ("poll-in-snapshot", "doubled"),
        ("counted-permits", "too many holders"),
        ("early-return", "left"),
        ("guard-off", "ghost"),
        ("swallowed-error", "lost"),
        ("now", "too many holders"),
        ("swept-token", "token"),
        ("completed-apart", "doubled"),
        ("unfenced-leader", "token"),
        ("unlocked-migrations", "doubled"),
        ("counted-limit", "too many holders"),
        ("late-completion", "doubled"),
        ("uncounted-attempt", "attempts"),
        ("endless-claim", "starved"),
        ("task-renewal", "expired"),
        ("one-connection", "expired"),
        ("kept-plan", "starved"),
        ("refused-text", "expired"),
        ("same-neighbours", "failed"),
    ];
    let (runs, are_found, _) = run("bugs", &["--bug", "all"]);
    assert_eq!(runs.len(), bugs.len());
    for ((bug, rule), run) in bugs.into_iter().zip(&runs) {
        assert_eq!(run["bug"], *bug);
        assert!(run["violations"][rule].as_u64().unwrap() > 0, "{run:#}");
    }
    assert!(are_found);
}

#[test]
fn an_incomplete_run_fails_and_says_what_is_missing() {
    let flags = ["--only", "kill-client", "--within", "0"];
    let (runs, is_sound, said) = run("little", &flags);
    assert!(!is_sound);
    assert_eq!(runs[0]["violations"]["incomplete"], 1, "{runs:#?}");
    let what = "incomplete: after 0 s: operations: ";
    assert!(said.contains(what), "{said}");
    assert!(said.contains("faults: 0 of 2"), "{said}");
    assert!(said.contains("migrate: "), "{said}");
}
