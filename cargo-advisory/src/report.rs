//! Writes one page with everything that is known about a program's locks: `cargo advisory report`.
//!
//! `order` draws the order of locks, with each circle in it, and `html` escapes. The page has no
//! script and loads nothing.

mod html;
mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

use advisory_pattern::order::cycles;
use advisory_pattern::{LockedKey, Record};
use clap::Args;

use crate::check::{claim_changes, collisions, key_changes, registry};
use crate::cli::Output;
use crate::failure::Result;
use crate::finding::{self, Finding};
use crate::inventory::{Inventory, claim_line, claim_path, file_line, keys, path, scope_and_mode};
use crate::selection::Artifacts;
use crate::text::{joined, plural};
use crate::{graph, json, table};
use html::{code, escaped};

/// The page's style: readable on a phone and in the dark.
const STYLE: &str = include_str!("report/style.css");

struct Changes {
    file: String,
    /// The changes that cause problems while both releases run.
    keys: Vec<Finding>,
    /// All other differences.
    sites: Vec<Finding>,
}

/// Writes one page (HTML) with all locks of a program: by component, in which order, with findings
/// and changes
///
/// It shows the locks by component, the claims, the order in which tests acquire locks, the
/// collisions, and what has changed since a release. The file has no script and loads nothing, so
/// it can be mailed or published by CI.
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
    pub(crate) fn run(&self) -> Result<bool> {
        let inventory = self.artifacts.inventory(true)?;
        let findings = collisions::find(&inventory, &self.with)?;
        let changes = match &self.against {
            Some(file) => {
                let old = &json::read_file(file)?;
                let (from, allowed) = (&**file, &[][..]);
                let release = key_changes::Release { old, from, allowed };
                let mut keys = key_changes::find(&inventory, &release);
                keys.extend(claim_changes::find(&inventory, &release));
                // Advice about what cannot be compared is for `check`.
                keys.retain(|finding| finding.kind != finding::ADVICE);
                Some(Changes {
                    file: file.display().to_string(),
                    keys,
                    sites: registry::SITES.compare(&inventory.sites, &old.sites, file),
                })
            }
            None => None,
        };
        let edges = graph::read(&self.from)?;
        let cycles = cycles(&edges);
        let order = (order::section(&edges, &cycles), cycles.len());
        let page = page(&inventory, &findings, changes.as_ref(), &order);
        self.output.write(&page)?;
        Ok(true)
    }
}

fn page(
    inventory: &Inventory,
    findings: &[Finding],
    changes: Option<&Changes>,
    (order, cycles): &(String, usize),
) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Advisory locks</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#findings\">To the findings</a>\n<header>\n<h1>Advisory locks</h1>\n\
         <p>{}</p>\n",
        escaped(&inventory.summary())
    );
    let components = by_component(inventory);
    contents(&mut text, inventory, &components, changes);
    text.push_str("</header>\n<main>\n");
    section(&mut text, "findings", "Findings");
    let incompatible = changes.map_or(0, |changes| changes.keys.len());
    let circles = plural(*cycles, "circle") + " in the order of locks";
    let incompatible_changes =
        plural(incompatible, "change") + " for which two releases cannot run side by side";
    for (count, what, id) in [
        (*cycles, circles, "order"),
        (incompatible, incompatible_changes, "changes"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "<p class=\"bad\"><a href=\"#{id}\">{what}</a></p>");
        }
    }
    if findings.is_empty() {
        // Nothing is green on a page with something red.
        let is_fine = cycles + incompatible == 0;
        let class = if is_fine { " class=\"fine\"" } else { "" };
        let _ = writeln!(text, "<p{class}>No two locks can collide by accident.</p>");
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
    let locks = by_key(inventory);
    for name in components.keys() {
        section(&mut text, &html::id(name), name);
        let is_in = |lock: &&Lock<'_>| lock.sites.iter().any(|site| component(site) == *name);
        for one in locks.iter().filter(is_in) {
            if one.component() == *name {
                card_of_lock(&mut text, one);
            } else {
                one.link(&mut text);
            }
        }
        text.push_str("</section>\n");
    }
    claims(&mut text, inventory);
    text.push_str("</main>\n<footer>Written by <code>cargo advisory report</code>. Who holds a lock now: <code>cargo advisory locks</code>.</footer>\n</body>\n</html>\n");
    text
}

