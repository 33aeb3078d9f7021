//! The page of results, written from the recorded runs: fills the tables of `docs/benchmarks.md`,
//! and draws its charts.

use crate::charts;
use crate::machine::root;
use crate::tables::{cases, instructions, jobs, queues, ratios, waits};
use serde_json::Value;
use std::error::Error;
use std::fs;

type Outcome<T> = Result<T, Box<dyn Error>>;

pub(crate) fn publish() -> Outcome<()> {
    let runs = runs()?;
    let page = root().join("docs/benchmarks.md");
    let mut text = fs::read_to_string(&page)?;
    for (name, table) in [
        ("instructions", instructions(&runs)),
        ("ratios", ratios(&runs)),
        ("cases", cases(&runs)),
        ("jobs", jobs(&runs)),
        ("queues", queues(&runs)),
        ("waits", waits(&runs)),
    ] {
        text = fill(&text, name, &table)?;
    }
    fs::write(page, text)?;
    if let Some(run) = runs.iter().rev().find(|run| !run["curves"].is_null()) {
        charts::draw(&run["curves"], &root().join("docs/plots"))?;
    }
    Ok(())
}

/// Each recorded run, the oldest first.
fn runs() -> Outcome<Vec<Value>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join("benches/runs"))? {
        files.push(entry?.path());
    }
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort();
    let read = |file| Ok(serde_json::from_str(&fs::read_to_string(file)?)?);
    files.into_iter().map(read).collect()
}

/// Replaces the table between its two comments.
fn fill(page: &str, name: &str, table: &str) -> Outcome<String> {
    let (begin, end) = (
        format!("<!-- {name}: written by `--publish` -->\n"),
        format!("<!-- end of {name} -->"),
    );
    let missing = || format!("docs/benchmarks.md has no place for `{name}`");
    let (before, rest) = page.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}\n{table}\n\n{end}{after}"))
}
