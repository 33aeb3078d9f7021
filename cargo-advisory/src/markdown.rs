//! How is an inventory written as a document that a team commits?
//!
//! It says nothing that changes from run to run or machine to machine: no date, no absolute path, no version.

use std::fmt::Write;

use advisory_pattern::{Derivation, LockedKey, Part, Record};

use crate::declared::Declared;
use crate::inventory::{Inventory, Key, file_line, is_lease, keys, path};
use crate::odds;

/// Writes the document; the odds are those of so many keys.
pub(crate) fn write(inventory: &Inventory, rendered: u64) -> String {
    let mut text = "# Advisory locks\n\n<!-- Written by `cargo advisory dump --format markdown`; \
                    `cargo advisory check --registry` holds the program to it. -->\n"
        .to_owned();
    let mut fixed = Vec::new();
    let mut patterns = Vec::new();
    let mut unknown = Vec::new();
    let mut rows = rows(inventory);
    rows.sort_by_cached_key(|(site, key)| order(site, key));
    for (site, key) in &rows {
        let rows = match &key.known {
            None => &mut unknown,
            Some(_) if key.is_fixed() => &mut fixed,
            Some(_) => &mut patterns,
        };
        let row = row(site, key, inventory);
        // Two accounts of one call are one row.
        if rows.last() != Some(&row) {
            rows.push(row);
        }
    }
    let parts = [
        (
            "Fixed keys",
            "One lock each, for the whole database.",
            "Lock ID",
            fixed,
        ),
        (
            "Keys by pattern",
            if inventory.sites.iter().any(|site| site.kind == "struct") {
                "One lock for each different rendering; `<…>` is a value of the call. Below a declared lock stand those who take it."
            } else {
                "One lock for each different rendering; `<…>` is a value of the call."
            },
            "Key pattern",
            patterns,
        ),
        (
            "Keys known only at run time",
            "The expression that makes the key. A declared lock's own row has its pattern.",
            "Expression",
            unknown,
        ),
    ];
    for (title, lead, key, rows) in parts {
        if !rows.is_empty() {
            section(&mut text, title, lead);
            table(&mut text, &heads(key), &rows);
        }
    }
    exceptions(&mut text, inventory);
    chances(&mut text, inventory, rendered);
    text
}

/// Each key of each site. One that is a declared lock has that one's pattern, and of its words what the site does not say.
fn rows(inventory: &Inventory) -> Vec<(Record, Key<'_>)> {
    let declared = Declared::of(inventory);
    let mut rows = Vec::new();
    for site in &inventory.sites {
        for key in keys(site) {
            let lock = declared.named(key.written).filter(|_| key.known.is_none());
            let taken = lock.and_then(|lock| Some((lock, keys(lock).pop()?)));
            let Some((lock, pattern)) = taken else {
                rows.push((site.clone(), key));
                continue;
            };
            let of_both =
                |own: &Option<String>, all: &Option<String>| own.as_ref().or(all.as_ref()).cloned();
            let site = Record {
                name: of_both(&site.name, &lock.name),
                component: of_both(&site.component, &lock.component),
                purpose: of_both(&site.purpose, &lock.purpose),
                derivation: lock.derivation.clone(),
                ..site.clone()
            };
            rows.push((site, pattern.held_as(key.is_lease)));
        }
    }
    rows
}

/// What stands before what: locks by their text, whatever their placeholders are called; of one lock its declaration, then its
/// functions. No line numbers, so that a function that moves is no drift.
fn order(site: &Record, key: &Key<'_>) -> (String, bool, String) {
    let text = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Placeholder(_) => "<>".to_owned(),
    };
    let lock = match &key.known {
        Some(LockedKey::Pattern(pattern)) => pattern.parts.iter().map(text).collect(),
        _ => String::new(),
    };
    (lock, site.kind != "struct", path(site))
}

fn section(text: &mut String, title: &str, lead: &str) {
    // A `String` takes everything.
    let _ = write!(text, "\n## {title}\n\n{lead}\n\n");
}

const fn heads(key: &str) -> [&str; 9] {
    [
        key,
        "Name",
        "Component",
        "Purpose",
        "Scope",
        "Lock type",
        "Number",
        "Function",
        "File reference",
    ]
}

/// What stands for the number of a key that has none.
const IN_LEASES: &str = "none: SHA-256 of the text, in the lease table";

fn row(site: &Record, key: &Key<'_>, inventory: &Inventory) -> [String; 9] {
    let (id, number) = match (&key.known, key.number()) {
        _ if key.is_lease => (code(key.written), IN_LEASES.to_owned()),
        (Some(LockedKey::Pattern(_)), Some(number)) => (
            code(&number.to_string()),
            format!("{} of {}", site.derivation, code(key.written)),
        ),
        (Some(LockedKey::BigInt(number)), _) => {
            (code(&number.to_string()), "fixed, `bigint`".to_owned())
        }
        (Some(LockedKey::IntInt(..)), _) => (code(key.written), "fixed, `(int, int)`".to_owned()),
        (Some(LockedKey::Pattern(_)), None) => (code(key.written), site.derivation.clone()),
        (None, _) => (code(key.written), String::new()),
    };
    [
        id,
        site.name.as_deref().map(code).unwrap_or_default(),
        plain(site.component.as_deref().unwrap_or_default()),
        plain(site.purpose.as_deref().unwrap_or_default()),
        reach(key),
        kind(site),
        number,
        code(&path(site)),
        code(&place(site, inventory)),
    ]
}

