//! Comparison of the committed registry document with the program.
//!
//! Line numbers are not compared, because every edit would fail a build.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use advisory_pattern::{ClaimRecord, Record};
use serde_json::Value;

use crate::failure::Failure;
use crate::finding::{Finding, Place};
use crate::inventory::{Inventory, claim_path, path};
use crate::screen::printable;
use crate::{json, markdown};

/// Compares the document with what `dump` would write. The text shows whether it is JSON or
/// Markdown.
pub(crate) fn compare(
    inventory: &Inventory,
    file: &Path,
    key_count: u64,
) -> Result<Vec<Finding>, Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::unread(file, error))?;
    if text.trim_start().starts_with('{') {
        let committed = json::read(file, &text)?;
        let mut findings = compare_sites(inventory, &committed, file);
        findings.extend(compare_claims(inventory, &committed, file));
        return Ok(findings);
    }
    Ok(
        compare_lines(&markdown::write(inventory, key_count), &text, file)
            .into_iter()
            .collect(),
    )
}

/// Compares the sites of two inventories.
pub(crate) fn compare_sites(
    inventory: &Inventory,
    committed: &Inventory,
    file: &Path,
) -> Vec<Finding> {
    let new = unmatched(inventory, committed);
    let mut old = unmatched(committed, inventory);
    let finding = |message: String, place: Place, notes: Vec<String>| Finding {
        kind: "drift",
        message,
        places: vec![place],
        notes,
        help: help(file, "json"),
    };
    let mut findings = Vec::new();
    for site in new {
        let (name, place) = (path(site), Place::site(site, None, ""));
        let Some(at) = old.iter().position(|other| path(other) == name) else {
            let message = format!("`{}` lacks the lock site {name}", file.display());
            findings.push(finding(message, place, Vec::new()));
            continue;
        };
        let message = format!(
            "the lock site {name} has changed since `{}`",
            file.display()
        );
        findings.push(finding(message, place, changes(old.remove(at), site)));
    }
    for site in old {
        let message = format!("the program lacks the lock site {}", path(site));
        findings.push(finding(
            message,
            Place::site(site, Some(file), ""),
            Vec::new(),
        ));
    }
    findings
}

/// Compares the claims of two inventories.
fn compare_claims(inventory: &Inventory, committed: &Inventory, file: &Path) -> Vec<Finding> {
    let without_place = |claim: &ClaimRecord| ClaimRecord {
        line: 0,
        version: String::new(),
        ..claim.clone()
    };
    let unmatched = |some: &Inventory, others: &Inventory| -> Vec<ClaimRecord> {
        let others: Vec<ClaimRecord> = others.claims.iter().map(without_place).collect();
        let lacks = |claim: &&ClaimRecord| !others.contains(&without_place(claim));
        some.claims.iter().filter(lacks).cloned().collect()
    };
    let finding = |message: String, place: Place, notes: Vec<String>| Finding {
        kind: "drift",
        message,
        places: vec![place],
        notes,
        help: help(file, "json"),
    };
    let mut old = unmatched(committed, inventory);
    let mut findings = Vec::new();
    for claim in unmatched(inventory, committed) {
        let (name, place) = (claim_path(&claim), Place::claim(&claim, None));
        let at = old.iter().position(|other| claim_path(other) == name);
        let (message, notes) = match at.map(|at| old.remove(at)) {
            None => (
                format!("`{}` lacks the claim {name}", file.display()),
                Vec::new(),
            ),
            Some(before) => (
                format!("the claim {name} has changed since `{}`", file.display()),
                members_changed(&json::claim(&before), &json::claim(&claim)),
            ),
        };
        findings.push(finding(message, place, notes));
    }
    findings.extend(old.iter().map(|claim| {
        let message = format!("the program lacks the claim {}", claim_path(claim));
        finding(message, Place::claim(claim, Some(file)), Vec::new())
    }));
    findings
}

/// The sites that the other inventory lacks. Methods of several types can be equal sites, so each
/// is matched with one.
fn unmatched<'a>(inventory: &'a Inventory, others: &Inventory) -> Vec<&'a Record> {
    let mut counts: BTreeMap<Record, usize> = BTreeMap::new();
    for other in &others.sites {
        *counts.entry(without_place(other)).or_default() += 1;
    }
    let is_unmatched = |site: &&Record| match counts.get_mut(&without_place(site)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    inventory.sites.iter().filter(is_unmatched).collect()
}

