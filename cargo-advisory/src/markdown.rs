//! Writes an inventory as a registry document, for a team to commit.
//!
//! The document contains nothing that differs between runs or machines: no date, no absolute path,
//! no version.

mod collision_odds;

use std::fmt::Write;

use advisory_pattern::{LockedKey, Part, Permits, Record};

use crate::inventory::{
    DeclaredLocks, Inventory, Key, claim_line, claim_path, file_line, keys, path,
};
use crate::table;
use crate::text::joined;

/// Writes the document, with the odds of a collision among `key_count` keys.
pub(crate) fn write(inventory: &Inventory, key_count: u64) -> String {
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
        // A call that locks two accounts has one row.
        if rows.last() != Some(&row) {
            rows.push(row);
        }
    }
    let patterns_lead = if inventory.sites.iter().any(|site| site.kind == "struct") {
        "One lock for each different rendering; `<…>` is a value of the call. Below a declared lock are the functions that take it."
    } else {
        "One lock for each different rendering; `<…>` is a value of the call."
    };
    let unknown_lead =
        "The expression that makes the key. A declared lock's own row has its pattern.";
    let fixed_lead = "One lock each, for the whole database.";
    let mut part = |title, lead, key: &str, rows: &[[String; 9]]| {
        section(&mut text, title, lead, &format!("{key} | {HEADS}"), rows);
    };
    part("Fixed keys", fixed_lead, "Lock ID", &fixed);
    part("Keys by pattern", patterns_lead, "Key pattern", &patterns);
    let title = "Keys known only at run time";
    part(title, unknown_lead, "Expression", &unknown);
    claims(&mut text, inventory);
    exceptions(&mut text, inventory);
    let lead = collision_odds::lead(key_count);
    let count = collision_odds::thousands(key_count);
    let heads =
        format!("Derivation | Lock sites here | Bits | Odds for {count} keys | One in two at");
    let rows = collision_odds::rows(inventory, key_count);
    section(&mut text, "Odds of a collision", &lead, &heads, &rows);
    text
}

/// The keys of all sites. A key that is a declared lock gets the lock's pattern, and its name,
/// component and purpose if the site has none.
fn rows(inventory: &Inventory) -> Vec<(Record, Key<'_>)> {
    let declared = DeclaredLocks::of(inventory);
    let mut rows = Vec::new();
    for site in &inventory.sites {
        for key in keys(site) {
            let mut site = site.clone();
            let Some((lock, pattern)) = declared.key(&key) else {
                rows.push((site, key));
                continue;
            };
            site.name = site.name.or_else(|| lock.name.clone());
            site.component = site.component.or_else(|| lock.component.clone());
            site.purpose = site.purpose.or_else(|| lock.purpose.clone());
            site.derivation.clone_from(&lock.derivation);
            if site.guards.is_empty() {
                site.guards.clone_from(&lock.guards);
            }
            rows.push((site, pattern));
        }
    }
    rows
}

/// The sort key of a row: the lock's text without the names of placeholders, then its declaration
/// before its functions. It has no line number, so moving a function does not change the document.
fn order(site: &Record, key: &Key<'_>) -> (String, bool, String) {
    let text = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Placeholder(_) => "<>".to_owned(),
    };
    let lock = match &key.known {
        Some(known) if key.is_derived() => known.text().parts.iter().map(text).collect(),
        _ => String::new(),
    };
    (lock, site.kind != "struct", path(site))
}

/// The heads of the table of keys, after that of the key.
const HEADS: &str =
    "Name | Component | Purpose | Scope | Lock type | Number | Function | File reference";

/// The number column of a lease.
const LEASE_NUMBER: &str = "none: SHA-256 of the text, in the lease table";

