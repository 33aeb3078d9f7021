//! `cargo advisory doctor` and its findings.

use crate::programs::{Said, file, run_at};
use serde_json::Value;

pub(crate) async fn doctor(url: &str, words: &[&str]) -> Said {
    run_at(url, &[&["doctor"], words].concat()).await
}

/// The findings as JSON. The exit code is 1 if there is a problem.
pub(crate) async fn findings(url: &str, words: &[&str]) -> Vec<Value> {
    let said = doctor(url, &[words, &["--format", "json"]].concat()).await;
    assert_eq!(said.err, "");
    let value: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(value["version"], 1);
    let findings = value["findings"].as_array().unwrap().clone();
    let has_problem = findings.iter().any(|found| found["level"] == "problem");
    assert_eq!(said.code, Some(has_problem.into()), "{findings:#?}");
    findings
}

/// The problems, except for the age of the server.
pub(crate) fn problems(findings: &[Value]) -> Vec<&str> {
    let problems = findings.iter().filter(|found| found["level"] == "problem");
    let names = problems.map(|found| found["name"].as_str().unwrap());
    names.filter(|name| *name != "server_version").collect()
}

pub(crate) fn found<'f>(findings: &'f [Value], name: &str) -> &'f Value {
    findings
        .iter()
        .find(|found| found["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {findings:#?}"))
}

pub(crate) fn level<'f>(findings: &'f [Value], name: &str) -> &'f str {
    found(findings, name)["level"].as_str().unwrap()
}

pub(crate) fn message<'f>(findings: &'f [Value], name: &str) -> &'f str {
    found(findings, name)["message"].as_str().unwrap()
}

/// The statements of a finding that are SQL.
pub(crate) fn fix(findings: &[Value], name: &str) -> Vec<String> {
    let fix = found(findings, name)["fix"].as_array().unwrap().iter();
    let fix = fix.map(|statement| statement.as_str().unwrap().to_owned());
    fix.filter(|statement| statement.ends_with(';')).collect()
}

/// A queue of the program, as its record says.
pub(crate) fn job_program(table: &str, per: Option<&str>) -> String {
    let column = |name: &str| (name.to_owned(), name.to_owned());
    let names = [
        "locked_until",
        "locked_by",
        "completed_at",
        "failed_at",
        "error_message",
        "run_at",
        "attempts",
    ];
    let record = advisory_pattern::ClaimRecord {
        table: table.to_owned(),
        columns: names
            .into_iter()
            .map(column)
            .chain(per.map(|per| ("per".to_owned(), per.to_owned())))
            .collect(),
        key: vec!["id".to_owned()],
        module: "post".to_owned(),
        row: "Mail".to_owned(),
        krate: "post".to_owned(),
        ..Default::default()
    };
    file(
        &format!("doctor-{table}.rmeta"),
        format!("rust{}", record.encode()),
    )
}