fn section(text: &mut String, id: &str, title: &str) {
    let _ = writeln!(text, "<section id=\"{id}\">\n<h2>{}</h2>", escaped(title));
}

fn contents(
    text: &mut String,
    inventory: &Inventory,
    components: &BTreeMap<&str, Vec<&Record>>,
    changes: Option<&Changes>,
) {
    text.push_str("<nav aria-label=\"Contents\">\n<a href=\"#findings\">Findings</a>\n<a href=\"#order\">Order</a>\n");
    if changes.is_some() {
        text.push_str("<a href=\"#changes\">Changes</a>\n");
    }
    let mut link = |id: &str, title: &str, count: usize| {
        let _ = writeln!(text, "<a href=\"#{id}\">{title} <small>{count}</small></a>");
    };
    for (component, sites) in components {
        link(&html::id(component), &escaped(component), sites.len());
    }
    if !inventory.claims.is_empty() {
        link("claims", "Claims", inventory.claims.len());
    }
    text.push_str("</nav>\n");
}

/// The sites by their component, or by their crate.
fn by_component(inventory: &Inventory) -> BTreeMap<&str, Vec<&Record>> {
    let mut components: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for site in &inventory.sites {
        components.entry(component(site)).or_default().push(site);
    }
    components
}

fn component(site: &Record) -> &str {
    site.component.as_deref().unwrap_or(&site.krate)
}

/// One lock: the sites with one name, or with equal keys.
struct Lock<'s> {
    title: String,
    sites: Vec<&'s Record>,
}

/// The locks of all sites: several components can use one.
fn by_key(inventory: &Inventory) -> Vec<Lock<'_>> {
    let mut locks: Vec<Lock<'_>> = Vec::new();
    for site in &inventory.sites {
        let title = site.name.clone().unwrap_or_else(|| site.written.join(", "));
        match locks.iter_mut().find(|lock| lock.title == title) {
            Some(lock) => lock.sites.push(site),
            None => locks.push(Lock {
                title,
                sites: vec![site],
            }),
        }
    }
    locks
}

impl Lock<'_> {
    /// The component that has its card: the one that declares it, or else that of its first site.
    fn component(&self) -> &str {
        let declared = self.sites.iter().find(|site| site.kind == "struct");
        let site = declared.or(self.sites.first());
        site.map_or("", |site| component(site))
    }

    fn id(&self) -> String {
        format!("lock-{}", html::id(&self.title))
    }

    /// Links to it from another component that uses it.
    fn link(&self, text: &mut String) {
        let (id, title, of) = (self.id(), code(&self.title), escaped(self.component()));
        let _ = writeln!(text, "<p><a href=\"#{id}\">{title}</a> of {of}</p>");
    }

    /// The values of its sites, each once. The sites of one lock can differ.
    fn values(&self, of: impl Fn(&Record) -> Option<String>) -> Option<String> {
        each_once(self.sites.iter().filter_map(|site| of(site)))
    }
}

fn each_once(values: impl Iterator<Item = String>) -> Option<String> {
    let mut all: Vec<String> = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    (!all.is_empty()).then(|| all.join(", "))
}

