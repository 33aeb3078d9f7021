//! Does the committed document still say what the program holds?
//!
//! A lock that is only some lines further down is the same lock: line numbers may be old, or every edit would fail a build.

use std::fs;
use std::path::Path;

use advisory_pattern::Record;

use crate::failure::Failure;
use crate::finding::{Finding, Place};
use crate::inventory::{Inventory, path};
use crate::{json, markdown};

/// Compares the document with what `dump` would write; the form is told from the text.
pub(crate) fn check(
    inventory: &Inventory,
    file: &Path,
    rendered: u64,
) -> Result<Vec<Finding>, Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::unread(file, error))?;
    if text.trim_start().starts_with('{') {
        let committed = json::read(file, &text)?;
        return Ok(sites(inventory, &committed, file));
    }
    Ok(lines(&markdown::write(inventory, rendered), &text, file)
        .into_iter()
        .collect())
}

fn sites(inventory: &Inventory, committed: &Inventory, file: &Path) -> Vec<Finding> {
    let lasting = |site: &Record| Record {
        line: 0,
        version: String::new(),
        ..site.clone()
    };
    let missing = |from: &Inventory, site: &Record| {
        !from
            .sites
            .iter()
            .any(|other| lasting(other) == lasting(site))
    };
    let help = help(file, "json");
    let mut findings = Vec::new();
    for site in inventory
        .sites
        .iter()
        .filter(|site| missing(committed, site))
    {
        findings.push(Finding {
            kind: "drift",
            message: format!(
                "`{}` does not have this lock site: {}",
                file.display(),
                path(site)
            ),
            places: vec![Place::site(site, None, "")],
            notes: Vec::new(),
            help: help.clone(),
        });
    }
    for site in committed
        .sites
        .iter()
        .filter(|site| missing(inventory, site))
    {
        findings.push(Finding {
            kind: "drift",
            message: format!("the program does not have this lock site: {}", path(site)),
            places: vec![Place::site(site, Some(file), "")],
            notes: Vec::new(),
            help: help.clone(),
        });
    }
    findings
}

/// One finding for the whole document, with the lines that differ.
fn lines(wanted: &str, text: &str, file: &Path) -> Option<Finding> {
    let lasting = |line: &str| without_line(line.trim_end());
    let wanted_set: Vec<String> = wanted.lines().map(lasting).collect();
    let text_set: Vec<String> = text.lines().map(lasting).collect();
    if wanted_set == text_set {
        return None;
    }
    let mut notes = Vec::new();
    let mut first = None;
    for (at, line) in text.lines().enumerate() {
        if !wanted_set.contains(&text_set[at]) {
            first.get_or_insert(at + 1);
            notes.push(format!("- {}", shown(line)));
        }
    }
    for (at, line) in wanted.lines().enumerate() {
        if !text_set.contains(&wanted_set[at]) {
            notes.push(format!("+ {}", shown(line)));
        }
    }
    if notes.is_empty() {
        notes.push("the lines are the same, in another order or number".to_owned());
    }
    Some(Finding {
        kind: "drift",
        message: format!("`{}` is not what the program holds", file.display()),
        places: vec![Place::line(file, first.unwrap_or(1))],
        notes,
        help: help(file, "markdown"),
    })
}

fn help(file: &Path, format: &str) -> String {
    format!(
        "write it anew with the same selection: `cargo advisory dump --format {format} -o {}`",
        file.display()
    )
}

/// A committed file can hold anything; a terminal should not.
fn shown(line: &str) -> String {
    line.replace(char::is_control, " ")
}

/// Takes the line number out of a table's row: what stands last, in backticks, behind a colon.
fn without_line(row: &str) -> String {
    let place = row.strip_suffix("` |").and_then(|row| row.rsplit_once(':'));
    match place {
        Some((file, line)) if !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()) => {
            format!("{file}` |")
        }
        _ => row.to_owned(),
    }
}
