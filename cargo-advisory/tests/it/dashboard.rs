//! The dashboard for Grafana is an object with panels that query something.
//! `tests/tests/it/alerts.rs` compares the queries.

use std::process::Command;

use crate::programs::assert_has;
use advisory_tests::left_out;
use serde_json::Value;

/// With Prometheus's own tool, if it is installed.
#[test]
fn promtool_accepts_the_alert_rules_and_their_tests() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
    for words in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        let mut promtool = Command::new("promtool");
        let Ok(said) = promtool.args(words).current_dir(docs).output() else {
            return left_out("promtool", "it is not installed");
        };
        let (out, err) = (
            String::from_utf8_lossy(&said.stdout),
            String::from_utf8_lossy(&said.stderr),
        );
        assert!(said.status.success(), "{out}{err}");
    }
}

#[test]
fn each_panel_of_the_dashboard_has_expressions_that_are_whole() {
    let board: Value = serde_json::from_str(include_str!("../../../docs/dashboard.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let mut ids: Vec<_> = panels
        .iter()
        .map(|panel| panel["id"].as_u64().unwrap())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels.len());
    let variables = board["templating"]["list"].as_array().unwrap();
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            let count = |letter: char| expression.matches(letter).count();
            assert_eq!(count('('), count(')'), "{expression}");
            assert_eq!(count('{'), count('}'), "{expression}");
            assert_has(&expression, "advisory_");
            let own = expression.replace("$__rate_interval", "");
            for name in own.split('$').skip(1) {
                let end = name.find(|c: char| !c.is_ascii_alphanumeric());
                let name = &name[..end.unwrap_or(name.len())];
                let is_there = variables.iter().any(|variable| variable["name"] == name);
                assert!(is_there, "{name}: {expression}");
            }
        }
    }
}