fn row(site: &Record, key: &Key<'_>, inventory: &Inventory) -> [String; 9] {
    let (written, derivation) = (code(key.written), &site.derivation);
    let derived = || format!("{derivation} of {written}");
    let (id, number) = match (&key.known, key.number()) {
        _ if key.is_lease => (written, LEASE_NUMBER.to_owned()),
        (Some(LockedKey::Pattern(_)), Some(number)) => (code(&number.to_string()), derived()),
        (Some(LockedKey::BigInt(number)), _) => {
            (code(&number.to_string()), "fixed, `bigint`".to_owned())
        }
        (Some(LockedKey::IntInt(..)), _) => (written, "fixed, `(int, int)`".to_owned()),
        (Some(LockedKey::Pattern(_)), None) => (written, derivation.clone()),
        (Some(LockedKey::IntPattern(..)), _) => match key.pair() {
            Some([Some(first), Some(second)]) => (code(&format!("({first}, {second})")), derived()),
            _ => (written, format!("{derivation}, `(int, int)`")),
        },
        (None, _) => (written, String::new()),
    };
    [
        id,
        site.name.as_deref().map(code).unwrap_or_default(),
        plain(site.component.as_deref().unwrap_or_default()),
        plain(site.purpose.as_deref().unwrap_or_default()),
        extent(key),
        lock_type(site),
        number,
        code(&path(site)),
        code(&in_crate(&site.krate, file_line(site), inventory)),
    ]
}

/// `src/slot.rs:24`, after the crate's name if there are several crates.
fn in_crate(krate: &str, place: String, inventory: &Inventory) -> String {
    let of_sites = inventory.sites.iter().map(|site| &site.krate);
    let of_claims = inventory.claims.iter().map(|claim| &claim.krate);
    let is_only = of_sites.chain(of_claims).all(|other| other == krate);
    if is_only || place.is_empty() {
        return place;
    }
    format!("{krate}: {place}")
}

/// The calls that exclude each other: `Global`, `Per tenant_id (uuid) + date (date)`. The key
/// depends on the shapes, which come from the types if the pattern has none.
fn extent(key: &Key<'_>) -> String {
    match &key.known {
        Some(LockedKey::Pattern(pattern) | LockedKey::IntPattern(_, pattern)) => {
            let names = pattern
                .placeholders()
                .map(|placeholder| match placeholder.shape {
                    Some(shape) => format!("{} ({})", placeholder.name(), shape.name()),
                    None => placeholder.name(),
                });
            match joined(names, " + ") {
                none if none.is_empty() => "Global".to_owned(),
                names => format!("Per {names}"),
            }
        }
        Some(LockedKey::IntInt(first, second)) if first.is_none() || second.is_none() => {
            "Per number".to_owned()
        }
        Some(_) => "Global".to_owned(),
        None => "Per key".to_owned(),
    }
}

/// `Transaction (pg_advisory_xact_lock)`, and the durations of the site's arguments.
fn lock_type(site: &Record) -> String {
    let shared = if site.mode == "shared" { "_shared" } else { "" };
    let is_try = site.wait.as_deref() == Some("never") || site.poll.is_some();
    let never = if is_try { "try_" } else { "" };
    let mut text = match site.scope.as_str() {
        "xact" => format!("Transaction (`pg_{never}advisory_xact_lock{shared}`)"),
        "session" => format!("Session (`pg_{never}advisory_lock{shared}`)"),
        "lease" if never.is_empty() => "Lease (a row that is renewed)".to_owned(),
        "lease" => "Lease (a row that is renewed), does not wait".to_owned(),
        "none" => "Declared; held where it is used".to_owned(),
        other => plain(other),
    };
    let wait = site.wait.as_ref().filter(|wait| *wait != "never");
    let settings = [
        ("waits", wait.map(String::as_str)),
        ("asks every", site.poll.as_deref()),
        ("held", site.max_hold.as_deref()),
        ("isolation", site.isolation.as_deref()),
        ("ttl", site.ttl.as_deref()),
        ("renewed every", site.renew.as_deref()),
        ("kept after `Ok` for", site.keep.as_deref()),
    ];
    for (what, value) in settings {
        if let Some(value) = value {
            // Anything but a time and a level is an expression.
            let is_word = value == "forever"
                || what == "isolation"
                || value.starts_with(|c: char| c.is_ascii_digit());
            let value = if is_word { plain(value) } else { code(value) };
            let _ = write!(text, ", {what} {value}");
        }
    }
    let permits = match &site.permits {
        Some(Permits::Number(permits)) => format!(", at most {permits} at once"),
        Some(Permits::Expression(permits)) => format!(", at most {} at once", code(permits)),
        None => String::new(),
    };
    text.push_str(&permits);
    if !site.guards.is_empty() {
        let tables = joined(site.guards.iter().map(|table| code(table)), ", ");
        let _ = write!(text, ", guards {tables}");
    }
    text
}

