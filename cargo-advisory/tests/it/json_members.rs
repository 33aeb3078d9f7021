//! The members of JSON that the page `json.md` names.

use serde_json::Value;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../docs/json.md");

/// A part of the page, by its heading.
fn section(heading: &str) -> &'static str {
    let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).unwrap();
    section.split("\n## ").next().unwrap()
}

/// The words in backticks, without their list: `token` of `leases[].token`.
fn words(text: &str) -> BTreeSet<&str> {
    let code = text.split('`').skip(1).step_by(2);
    let words = code.flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.filter(|word| !word.is_empty()).collect()
}

/// The members in the first column of a section's table.
fn listed(section: &str) -> BTreeSet<&str> {
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split_once("` | "));
    let names = cells.flat_map(|(cell, _)| cell.split("`, `"));
    names
        .map(|name| name.rsplit('.').next().unwrap().trim_end_matches("[]"))
        .collect()
}

fn members<'v>(value: &'v Value, all: &mut BTreeSet<&'v str>) {
    match value {
        Value::Object(object) => {
            for (member, value) in object {
                all.insert(member);
                members(value, all);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| members(value, all)),
        _ => {}
    }
}

/// Checks that the values have the members in this section of the page and in the sections to which
/// it refers.
#[track_caller]
pub(crate) fn agrees(heading: &str, refers_to: &[&str], values: &[Value]) {
    let (intro, _) = PAGE.split_once("\n## ").unwrap();
    let mut named = words(intro);
    for heading in refers_to.iter().chain([&heading]) {
        named.extend(words(section(heading)));
    }
    let mut written = BTreeSet::new();
    for value in values {
        assert_eq!(value["version"], 1, "{value:#}");
        members(value, &mut written);
    }
    let unnamed: Vec<&&str> = written.difference(&named).collect();
    assert_eq!(unnamed, [&""; 0], "{heading}: not on the page");
    let listed = listed(section(heading));
    assert!(!listed.is_empty(), "{heading}");
    let unwritten: Vec<&&str> = listed.difference(&written).collect();
    assert_eq!(unwritten, [&""; 0], "{heading}: only on the page");
}
