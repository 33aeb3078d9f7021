//! Findings as SARIF 2.1.0, which code hosts and editors read.
//!
//! The schema: <https://docs.oasis-open.org/sarif/sarif/v2.1.0/>. The parts that GitHub reads:
//! <https://docs.github.com/en/code-security/reference/code-scanning/sarif-files/sarif-support-for-code-scanning>.

use advisory_pattern::Derivation;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::{ADVICE, Finding};
use crate::cli::NAME;
use crate::json;
use crate::source_root::{Located, SourceRoot};
use crate::text::{joined, printable};

const RULES: &str = "\
collision: Two different locks have one possible key
drift: The registry document is not what `cargo advisory dump` would write
key-change: A lock does not take every key that it took in an earlier release
claim-change: Workers of an earlier release and of this one do not exclude each other, or claim in another order
guard: A guarded table has no trigger for its lock, or one that does not compute its key
advice: A constraint says the rule of a lock, or could, or an index is missing";

/// The registry's page explains every kind.
const PAGE: &str = concat!(
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/v",
    env!("CARGO_PKG_VERSION"),
    "/cargo-advisory/docs/registry.md#what-check-finds"
);

/// The characters that a path of a URI may have unescaped.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'_')
    .remove(b'-');

pub(crate) fn write(findings: &[Finding], root: &SourceRoot) -> String {
    let rules = rules().map(|(kind, means)| {
        json!({
            "id": kind,
            "shortDescription": { "text": means },
            "fullDescription": { "text": means },
            "help": { "text": format!("Each finding ends with what to write. {PAGE}") },
            "helpUri": PAGE,
            "defaultConfiguration": { "level": level(kind) },
        })
    });
    let results: Vec<Value> = findings.iter().map(|found| result(found, root)).collect();
    json::pretty(&json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": NAME,
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": rules.collect::<Vec<_>>(),
            } },
            "originalUriBaseIds": { "%SRCROOT%": { "description": { "text": "The root of the repository" } } },
            "results": results,
        }],
    }))
}

/// The kinds of findings, with what each means.
fn rules() -> impl Iterator<Item = (&'static str, &'static str)> {
    RULES.lines().filter_map(|line| line.split_once(": "))
}

fn level(kind: &str) -> &'static str {
    if kind == ADVICE { "note" } else { "error" }
}

fn result(finding: &Finding, root: &SourceRoot) -> Value {
    let (first, at) = finding.first_line(root);
    let places = finding.places.iter().enumerate();
    let others = places.filter(|(index, _)| Some(*index) != at);
    let related = others.filter_map(|(_, place)| {
        let mut location = location(&root.locate(&place.line)?);
        location["message"] = json!({ "text": printable(&place.text) });
        Some(location)
    });
    let related: Vec<Value> = related.collect();
    json!({
        "ruleId": finding.kind,
        "ruleIndex": rules().position(|(kind, _)| kind == finding.kind),
        "level": level(finding.kind),
        "message": { "text": finding.in_lines() },
        "locations": [location(&first)],
        "relatedLocations": related,
        "partialFingerprints": { "cargoAdvisory/v1": fingerprint(finding) },
    })
}

fn location(located: &Located) -> Value {
    let uri = utf8_percent_encode(&located.path, PATH).to_string();
    json!({ "physicalLocation": {
        "artifactLocation": { "uri": uri, "uriBaseId": "%SRCROOT%" },
        "region": { "startLine": located.line },
    } })
}

/// Identifies the finding after an edit that moves its lines.
fn fingerprint(finding: &Finding) -> String {
    let paths = joined(finding.places.iter().map(|place| &place.path), " ");
    // After the colon, the text of advice has the number of rows in the table.
    let message = match finding.message.split_once(": ") {
        Some((start, _)) if finding.kind == ADVICE => start,
        _ => &finding.message,
    };
    let text = format!("{} {message} {paths}", finding.kind);
    format!("{:016x}", Derivation::default().key(&text))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::fingerprint;
    use crate::finding::{ADVICE, Finding, Place};

    fn finding(kind: &'static str, message: &str, places: usize) -> Finding {
        let place = |line| Place::line(Path::new("locks.md"), line);
        Finding {
            kind,
            message: message.to_owned(),
            places: (0..places).map(place).collect(),
            ..Finding::default()
        }
    }

    /// A code host closes a finding when its fingerprint disappears, and shows two findings with
    /// one fingerprint as one.
    #[test]
    fn a_fingerprint_is_that_of_one_finding() {
        let (few, many) = ("`t` could: no two of 2 rows", "`t` could: no two of 3 rows");
        let of = |kind, message, places| fingerprint(&finding(kind, message, places));
        assert_eq!(of(ADVICE, few, 1), of(ADVICE, many, 1));
        assert_ne!(of("guard", few, 1), of("guard", many, 1));
        assert_ne!(of("guard", few, 1), of("drift", few, 1));
        assert_ne!(of("guard", few, 1), of("guard", few, 2));
    }
}