fn without_place(site: &Record) -> Record {
    Record {
        line: 0,
        version: String::new(),
        ..site.clone()
    }
}

/// The members that differ, with both values.
fn changes(old: &Record, new: &Record) -> Vec<String> {
    members_changed(&json::site(old), &json::site(new))
}

fn members_changed(old: &Value, new: &Value) -> Vec<String> {
    let Value::Object(members) = new else {
        return Vec::new();
    };
    let is_place = |member: &str| matches!(member, "line" | "crate_version");
    let changed = members
        .iter()
        .filter(|(member, value)| !is_place(member) && old[member.as_str()] != **value);
    changed
        .flat_map(|(member, value)| {
            [
                format!("- `{member}`: {}", old[member.as_str()]),
                format!("+ `{member}`: {value}"),
            ]
        })
        .collect()
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
        notes.push("the same lines, in another order or number".to_owned());
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

/// Removes the line number from a table's row: the digits after the last colon, in the last pair of
/// backticks.
fn without_line_number(row: &str) -> String {
    let place = row.strip_suffix("` |").and_then(|row| row.rsplit_once(':'));
    match place {
        Some((file, line)) if !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()) => {
            format!("{file}` |")
        }
        _ => row.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use advisory_pattern::{ClaimRecord, Record};

    use super::{compare_claims, compare_sites, without_line_number};
    use crate::finding::Finding;
    use crate::inventory::Inventory;

    fn site(line: u32, version: &str, mode: &str) -> Record {
        Record {
            kind: "fn".to_owned(),
            scope: "xact".to_owned(),
            mode: mode.to_owned(),
            keys: vec!["number 7".to_owned()],
            module: "bank".to_owned(),
            function: "close".to_owned(),
            line,
            version: version.to_owned(),
            ..Record::default()
        }
    }

    fn claim(line: u32, version: &str, table: &str) -> ClaimRecord {
        ClaimRecord {
            table: table.to_owned(),
            module: "jobs".to_owned(),
            row: "Mail".to_owned(),
            line,
            version: version.to_owned(),
            ..ClaimRecord::default()
        }
    }

    fn notes(findings: &[Finding]) -> Vec<&[String]> {
        findings.iter().map(|found| &found.notes[..]).collect()
    }

    #[test]
    fn another_line_or_version_is_no_drift_and_is_not_shown() {
        let inventory = |site: Record, claim: ClaimRecord| Inventory {
            sites: vec![site],
            claims: vec![claim],
        };
        let file = Path::new("locks.json");
        let program = inventory(site(7, "1.0.0", "exclusive"), claim(9, "1.0.0", "mail"));
        let moved = inventory(site(8, "1.0.1", "exclusive"), claim(8, "1.0.1", "mail"));
        assert!(compare_sites(&program, &moved, file).is_empty());
        assert!(compare_claims(&program, &moved, file).is_empty());
        let changed = inventory(site(8, "1.0.1", "shared"), claim(8, "1.0.1", "post"));
        let sites = compare_sites(&program, &changed, file);
        assert_eq!(
            notes(&sites),
            [["- `mode`: \"shared\"", "+ `mode`: \"exclusive\""]]
        );
        let claims = compare_claims(&program, &changed, file);
        assert_eq!(
            notes(&claims),
            [["- `table`: \"post\"", "+ `table`: \"mail\""]]
        );
    }

    #[test]
    fn only_a_number_behind_a_file_is_a_line() {
        for (row, expected) in [
            (
                "| `slot:<id>` | `bank: src/lib.rs:40` |",
                "| `slot:<id>` | `bank: src/lib.rs` |",
            ),
            (
                "| `slot:<id>` | `bank: src/lib.rs:` |",
                "| `slot:<id>` | `bank: src/lib.rs:` |",
            ),
            ("| `slot:<id>` |", "| `slot:<id>` |"),
            ("`src/lib.rs:40`", "`src/lib.rs:40`"),
        ] {
            assert_eq!(without_line_number(row), expected);
        }
    }
}
