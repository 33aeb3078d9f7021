//! What did a check find, and how is it said: to people in rustc's manner, to machines as JSON?

use std::fmt::Write;
use std::path::Path;

use advisory_pattern::Record;
use serde_json::{Value, json};

use crate::inventory::{file_line, path};
use crate::screen::{BOLD, ERROR, FRAME, KEY};
use crate::{cli, json};

/// One thing that is wrong.
pub(crate) struct Finding {
    /// `collision`, `drift` or `key-change`.
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    pub(crate) places: Vec<Place>,
    pub(crate) notes: Vec<String>,
    pub(crate) help: String,
}

/// Where it is wrong.
pub(crate) struct Place {
    text: String,
    site: Option<Value>,
}

impl Place {
    /// A lock site; `behind` says what it has to do with the finding, `from` which inventory it is in, if not the program's.
    pub(crate) fn site(site: &Record, from: Option<&Path>, behind: &str) -> Self {
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
        if !behind.is_empty() {
            let _ = write!(text, " {behind}");
        }
        Self {
            text,
            site: Some(json::site(site)),
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

/// Writes all findings; `seen` says what was looked at.
pub(crate) fn write(findings: &[Finding], seen: &str, format: cli::Format) -> String {
    if format == cli::Format::Json {
        let findings: Vec<Value> = findings.iter().map(machine).collect();
        return json::pretty(&json!({ "version": 1, "findings": findings }));
    }
    let mut text = String::new();
    for finding in findings {
        people(&mut text, finding);
    }
    // A `String` takes everything.
    let _ = match findings.len() {
        0 => writeln!(text, "{KEY}ok{KEY:#}: nothing found; {seen}"),
        1 => writeln!(text, "{ERROR}error{ERROR:#}: 1 finding; {seen}"),
        count => writeln!(text, "{ERROR}error{ERROR:#}: {count} findings; {seen}"),
    };
    text
}

fn people(text: &mut String, finding: &Finding) {
    let message = &finding.message;
    let _ = writeln!(text, "{ERROR}error{ERROR:#}{BOLD}: {message}{BOLD:#}");
    for place in &finding.places {
        let _ = writeln!(text, "  {FRAME}-->{FRAME:#} {}", place.text);
    }
    for note in &finding.notes {
        let _ = writeln!(text, "   {FRAME}={FRAME:#} {note}");
    }
    let _ = writeln!(
        text,
        "   {FRAME}={FRAME:#} {BOLD}help{BOLD:#}: {}\n",
        finding.help
    );
}

fn machine(finding: &Finding) -> Value {
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
