//! The diagnoses as text and as JSON.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::{Value, json};

use super::facts::Facts;
use super::{Diagnosis, Level};
use crate::json::{VERSION, pretty};
use crate::screen::{BOLD, DIM, ERROR, FRAME, KEY};
use crate::text::plural;

/// The guide's page, which has a heading for each finding.
const PAGE: &str = concat!(
    "https://docs.rs/advisory-runtime/",
    env!("CARGO_PKG_VERSION"),
    "/advisory_runtime/guide/doctor/"
);

pub(super) fn text(facts: &Facts, findings: &[Diagnosis]) -> String {
    let mut text = format!(
        "{BOLD}PostgreSQL {}, database `{}`, as role `{}`{BOLD:#}\n\n",
        facts.version, facts.database, facts.role
    );
    let mut said = BTreeSet::new();
    for finding in findings {
        let style = match finding.level {
            Level::Problem => ERROR,
            Level::Advice | Level::Unknown => FRAME,
            Level::Fine => KEY,
        };
        let (level, name, message) = (finding.level.name(), finding.name, &finding.message);
        let _ = writeln!(
            text,
            "{style}{level:8}{style:#} {BOLD}{name}{BOLD:#}  {message}"
        );
        for statement in &finding.fix {
            // One statement can correct several settings. It is shown with the first.
            if said.insert(statement) {
                let _ = writeln!(text, "         {statement}");
            } else {
                let _ = writeln!(text, "         {DIM}{statement} (as above){DIM:#}");
            }
        }
        if finding.level != Level::Fine {
            let _ = writeln!(text, "         {DIM}{PAGE}#{name}{DIM:#}");
        }
    }
    let count = |level| findings.iter().filter(|found| found.level == level).count();
    let [fine, advice, unknown] = [Level::Fine, Level::Advice, Level::Unknown].map(count);
    let problems = plural(count(Level::Problem), "problem");
    let _ = writeln!(
        text,
        "\n{fine} fine, {advice} advice, {unknown} unknown, {problems}"
    );
    text
}

pub(super) fn json(facts: &Facts, findings: &[Diagnosis]) -> String {
    let findings = findings.iter().map(|finding| {
        json!({
            "name": finding.name,
            "level": finding.level.name(),
            "message": finding.message,
            "fix": finding.fix,
            "page": format!("{PAGE}#{}", finding.name),
        })
    });
    let findings: Vec<Value> = findings.collect();
    pretty(&json!({
        "version": VERSION,
        "server_version": facts.version,
        "database": facts.database,
        "role": facts.role,
        "findings": findings,
    }))
}
