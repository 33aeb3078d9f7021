//! Writes one page with all that is known of a program's locks: `cargo advisory report`.
//!
//! `order` draws the order of locks, and `html` escapes. The page has no script and loads nothing.

mod html;
mod order;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use advisory_pattern::Record;
use advisory_pattern::order::cycles;
use clap::Args;

use crate::check::{collisions, key_changes, registry};
use crate::cli::Output;
use crate::failure::Failure;
use crate::finding::Finding;
use crate::inventory::{Inventory, file_line, keys, path};
use crate::selection::Artifacts;
use crate::{graph, json};
use html::{code, escaped};

/// The page's style: readable on a phone and in the dark.
const STYLE: &str = include_str!("report/style.css");

/// What has changed since a release.
struct Changes {
    /// The release's inventory, as it was named.
    file: String,
    /// Keys that exclude nobody of the old release.
    keys: Vec<Finding>,
    /// All other differences.
    sites: Vec<Finding>,
}

/// Writes one page (HTML) with all locks of a program: by component, in which order, with findings and changes
///
/// It shows the locks by component, the order in which tests acquire them, the collisions, and what has changed since a release. The
/// file has no script and loads nothing, so it can be mailed or published by CI.
///
/// Findings are on the page; `check` is what fails.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
    /// The order of locks that tests have recorded in the file that `ADVISORY_LOCK_ORDER` names
    #[arg(long, value_name = "FILE")]
    from: Vec<PathBuf>,
    /// The inventory (JSON) of another service on the same database
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// The inventory (JSON) of an earlier release
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    #[command(flatten)]
    artifacts: Artifacts,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<bool, Failure> {
        let inventory = self.artifacts.inventory_to_check()?;
        let mut findings = collisions::within(&inventory)?;
        for file in &self.with {
            let other = json::read_file(file)?;
            findings.extend(collisions::between(&inventory, &other, file)?);
        }
        let changes = match &self.against {
            Some(file) => {
                let old = json::read_file(file)?;
                Some(Changes {
                    file: file.display().to_string(),
                    keys: key_changes::find(&inventory, &old, file, &[]),
                    sites: registry::compare_sites(&inventory, &old, file),
                })
            }
            None => None,
        };
        let edges = graph::read(&self.from)?;
        let order = order::section(&edges, &cycles(&edges));
        let page = page(&inventory, &findings, changes.as_ref(), &order);
        self.output.write(&page)?;
        Ok(true)
    }
}

fn page(
    inventory: &Inventory,
    findings: &[Finding],
    changes: Option<&Changes>,
    order: &str,
) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Advisory locks</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>Advisory locks</h1>\n\
         <p>{}</p>\n",
        escaped(&inventory.summary())
    );
    let components = by_component(inventory);
    contents(&mut text, &components, changes);
    text.push_str("</header>\n<main>\n");
    section(&mut text, "findings", "Findings");
    if findings.is_empty() {
        text.push_str("<p class=\"fine\">No two locks can collide by accident.</p>\n");
    }
    for finding in findings {
        card(&mut text, finding);
    }
    text.push_str("</section>\n");
    section(&mut text, "order", "The order of locks");
    text.push_str(order);
    text.push_str("</section>\n");
    if let Some(changes) = changes {
        since(&mut text, changes);
    }
    for (component, sites) in &components {
        let id = html::id(component);
        section(&mut text, &id, component);
        for (key, sites) in by_key(sites) {
            lock(&mut text, &key, &sites);
        }
        text.push_str("</section>\n");
    }
    text.push_str("</main>\n<footer>Written by <code>cargo advisory report</code>. Who holds a lock now: <code>cargo advisory locks</code>.</footer>\n</body>\n</html>\n");
    text
}

fn section(text: &mut String, id: &str, title: &str) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "<section id=\"{id}\">\n<h2>{}</h2>", escaped(title));
}

fn contents(
    text: &mut String,
    components: &BTreeMap<&str, Vec<&Record>>,
    changes: Option<&Changes>,
) {
    text.push_str("<nav>\n<a href=\"#findings\">Findings</a>\n<a href=\"#order\">Order</a>\n");
    if changes.is_some() {
        text.push_str("<a href=\"#changes\">Changes</a>\n");
    }
    for (component, sites) in components {
        let (id, component) = (html::id(component), escaped(component));
        let _ = writeln!(
            text,
            "<a href=\"#{id}\">{component} <small>{}</small></a>",
            sites.len()
        );
    }
    text.push_str("</nav>\n");
}