fn card_of_lock(text: &mut String, lock: &Lock<'_>) {
    let (id, title) = (lock.id(), code(&lock.title));
    let _ = writeln!(text, "<article id=\"{id}\">\n<h3>{title}</h3>");
    if let Some(purpose) = lock.sites.iter().find_map(|site| site.purpose.as_deref()) {
        let _ = writeln!(text, "<p>{}</p>", escaped(purpose));
    }
    let sites = lock.sites.iter();
    let keys = sites.flat_map(|site| keys(site));
    let written: BTreeSet<&str> = keys.map(|key| key.written).collect();
    let optional =
        |of: fn(&Record) -> Option<String>| lock.values(|site| of(site).map(|value| code(&value)));
    let guards = |site: &Record| {
        let guards = joined(site.guards.iter().map(|table| code(table)), ", ");
        (!guards.is_empty()).then_some(guards)
    };
    let needed = |site: &Record| site.allow_redundant.as_deref().map(escaped);
    let held = lock.values(|site| scope_and_mode(site).map(|held| escaped(&held)));
    let held = held.unwrap_or_else(|| "where it is used".to_owned());
    let facts = [
        ("key", Some(joined(written.into_iter().map(code), ", "))),
        ("held", Some(held)),
        ("number", lock.values(|site| number(site, false))),
        ("lease", lock.values(|site| number(site, true))),
        ("wait", optional(|site| site.wait.clone())),
        ("poll", optional(|site| site.poll.clone())),
        (
            "permits",
            optional(|site| site.permits.as_ref().map(ToString::to_string)),
        ),
        ("max_hold", optional(|site| site.max_hold.clone())),
        ("isolation", optional(|site| site.isolation.clone())),
        ("ttl", optional(|site| site.ttl.clone())),
        ("renew", optional(|site| site.renew.clone())),
        ("keep", optional(|site| site.keep.clone())),
        ("guards", lock.values(guards)),
        ("needed", lock.values(needed)),
    ];
    text.push_str("<dl>\n");
    for (name, value) in facts {
        if let Some(value) = value {
            fact(text, name, &value);
        }
    }
    text.push_str("</dl>\n<ul>\n");
    for site in &lock.sites {
        let (function, place) = (code(&path(site)), escaped(&file_line(site)));
        let of = match component(site) {
            own if own == lock.component() => String::new(),
            other => format!(", {}", escaped(other)),
        };
        let _ = writeln!(text, "<li>{function} <small>{place}{of}</small></li>");
    }
    text.push_str("</ul>\n</article>\n");
}

/// The derivation of the numbers of a site's keys, or the storage of a lease's key.
fn number(site: &Record, is_lease: bool) -> Option<String> {
    let keys = keys(site);
    let keys = keys.iter().filter(|key| key.is_lease == is_lease);
    let ways = keys.map(|key| match &key.known {
        None => "known at run time".to_owned(),
        Some(_) if is_lease => "a row, found by the text of its key".to_owned(),
        Some(LockedKey::BigInt(_) | LockedKey::IntInt(..)) => "fixed".to_owned(),
        Some(LockedKey::Pattern(_) | LockedKey::IntPattern(..)) => site.derivation.clone(),
    });
    each_once(ways).map(|ways| escaped(&ways))
}

fn fact(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "<div><dt>{name}</dt><dd>{value}</dd></div>");
}

fn claims(text: &mut String, inventory: &Inventory) {
    if inventory.claims.is_empty() {
        return;
    }
    section(text, "claims", "Claims");
    text.push_str("<p>A claim is written into its row, and takes no lock.</p>\n");
    for claim in &inventory.claims {
        let _ = writeln!(text, "<article>\n<h3>{}</h3>", code(&claim.table));
        if let Some(purpose) = &claim.purpose {
            let _ = writeln!(text, "<p>{}</p>", escaped(purpose));
        }
        text.push_str("<dl>\n");
        let columns = joined(table::columns(claim).iter().map(|it| escaped(it)), ", ");
        fact(text, "columns", &columns);
        for (name, value) in [
            ("ttl", &claim.ttl),
            ("renew", &claim.renew),
            ("limit", &claim.limit),
            ("max_attempts", &claim.max_attempts),
        ] {
            if let Some(value) = value {
                fact(text, name, &code(value));
            }
        }
        let (row, place) = (code(&claim_path(claim)), escaped(&claim_line(claim)));
        let _ = writeln!(
            text,
            "</dl>\n<ul>\n<li>{row} <small>{place}</small></li>\n</ul>\n</article>"
        );
    }
    text.push_str("</section>\n");
}

fn card(text: &mut String, finding: &Finding) {
    let message = html::with_code(&finding.message);
    let _ = writeln!(
        text,
        "<article class=\"problem\">\n<h3>{message}</h3>\n<ul>"
    );
    for place in &finding.places {
        let _ = writeln!(text, "<li>{}</li>", html::with_code(&place.text));
    }
    text.push_str("</ul>\n");
    for note in &finding.notes {
        let _ = writeln!(text, "<p>{}</p>", html::with_code(note));
    }
    let help = html::with_code(&finding.help);
    let _ = writeln!(text, "<p class=\"help\">{help}</p>\n</article>");
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
