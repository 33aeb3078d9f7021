//! An inventory as a table on a terminal: a row for each key and each claim.

use std::fmt::Write;

use advisory_pattern::{ClaimRecord, LockedKey};

use crate::columns::Columns;
use crate::inventory::{Inventory, claim_line, claim_path, file_line, keys, path, scope_and_mode};
use crate::screen::{DIM, KEY, PLAIN};
use crate::text::printable;

const KEYS: Columns<6> = Columns {
    heads: "KEY | NAME | DERIVATION | SCOPE | FUNCTION | PLACE",
    styles: [KEY, PLAIN, PLAIN, PLAIN, PLAIN, DIM],
    narrowest: NARROWEST,
};
const CLAIMS: Columns<5> = Columns {
    heads: "CLAIMS ON | COLUMNS | TTL | ROW | PLACE",
    styles: [KEY, PLAIN, PLAIN, PLAIN, DIM],
    narrowest: NARROWEST,
};
const NARROWEST: usize = 20;

pub(crate) fn write(inventory: &Inventory, width: Option<usize>) -> String {
    let mut text = String::new();
    let keys = KEYS.draw(&rows(inventory), width);
    let claims = CLAIMS.draw(&claims(inventory), width);
    for table in [keys, claims].iter().filter(|table| !table.is_empty()) {
        let _ = writeln!(text, "{table}");
    }
    let _ = writeln!(text, "{}", printable(&inventory.summary()));
    text
}

fn rows(inventory: &Inventory) -> Vec<[String; 6]> {
    let mut rows = Vec::new();
    for site in &inventory.sites {
        for key in &keys(site) {
            let derivation = match &key.known {
                None => "at run time",
                Some(LockedKey::BigInt(_) | LockedKey::IntInt(..)) => "fixed",
                Some(LockedKey::Pattern(_)) if key.is_lease => "text",
                Some(LockedKey::Pattern(_) | LockedKey::IntPattern(..)) => &site.derivation,
            };
            let mut scope = scope_and_mode(site).unwrap_or_else(|| "where used".to_owned());
            if !site.guards.is_empty() {
                let _ = write!(scope, ", guards {}", site.guards.join(", "));
            }
            let row = [
                key.written.to_owned(),
                site.name.clone().unwrap_or_default(),
                derivation.to_owned(),
                scope,
                path(site),
                file_line(site),
            ];
            rows.push(row.map(|cell| printable(&cell)));
        }
    }
    rows
}

fn claims(inventory: &Inventory) -> Vec<[String; 5]> {
    let claims = inventory.claims.iter().map(|claim| {
        let row = [
            claim.table.clone(),
            columns(claim).join(", "),
            claim.ttl.clone().unwrap_or_default(),
            claim_path(claim),
            claim_line(claim),
        ];
        row.map(|cell| printable(&cell))
    });
    claims.collect()
}

/// The columns of a claim: `locked_by`, `lease_until (locked_until)`, `tenant_id (per, at most 1)`.
pub(crate) fn columns(claim: &ClaimRecord) -> Vec<String> {
    let columns = claim.columns.iter();
    let columns = columns.map(|(argument, column)| match (&**argument, &claim.limit) {
        ("per", Some(limit)) => format!("{column} (per, at most {limit})"),
        (same, _) if same == column => column.clone(),
        (argument, _) => format!("{column} ({argument})"),
    });
    columns.collect()
}