/// The sites by their component, or by their crate.
fn by_component(inventory: &Inventory) -> BTreeMap<&str, Vec<&Record>> {
    let mut components: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for site in &inventory.sites {
        let component = site.component.as_deref().unwrap_or(&site.krate);
        components.entry(component).or_default().push(site);
    }
    components
}

/// The sites of one lock: of one name, or with the same keys.
fn by_key<'s>(sites: &[&'s Record]) -> Vec<(String, Vec<&'s Record>)> {
    let mut locks: Vec<(String, Vec<&Record>)> = Vec::new();
    for site in sites {
        let key = site.name.clone().unwrap_or_else(|| site.written.join(", "));
        match locks.iter_mut().find(|(other, _)| *other == key) {
            Some((_, sites)) => sites.push(site),
            None => locks.push((key, vec![site])),
        }
    }
    locks
}

fn lock(text: &mut String, title: &str, sites: &[&Record]) {
    let Some(first) = sites.first() else { return };
    let _ = writeln!(text, "<article>\n<h3>{}</h3>", code(title));
    if let Some(purpose) = sites.iter().find_map(|site| site.purpose.as_deref()) {
        let _ = writeln!(text, "<p>{}</p>", escaped(purpose));
    }
    let mut facts: Vec<(&str, String)> = Vec::new();
    let mut written: Vec<&str> = Vec::new();
    for site in sites {
        written.extend(keys(site).iter().map(|key| key.written));
    }
    written.sort_unstable();
    written.dedup();
    let written: Vec<String> = written.into_iter().map(code).collect();
    facts.push(("key", written.join(", ")));
    let scope = match (first.scope.as_str(), first.mode.as_str()) {
        ("none", _) => "where it is used".to_owned(),
        (scope, "exclusive") => scope.to_owned(),
        (scope, mode) => format!("{scope}, {mode}"),
    };
    facts.push(("held", escaped(&scope)));
    facts.push(("number", escaped(&first.derivation)));
    let permits = first.permits.as_ref().map(ToString::to_string);
    for (name, value) in [
        ("wait", &first.wait),
        ("poll", &first.poll),
        ("permits", &permits),
        ("max_hold", &first.max_hold),
        ("isolation", &first.isolation),
        ("ttl", &first.ttl),
        ("renew", &first.renew),
        ("keep", &first.keep),
    ] {
        facts.extend(value.as_ref().map(|value| (name, code(value))));
    }
    if !first.guards.is_empty() {
        let guards: Vec<String> = first.guards.iter().map(|table| code(table)).collect();
        facts.push(("guards", guards.join(", ")));
    }
    text.push_str("<dl>\n");
    for (name, value) in facts {
        let _ = writeln!(text, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    text.push_str("</dl>\n<ul>\n");
    for site in sites {
        let (function, place) = (code(&path(site)), escaped(&file_line(site)));
        let _ = writeln!(text, "<li>{function} <small>{place}</small></li>");
    }
    text.push_str("</ul>\n</article>\n");
}

fn card(text: &mut String, finding: &Finding) {
    let _ = writeln!(
        text,
        "<article class=\"problem\">\n<h3>{}</h3>\n<ul>",
        html::with_code(&finding.message)
    );
    for place in &finding.places {
        let _ = writeln!(text, "<li>{}</li>", html::with_code(&place.text));
    }
    text.push_str("</ul>\n");
    for note in &finding.notes {
        let _ = writeln!(text, "<p>{}</p>", html::with_code(note));
    }
    let _ = writeln!(
        text,
        "<p class=\"help\">{}</p>\n</article>",
        html::with_code(&finding.help)
    );
}

fn since(text: &mut String, changes: &Changes) {
    section(text, "changes", "Changes");
    let _ = writeln!(text, "<p>Since {}.</p>", code(&changes.file));
    if changes.keys.is_empty() {
        text.push_str("<p class=\"fine\">No key has changed: processes of both releases exclude each other.</p>\n");
    }
    for finding in &changes.keys {
        card(text, finding);
    }
    if !changes.sites.is_empty() {
        text.push_str("<ul class=\"diff\">\n");
        for finding in &changes.sites {
            let message = finding
                .message
                .replace(&format!("`{}` lacks the lock site", changes.file), "new:")
                .replace("the program lacks the lock site", "gone:");
            let _ = write!(text, "<li>{}", html::with_code(&message));
            for note in &finding.notes {
                let _ = write!(text, "<br><small>{}</small>", html::with_code(note));
            }
            text.push_str("</li>\n");
        }
        text.push_str("</ul>\n");
    }
    text.push_str("</section>\n");
}