fn claims(text: &mut String, inventory: &Inventory) {
    let cell = |value: &Option<String>| plain(value.as_deref().unwrap_or_default());
    let rows = inventory.claims.iter().map(|claim| {
        let mut lasts = cell(&claim.ttl);
        if claim.renew.is_some() {
            let _ = write!(lasts, ", renewed every {}", cell(&claim.renew));
        }
        [
            code(&claim.table),
            cell(&claim.purpose),
            joined(table::columns(claim).iter().map(|it| plain(it)), ", "),
            lasts.trim_start_matches(", ").to_owned(),
            cell(&claim.max_attempts),
            code(&claim_path(claim)),
            code(&in_crate(&claim.krate, claim_line(claim), inventory)),
        ]
    });
    let mut rows: Vec<[String; 7]> = rows.collect();
    // As for keys, moving a type does not change the document.
    rows.sort_by(|a, b| (&a[0], &a[5]).cmp(&(&b[0], &b[5])));
    let lead =
        "Tables whose rows workers claim: a claim is written into the row, and takes no lock.";
    let heads = "Table | Purpose | Columns | Lasts | Attempts | Row | File reference";
    section(text, "Claims", lead, heads, &rows);
}

fn exceptions(text: &mut String, inventory: &Inventory) {
    let mut rows = Vec::new();
    for site in &inventory.sites {
        let place = code(&path(site));
        let mut add = |what: String, reason| rows.push([place.clone(), what, plain(reason)]);
        for (other, reason) in &site.allow_overlap {
            add(format!("may overlap {}", code(other)), reason);
        }
        if let Some(reason) = &site.allow_ambiguous {
            add("values may not be distinguishable".to_owned(), reason);
        }
        if let Some(reason) = &site.allow_redundant {
            let what = "a constraint can say a rule on its columns";
            add(what.to_owned(), reason);
        }
    }
    let lead = "Allowed at the site, with its reason.";
    let heads = "Function | Exception | Reason";
    section(text, "Exceptions", lead, heads, &rows);
}

/// Writes a section with a table; nothing without rows.
fn section<const N: usize>(
    text: &mut String,
    title: &str,
    lead: &str,
    heads: &str,
    rows: &[[String; N]],
) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(text, "\n## {title}\n\n{lead}\n\n");
    let heads: Vec<&str> = heads.split(" | ").collect();
    // Empty columns are omitted: in most registries no lock has a name or a component.
    let columns = (0..N).filter(|column| rows.iter().any(|row| !row[*column].is_empty()));
    let columns: Vec<usize> = columns.collect();
    let mut line = |cells: Vec<&str>| {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    line(columns.iter().map(|column| heads[*column]).collect());
    line(columns.iter().map(|_| "---").collect());
    for row in rows {
        line(columns.iter().map(|column| row[*column].as_str()).collect());
    }
}

/// Text of a doc comment or an argument, which is Markdown. Each `|` that would end the cell is
/// escaped.
fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut is_escaped = false;
    for character in text.chars() {
        if character == '|' && !is_escaped {
            escaped.push('\\');
        }
        is_escaped = character == '\\' && !is_escaped;
        escaped.push(character);
    }
    escaped
}

/// A code span. Its fence is longer than any run of backticks in the text.
fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let runs = text.split(|character| character != '`').map(str::len);
    let longest = runs.max().unwrap_or_default();
    let fence = "`".repeat(longest + 1);
    let space = if longest > 0 { " " } else { "" };
    format!("{fence}{space}{}{space}{fence}", plain(text))
}