/// `src/slot.rs:24`, behind the crate's name where there are several.
fn place(site: &Record, inventory: &Inventory) -> String {
    let place = file_line(site);
    let is_only = inventory
        .sites
        .iter()
        .all(|other| other.krate == site.krate);
    if is_only || place.is_empty() {
        return place;
    }
    format!("{}: {place}", site.krate)
}

/// Whom the lock keeps apart: `Global`, `Per tenant_id + date`.
fn reach(key: &Key<'_>) -> String {
    match &key.known {
        Some(LockedKey::Pattern(pattern)) => {
            let names: Vec<String> = pattern
                .placeholders()
                .map(advisory_pattern::Placeholder::name)
                .collect();
            if names.is_empty() {
                "Global".to_owned()
            } else {
                format!("Per {}", names.join(" + "))
            }
        }
        Some(LockedKey::IntInt(first, second)) if first.is_none() || second.is_none() => {
            "Per number".to_owned()
        }
        Some(_) => "Global".to_owned(),
        None => "Per key".to_owned(),
    }
}

/// `Transaction (pg_advisory_xact_lock)`, and what the site says of time.
fn kind(site: &Record) -> String {
    let shared = if site.mode == "shared" { "_shared" } else { "" };
    let never = if site.wait.as_deref() == Some("never") {
        "try_"
    } else {
        ""
    };
    let mut kind = match site.scope.as_str() {
        "xact" => format!("Transaction (`pg_{never}advisory_xact_lock{shared}`)"),
        "session" => format!("Session (`pg_{never}advisory_lock{shared}`)"),
        "lease" if never.is_empty() => "Lease (a row that is renewed)".to_owned(),
        "lease" => "Lease (a row that is renewed), does not wait".to_owned(),
        _ => "Declared; held where it is used".to_owned(),
    };
    let said = [
        (
            "waits",
            site.wait.as_deref().filter(|wait| *wait != "never"),
        ),
        ("held", site.max_hold.as_deref()),
        ("isolation", site.isolation.as_deref()),
        ("ttl", site.ttl.as_deref()),
        ("renewed every", site.renew.as_deref()),
        ("kept after `Ok` for", site.keep.as_deref()),
    ];
    for (what, value) in said {
        if let Some(value) = value {
            // What is no time and no level is an expression.
            let is_word = value == "forever"
                || what == "isolation"
                || value.starts_with(|c: char| c.is_ascii_digit());
            let value = if is_word { plain(value) } else { code(value) };
            let _ = write!(kind, ", {what} {value}");
        }
    }
    kind
}

fn exceptions(text: &mut String, inventory: &Inventory) {
    let mut rows = Vec::new();
    for site in &inventory.sites {
        let place = code(&path(site));
        for (other, reason) in &site.allow_overlap {
            rows.push([
                place.clone(),
                format!("may overlap {}", code(other)),
                plain(reason),
            ]);
        }
        if let Some(reason) = &site.allow_ambiguous {
            let exception = "values may not be told apart".to_owned();
            rows.push([place, exception, plain(reason)]);
        }
    }
    if !rows.is_empty() {
        section(text, "Exceptions", "Allowed at the site, with its reason.");
        table(text, &["Function", "Exception", "Reason"], &rows);
    }
}

fn chances(text: &mut String, inventory: &Inventory, rendered: u64) {
    let count = odds::thousands(rendered);
    let lead = format!(
        "That among {count} different keys of one derivation some two become the same number: then their holders wait for each \
         other without need."
    );
    section(text, "Odds of a collision", &lead);
    let rows: Vec<[String; 5]> = Derivation::ALL
        .into_iter()
        .map(|derivation| {
            let used = inventory.sites.iter().filter(|site| {
                site.derivation == derivation.name()
                    && !is_lease(site)
                    && site.keys.iter().any(|key| key.starts_with("pattern "))
            });
            [
                code(derivation.name()),
                used.count().to_string(),
                derivation.bits().to_string(),
                odds::chance(derivation.collision_odds(rendered)),
                odds::thousands(odds::even(derivation)),
            ]
        })
        .collect();
    let odds = format!("Odds for {count} keys");
    let heads = [
        "Derivation",
        "Lock sites here",
        "Bits",
        &odds,
        "One in two at",
    ];
    table(text, &heads, &rows);
}

fn table<const N: usize>(text: &mut String, heads: &[&str; N], rows: &[[String; N]]) {
    // A column without a cell is none: most registries need no name or component.
    let shown: Vec<usize> = (0..N)
        .filter(|column| rows.iter().any(|row| !row[*column].is_empty()))
        .collect();
    let mut line = |cells: Vec<&str>| {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    line(shown.iter().map(|column| heads[*column]).collect());
    line(shown.iter().map(|_| "---").collect());
    for row in rows {
        line(shown.iter().map(|column| row[*column].as_str()).collect());
    }
}

/// Text of a doc comment or an argument: Markdown already, but for what would end the cell.
fn plain(text: &str) -> String {
    text.replace('|', "\\|")
}

/// A code span that holds back quotes too.
fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let fence = if text.contains('`') { "``" } else { "`" };
    let space = if text.contains('`') { " " } else { "" };
    format!("{fence}{space}{}{space}{fence}", plain(text))
}
