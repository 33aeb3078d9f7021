//! A finding of a check, written like rustc's messages or as JSON.

use std::fmt::Write;
use std::path::Path;

use advisory_pattern::{ClaimRecord, Record};
use serde_json::{Value, json};

use crate::cli::Format;
use crate::inventory::{claim_line, claim_path, file_line, path};
use crate::json;
use crate::screen::{BOLD, ERROR, FRAME, KEY, printable};

/// The kind of a finding that is not a mistake.
pub(crate) const ADVICE: &str = "advice";

/// One mistake, or advice.
pub(crate) struct Finding {
    /// `collision`, `drift`, `key-change`, `guard` or `advice`.
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    pub(crate) places: Vec<Place>,
    pub(crate) notes: Vec<String>,
    pub(crate) help: String,
}

/// The place of a mistake.
pub(crate) struct Place {
    pub(crate) text: String,
    site: Option<Value>,
}

impl Place {
    /// A lock site; `role` is its part in the finding, `from` the file of its inventory, if it is not the program's.
    pub(crate) fn site(site: &Record, from: Option<&Path>, role: &str) -> Self {
        let kind = match site.kind.as_str() {
            "macro" => String::new(),
            kind => format!("{kind} "),
        };
        let at = match file_line(site) {
            at if at.is_empty() => site.krate.clone(),
            at => format!("{}: {at}", site.krate),
        };
        let mut text = format!("{at} ({kind}`{}`)", path(site));
        if let Some(from) = from {
            let _ = write!(text, " in `{}`", from.display());
        }
        if !role.is_empty() {
            let _ = write!(text, " {role}");
        }
        Self {
            text,
            site: Some(json::site(site)),
        }
    }

    /// A claim; `from` is the file of its inventory, if it is not the program's.
    pub(crate) fn claim(claim: &ClaimRecord, from: Option<&Path>) -> Self {
        let at = match claim_line(claim) {
            at if at.is_empty() => claim.krate.clone(),
            at => format!("{}: {at}", claim.krate),
        };
        let from = from.map_or_else(String::new, |from| format!(" in `{}`", from.display()));
        Self {
            text: format!("{at} (struct `{}`){from}", claim_path(claim)),
            site: None,
        }
    }

    /// A line of a document.
    pub(crate) fn line(file: &Path, line: usize) -> Self {
        Self {
            text: format!("{}:{line}", file.display()),
            site: None,
        }
    }
}

/// Writes all findings; `summary` describes what was checked.
pub(crate) fn write(findings: &[Finding], summary: &str, format: Format) -> String {
    if format == Format::Json {
        let findings: Vec<Value> = findings.iter().map(to_json).collect();
        return json::pretty(&json!({ "version": json::VERSION, "findings": findings }));
    }
    let mut text = String::new();
    for finding in findings {
        write_text(&mut text, finding);
    }
    let summary = printable(summary);
    let mistakes = findings.iter().filter(|found| found.kind != ADVICE);
    // Writing to a `String` cannot fail.
    let _ = match mistakes.count() {
        0 if !findings.is_empty() => {
            writeln!(text, "{KEY}ok{KEY:#}: nothing found but advice; {summary}")
        }
        0 => writeln!(text, "{KEY}ok{KEY:#}: nothing found; {summary}"),
        1 => writeln!(text, "{ERROR}error{ERROR:#}: 1 finding; {summary}"),
        count => writeln!(text, "{ERROR}error{ERROR:#}: {count} findings; {summary}"),
    };
    text
}

fn write_text(text: &mut String, finding: &Finding) {
    let message = printable(&finding.message);
    let _ = if finding.kind == ADVICE {
        writeln!(text, "{FRAME}advice{FRAME:#}{BOLD}: {message}{BOLD:#}")
    } else {
        writeln!(text, "{ERROR}error{ERROR:#}{BOLD}: {message}{BOLD:#}")
    };
    for place in &finding.places {
        let _ = writeln!(text, "  {FRAME}-->{FRAME:#} {}", printable(&place.text));
    }
    for note in &finding.notes {
        let _ = writeln!(text, "   {FRAME}={FRAME:#} {}", printable(note));
    }
    let _ = writeln!(
        text,
        "   {FRAME}={FRAME:#} {BOLD}help{BOLD:#}: {}\n",
        printable(&finding.help)
    );
}

fn to_json(finding: &Finding) -> Value {
    let places: Vec<&str> = finding.places.iter().map(|at| at.text.as_str()).collect();
    let sites: Vec<&Value> = finding
        .places
        .iter()
        .filter_map(|at| at.site.as_ref())
        .collect();
    json!({
        "kind": finding.kind,
        "message": finding.message,
        "places": places,
        "sites": sites,
        "notes": finding.notes,
        "help": finding.help,
    })
}
