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
    let columns =
        claim.columns.iter().map(
            |(argument, column)| match (argument.as_str(), &claim.limit) {
                ("per", Some(limit)) => format!("{column} (per, at most {limit})"),
                (same, _) if same == column => column.clone(),
                (argument, _) => format!("{column} ({argument})"),
            },
        );
    columns.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display_width;
    use crate::inventory::tests::record;
    use advisory_pattern::Record;

    fn site() -> Record {
        let key = "pattern <tenant_id: text>:balance:<booking_id: text>";
        Record {
            name: Some("balance".to_owned()),
            written: vec!["<tenant_id>:balance:<booking_id>".to_owned()],
            derivation: "fnv1a32".to_owned(),
            module: "booking_service::booking_repository".to_owned(),
            function: "pay_balance".to_owned(),
            file: "src/booking_repository.rs".to_owned(),
            line: 23,
            ..record("xact", key)
        }
    }

    fn inventory(site: Record) -> Inventory {
        Inventory {
            sites: vec![site],
            ..Inventory::default()
        }
    }

    fn drawn(width: Option<usize>) -> String {
        let text = write(&inventory(site()), width);
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn a_record_steers_no_terminal() {
        let mut site = site();
        site.written[0].push('\u{202e}');
        site.function.push('\u{9b}');
        site.krate.push('\u{2066}');
        for width in [None, Some(40)] {
            let text = write(&inventory(site.clone()), width);
            let text = anstream::adapter::strip_str(&text).to_string();
            let text = text.replace('\n', "");
            assert!(!text.contains(crate::text::controls_terminal), "{text:?}");
        }
    }

    #[test]
    fn each_of_several_keys_has_a_whole_row() {
        let mut site = site();
        site.written.push("<tenant_id>:invoice".to_owned());
        site.keys
            .push("pattern <tenant_id: text>:invoice".to_owned());
        let rows = rows(&inventory(site));
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0][1..], rows[1][1..]);
    }

    #[test]
    fn every_width_shows_every_cell_and_no_line_is_wider() {
        let whole: String = drawn(None).split_whitespace().collect();
        for width in 40..200 {
            let text = drawn(Some(width));
            for line in text.lines() {
                let is_word = line.trim_start().split(' ').count() == 1;
                let fits = display_width::of(line) <= width;
                assert!(fits || is_word, "{width}: {line}");
            }
            for cell in ["balance", "xact", "fnv1a32"] {
                assert!(text.contains(cell), "{width}: {text}");
            }
            let letters: String = text.split_whitespace().collect();
            let least = whole.len() - KEYS.heads.replace(" | ", "").len();
            assert!(letters.len() >= least, "{width}: {text}");
        }
    }
}
