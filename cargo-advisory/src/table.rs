//! How does an inventory look on a terminal?
//!
//! One row a key, as wide as its cells where nothing limits it. On a terminal the widest columns give way and their cells go on in
//! the next line, so that nothing is cut off; where that leaves too little, each key is a paragraph.

use std::fmt::Write;

use advisory_pattern::LockedKey;
use anstyle::Style;

use crate::inventory::{Inventory, file_line, keys, path};
use crate::screen::{BOLD, DIM, KEY, PLAIN};

const HEADS: [&str; COLUMNS] = ["KEY", "NAME", "DERIVATION", "HELD", "FUNCTION", "PLACE"];
const STYLES: [Style; COLUMNS] = [KEY, PLAIN, PLAIN, PLAIN, PLAIN, DIM];
const COLUMNS: usize = 6;
const GAP: usize = 2;
/// No column gives way further: less is unreadable.
const NARROWEST: usize = 20;

/// Draws the table, and below it which crates it saw.
pub(crate) fn write(inventory: &Inventory, width: Option<usize>) -> String {
    let rows: Vec<[String; COLUMNS]> = rows(inventory);
    let mut text = String::new();
    if !rows.is_empty() {
        if let Some(widths) = fit(&rows, width) {
            let heads = HEADS.map(str::to_owned);
            line(&mut text, &heads, widths, [BOLD; COLUMNS]);
            for row in &rows {
                line(&mut text, row, widths, STYLES);
            }
        } else {
            for row in &rows {
                paragraph(&mut text, row);
            }
        }
        text.push('\n');
    }
    // A `String` takes everything.
    let _ = writeln!(text, "{}", inventory.summary());
    text
}

fn rows(inventory: &Inventory) -> Vec<[String; COLUMNS]> {
    let mut rows = Vec::new();
    for site in &inventory.sites {
        for (nth, key) in keys(site).iter().enumerate() {
            let is_first = nth == 0;
            let once = |cell: String| if is_first { cell } else { String::new() };
            let derivation = match &key.known {
                None => "at run time",
                Some(LockedKey::BigInt(_) | LockedKey::IntInt(..)) => "fixed",
                Some(LockedKey::Pattern(_)) if key.is_lease => "text",
                Some(LockedKey::Pattern(_)) => &site.derivation,
            };
            let held = match (site.scope.as_str(), site.mode.as_str()) {
                ("none", _) => "where used".to_owned(),
                (scope, "exclusive") => scope.to_owned(),
                (scope, mode) => format!("{scope} {mode}"),
            };
            rows.push([
                key.written.to_owned(),
                once(site.name.clone().unwrap_or_default()),
                derivation.to_owned(),
                once(held),
                once(path(site)),
                once(file_line(site)),
            ]);
        }
    }
    rows
}

/// The columns' widths: those of their cells, or less where the terminal is narrower, or `None` where it is too narrow.
fn fit(rows: &[[String; COLUMNS]], width: Option<usize>) -> Option<[usize; COLUMNS]> {
    let mut widths = HEADS.map(|head| head.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    // A column without a cell is none.
    for (column, width) in widths.iter_mut().enumerate() {
        if rows.iter().all(|row| row[column].is_empty()) {
            *width = 0;
        }
    }
    let shown = |widths: &[usize; COLUMNS]| {
        let columns = widths.iter().filter(|width| **width > 0).count();
        widths.iter().sum::<usize>() + GAP * columns.saturating_sub(1)
    };
    while width.is_some_and(|width| shown(&widths) > width) {
        let widest = widths.iter_mut().max();
        match widest {
            Some(widest) if *widest > NARROWEST => *widest -= 1,
            _ => return None,
        }
    }
    Some(widths)
}

fn paragraph(text: &mut String, row: &[String; COLUMNS]) {
    let [key, name, derivation, held, function, place] = row;
    let _ = writeln!(text, "{KEY}{key}{KEY:#}");
    let facts = [name, held, derivation];
    let facts: Vec<&str> = facts
        .map(String::as_str)
        .into_iter()
        .filter(|fact| !fact.is_empty())
        .collect();
    for line in [&facts.join(", "), function] {
        if !line.is_empty() {
            let _ = writeln!(text, "  {line}");
        }
    }
    if !place.is_empty() {
        let _ = writeln!(text, "  {DIM}{place}{DIM:#}");
    }
}

fn line(
    text: &mut String,
    row: &[String; COLUMNS],
    widths: [usize; COLUMNS],
    styles: [Style; COLUMNS],
) {
    let cells: Vec<Vec<String>> = row
        .iter()
        .zip(widths)
        .map(|(cell, width)| wrap(cell, width))
        .collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    for at in 0..height {
        let mut owed = 0;
        for (column, cell) in cells.iter().enumerate() {
            let width = widths[column];
            if width == 0 {
                continue;
            }
            let part = cell.get(at).map_or("", String::as_str);
            if !part.is_empty() {
                let style = styles[column];
                let _ = write!(text, "{:owed$}{style}{part}{style:#}", "");
                owed = 0;
            }
            owed += width + GAP - part.chars().count();
        }
        text.push('\n');
    }
}

/// Cuts a cell into lines, where possible behind a separator.
fn wrap(cell: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest: Vec<char> = cell.chars().collect();
    while width > 0 && rest.len() > width {
        let is_good = |at: &usize| matches!(rest[*at], ':' | '/' | ' ' | ',' | '>' | '_' | '-');
        let good = (width / 2..width).rev().find(is_good);
        let end = good.map_or(width, |at| at + 1);
        let tail = rest.split_off(end);
        lines.push(rest.into_iter().collect::<String>().trim_end().to_owned());
        rest = tail;
    }
    lines.push(rest.into_iter().collect());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use advisory_pattern::Record;

    fn site() -> Record {
        Record {
            kind: "fn".to_owned(),
            name: Some("balance".to_owned()),
            written: vec!["<tenant_id>:balance:<booking_id>".to_owned()],
            keys: vec!["pattern <tenant_id: text>:balance:<booking_id: text>".to_owned()],
            derivation: "fnv1a32".to_owned(),
            scope: "xact".to_owned(),
            mode: "exclusive".to_owned(),
            module: "booking_service::booking_repository".to_owned(),
            function: "pay_balance".to_owned(),
            file: "src/booking_repository.rs".to_owned(),
            line: 23,
            ..Record::default()
        }
    }

    fn drawn(width: Option<usize>) -> String {
        let text = write(&Inventory::of([site()]), width);
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn every_width_shows_every_cell_and_no_line_is_wider() {
        let whole: String = drawn(None).split_whitespace().collect();
        for width in 40..200 {
            let text = drawn(Some(width));
            for line in text.lines() {
                let is_word = line.trim_start().split(' ').count() == 1;
                assert!(line.chars().count() <= width || is_word, "{width}: {line}");
            }
            for cell in ["balance", "xact", "fnv1a32"] {
                assert!(text.contains(cell), "{width}: {text}");
            }
            let letters: String = text.split_whitespace().collect();
            assert!(
                letters.len() >= whole.len() - HEADS.concat().len(),
                "{width}: {text}"
            );
        }
    }

    #[test]
    fn cells_are_cut_behind_separators() {
        assert_eq!(
            wrap("src/booking_repository.rs:23", 20),
            ["src/booking_", "repository.rs:23"]
        );
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
