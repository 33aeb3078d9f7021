//! The findings of a check, written like rustc's messages or as JSON. The submodules write them in
//! the forms that code hosts show at the lines of a change.

pub(crate) mod github;
pub(crate) mod sarif;

use std::fmt::Write;
use std::path::Path;

use advisory_pattern::{ClaimRecord, Record};
use serde_json::{Value, json};

use crate::inventory::{claim_path, line_of, path};
use crate::json;
use crate::screen::{BOLD, ERROR, FRAME, KEY};
use crate::source_root::{Located, SourceLine, SourceRoot};
use crate::text::{plural, printable};

pub(crate) const ADVICE: &str = "advice";

#[derive(Default)]
pub(crate) struct Finding {
    /// `collision`, `drift`, `key-change`, `claim-change`, `guard` or `advice`.
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    pub(crate) places: Vec<Place>,
    pub(crate) notes: Vec<String>,
    pub(crate) help: String,
}

impl Finding {
    /// The whole finding, for a viewer that shows one text for each.
    fn in_lines(&self) -> String {
        let mut lines = vec![self.message.clone()];
        let places = self.places.iter();
        lines.extend(places.map(|place| format!("--> {}", place.text)));
        lines.extend(self.notes.iter().cloned());
        lines.push(format!("help: {}", self.help));
        printable(&lines.join("\n"))
    }

    /// The line of the first place below the root, with the index of the place. Without one, the
    /// first line of the manifest, because a code host shows nothing without a line.
    fn first_line(&self, root: &SourceRoot) -> (Located, Option<usize>) {
        let mut places = self.places.iter().enumerate();
        let located = places.find_map(|(at, place)| Some((root.locate(&place.line)?, Some(at))));
        located.unwrap_or_else(|| (root.manifest(), None))
    }
}

pub(crate) struct Place {
    pub(crate) text: String,
    site: Option<Value>,
    /// The path of the site or claim in Rust; empty for a line of a document.
    path: String,
    line: SourceLine,
}

impl Place {
    /// A lock site. `role` is its part in the finding. `from` is the file of its inventory if it is
    /// not the program's.
    pub(crate) fn site(site: &Record, from: Option<&Path>, role: &str) -> Self {
        let kind = match site.kind.as_str() {
            "macro" => String::new(),
            kind => format!("{kind} "),
        };
        let at = (&*site.krate, &*site.file, site.line);
        let mut place = Self::of(at, &kind, path(site), from);
        place.site = Some(json::site(site));
        if !role.is_empty() {
            place.text = format!("{} {role}", place.text);
        }
        place
    }

    /// A claim. `from` is the file of its inventory if it is not the program's.
    pub(crate) fn claim(claim: &ClaimRecord, from: Option<&Path>) -> Self {
        let at = (&*claim.krate, &*claim.file, claim.line);
        Self::of(at, "struct ", claim_path(claim), from)
    }

    fn of(
        (krate, file, line): (&str, &str, u32),
        kind: &str,
        path: String,
        from: Option<&Path>,
    ) -> Self {
        let at = match line_of(file, line) {
            none if none.is_empty() => none,
            at => format!(": {at}"),
        };
        let of = from.map(|from| format!(" in `{}`", from.display()));
        let of = of.unwrap_or_default();
        Self {
            text: format!("{krate}{at} ({kind}`{path}`){of}"),
            site: None,
            path,
            line: match from {
                // The line of a record of another inventory is not in this source tree.
                Some(from) => Self::line(from, 1).line,
                None => SourceLine::Crate {
                    krate: krate.to_owned(),
                    file: file.to_owned(),
                    line,
                },
            },
        }
    }

    pub(crate) fn line(file: &Path, line: usize) -> Self {
        let (text, file) = (format!("{}:{line}", file.display()), file.to_owned());
        Self {
            text,
            site: None,
            path: String::new(),
            line: SourceLine::Document { file, line },
        }
    }
}

pub(crate) fn json(findings: &[Finding]) -> String {
    let findings = findings.iter().map(|finding| {
        let places: Vec<&String> = finding.places.iter().map(|at| &at.text).collect();
        let sites = finding.places.iter().filter_map(|at| at.site.as_ref());
        json!({
            "kind": finding.kind,
            "message": finding.message,
            "places": places,
            "sites": sites.collect::<Vec<_>>(),
            "notes": finding.notes,
            "help": finding.help,
        })
    });
    let findings: Vec<Value> = findings.collect();
    json::pretty(&json!({ "version": json::VERSION, "findings": findings }))
}

pub(crate) fn text(findings: &[Finding], summary: &str) -> String {
    let mut text = String::new();
    for finding in findings {
        let (style, word) = match finding.kind {
            ADVICE => (FRAME, "advice"),
            _ => (ERROR, "error"),
        };
        let (message, help) = (printable(&finding.message), printable(&finding.help));
        let _ = writeln!(text, "{style}{word}{style:#}{BOLD}: {message}{BOLD:#}");
        for place in &finding.places {
            let _ = writeln!(text, "  {FRAME}-->{FRAME:#} {}", printable(&place.text));
        }
        for note in &finding.notes {
            let _ = writeln!(text, "   {FRAME}={FRAME:#} {}", printable(note));
        }
        let _ = writeln!(text, "   {FRAME}={FRAME:#} {BOLD}help{BOLD:#}: {help}\n");
    }
    let (style, verdict) = if is_ok(findings) {
        (KEY, "ok")
    } else {
        (ERROR, "error")
    };
    let (count, summary) = (count(findings), printable(summary));
    let _ = writeln!(text, "{style}{verdict}{style:#}: {count}; {summary}");
    text
}

pub(crate) fn is_ok(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.kind == ADVICE)
}

fn count(findings: &[Finding]) -> String {
    let mistakes = findings.iter().filter(|found| found.kind != ADVICE);
    match mistakes.count() {
        0 if !findings.is_empty() => "nothing found but advice".to_owned(),
        0 => "nothing found".to_owned(),
        count => plural(count, "finding"),
    }
}
