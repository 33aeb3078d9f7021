//! Compares the committed registry document with the program.
//!
//! Line numbers are not compared, because every edit would fail a build.

use std::fs;
use std::path::Path;

use advisory_pattern::{ClaimRecord, Record};
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::finding::{Finding, Place};
use crate::inventory::{Inventory, claim_path, path};
use crate::text::printable;
use crate::{json, markdown};

/// Compares the document, which is JSON or Markdown, with what `dump` would write.
pub(crate) fn compare(inventory: &Inventory, file: &Path, key_count: u64) -> Result<Vec<Finding>> {
    let text = fs::read_to_string(file).map_err(|error| Failure::unread(file, error))?;
    if text.trim_start().starts_with('{') {
        let committed = json::read(file, &text)?;
        let mut findings = SITES.compare(&inventory.sites, &committed.sites, file);
        findings.extend(CLAIMS.compare(&inventory.claims, &committed.claims, file));
        return Ok(findings);
    }
    let wanted = markdown::write(inventory, key_count);
    Ok(compare_lines(&wanted, &text, file).into_iter().collect())
}

/// A kind of record of an inventory.
pub(crate) struct Kind<R> {
    name: &'static str,
    path: fn(&R) -> String,
    place: fn(&R, Option<&Path>) -> Place,
    json: fn(&R) -> Value,
}

pub(crate) const SITES: Kind<Record> = Kind {
    name: "lock site",
    path,
    place: |site, from| Place::site(site, from, ""),
    json: json::site,
};

const CLAIMS: Kind<ClaimRecord> = Kind {
    name: "claim",
    path: claim_path,
    place: Place::claim,
    json: json::claim,
};

impl<R> Kind<R> {
    pub(crate) fn compare(&self, program: &[R], committed: &[R], file: &Path) -> Vec<Finding> {
        let (name, shown) = (self.name, file.display());
        let finding = |message, place, notes| Finding {
            kind: "drift",
            message,
            places: vec![place],
            notes,
            help: help(file, "json"),
        };
        let mut old = self.unmatched(committed, program);
        let mut findings = Vec::new();
        for (record, now) in self.unmatched(program, committed) {
            let path = (self.path)(record);
            let at = old.iter().position(|(other, _)| (self.path)(other) == path);
            let (message, notes) = match at.map(|at| old.remove(at)) {
                None => (format!("`{shown}` lacks the {name} {path}"), Vec::new()),
                Some((_, before)) => {
                    let message = format!("the {name} {path} has changed since `{shown}`");
                    (message, changes(&before, &now))
                }
            };
            findings.push(finding(message, (self.place)(record, None), notes));
        }
        findings.extend(old.into_iter().map(|(record, _)| {
            let message = format!("the program lacks the {name} {}", (self.path)(record));
            finding(message, (self.place)(record, Some(file)), Vec::new())
        }));
        findings
    }

    /// The records that the others lack, each with its JSON. Each record is matched with one other,
    /// because methods of several types can be equal sites.
    fn unmatched<'r>(&self, records: &'r [R], others: &[R]) -> Vec<(&'r R, Value)> {
        let json = |record| {
            let mut json = (self.json)(record);
            (json["line"], json["crate_version"]) = (Value::Null, Value::Null);
            json
        };
        let mut others: Vec<Value> = others.iter().map(json).collect();
        let mut records: Vec<_> = records.iter().map(|it| (it, json(it))).collect();
        records.retain(|(_, json)| {
            let same = others.iter().position(|other| other == json);
            same.map(|at| others.swap_remove(at)).is_none()
        });
        records
    }
}

fn changes(old: &Value, new: &Value) -> Vec<String> {
    let members = new.as_object().into_iter().flatten();
    let changed = members.filter(|(member, value)| old[member.as_str()] != **value);
    let lines = changed.flat_map(|(member, value)| {
        [
            format!("- `{member}`: {}", old[member.as_str()]),
            format!("+ `{member}`: {value}"),
        ]
    });
    lines.collect()
}

/// One finding for the whole document, with the lines that differ.
fn compare_lines(wanted: &str, text: &str, file: &Path) -> Option<Finding> {
    let normalized = |line: &str| without_line_number(line.trim_end());
    let wanted_lines: Vec<String> = wanted.lines().map(normalized).collect();
    let committed_lines: Vec<String> = text.lines().map(normalized).collect();
    if wanted_lines == committed_lines {
        return None;
    }
    let mut notes = Vec::new();
    let mut first = None;
    for (at, line) in text.lines().enumerate() {
        if !wanted_lines.contains(&committed_lines[at]) {
            first.get_or_insert(at + 1);
            notes.push(format!("- {}", printable(line)));
        }
    }
    for (at, line) in wanted.lines().enumerate() {
        if !committed_lines.contains(&wanted_lines[at]) {
            notes.push(format!("+ {}", printable(line)));
        }
    }
    if notes.is_empty() {
        notes.push("no other lines, but another order or number of them".to_owned());
    }
    Some(Finding {
        kind: "drift",
        message: format!("`{}` is out of date", file.display()),
        places: vec![Place::line(file, first.unwrap_or(1))],
        notes,
        help: help(file, "markdown"),
    })
}

fn help(file: &Path, format: &str) -> String {
    format!(
        "update it, with the same selection: `cargo advisory dump --format {format} -o {}`",
        file.display()
    )
}

/// Removes the line number from a row of a table: the digits after the last colon in the last code
/// span.
fn without_line_number(row: &str) -> String {
    let place = row.strip_suffix("` |").and_then(|row| row.rsplit_once(':'));
    match place {
        Some((file, line)) if !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()) => {
            format!("{file}` |")
        }
        _ => row.to_owned(),
    }
}
