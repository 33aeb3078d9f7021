//! How do live locks look on a terminal?

use std::fmt::Write;
use std::time::Duration;

use super::Snapshot;
use super::cells::{QUERY, claim, cut, lease, row};
use super::tree;
use crate::columns::Columns;
use crate::database::identifier;
use crate::duration::short;
use crate::screen::{BOLD, DIM, KEY, PLAIN, one_line, plural};

const LOCKS: Columns<8> = Columns {
    heads: [
        "LOCK",
        "PID",
        "SCOPE",
        "WAITS",
        "TRANSACTION",
        "BACKEND",
        "STATE",
        "QUERY",
    ],
    styles: [KEY, BOLD, PLAIN, BOLD, PLAIN, PLAIN, PLAIN, DIM],
    narrowest: NARROWEST,
};
const LEASES: Columns<6> = Columns {
    heads: ["LEASE", "HOLDER", "STATE", "TOKEN", "AGE", "EXPIRES IN"],
    styles: [KEY, PLAIN, PLAIN, PLAIN, PLAIN, BOLD],
    narrowest: NARROWEST,
};
const CLAIMS: Columns<5> = Columns {
    heads: ["CLAIMS ON", "ROW", "WORKER", "STATE", "EXPIRES IN"],
    styles: [KEY, PLAIN, PLAIN, PLAIN, BOLD],
    narrowest: NARROWEST,
};
const NARROWEST: usize = 11;
/// A query is not cut shorter.
const SHORTEST: usize = 20;
/// How many leases of one pattern, and claims of one table, are shown.
const OF_ONE: usize = 3;

/// Draws the locks, the leases and the notes.
pub(crate) fn write(snapshot: &Snapshot, width: Option<usize>) -> String {
    let mut text = tables(snapshot, width, None);
    for note in [totals(snapshot)].into_iter().chain(hint(snapshot)) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{note}");
    }
    text
}

/// Draws the same for `--watch`: what was counted comes first, and no more lines than the terminal has.
pub(crate) fn frame(snapshot: &Snapshot, width: Option<usize>, height: Option<usize>) -> String {
    let mut text = totals(snapshot);
    text.push_str("\n\n");
    text.push_str(&tables(snapshot, width, height));
    if let Some(note) = hint(snapshot) {
        let _ = writeln!(text, "{note}");
    }
    text
}

fn tables(snapshot: &Snapshot, width: Option<usize>, most: Option<usize>) -> String {
    let locks = &snapshot.locks;
    let mut text = String::new();
    let mut lines = tree::lines(locks, &snapshot.wanted);
    // The rest would not be seen, and would only make the columns wider.
    lines.truncate(most.unwrap_or(usize::MAX));
    let rows: Vec<[String; 8]> = lines.iter().map(|line| row(locks, line)).collect();
    table(&mut text, &LOCKS, &shortened(&rows, width), width);
    let leases = snapshot.leases.iter().flatten().map(lease);
    table(&mut text, &LEASES, &by_first(leases, 2), width);
    let claims = snapshot.claims.iter().map(|(table, row)| claim(table, row));
    table(&mut text, &CLAIMS, &by_first(claims, 3), width);
    text
}

/// Puts together the rows that have the same first cell: a few of them, and how many more there are in which state.
fn by_first<const N: usize>(
    rows: impl Iterator<Item = [String; N]>,
    state: usize,
) -> Vec<[String; N]> {
    let mut groups: Vec<Vec<[String; N]>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| group[0][0] == row[0]) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    let mut all = Vec::new();
    for mut group in groups {
        let rest = group.split_off(group.len().min(OF_ONE));
        all.append(&mut group);
        if rest.is_empty() {
            continue;
        }
        let mut states: Vec<&str> = rest.iter().map(|row| row[state].as_str()).collect();
        states.sort_unstable();
        let counts: Vec<String> = states
            .chunk_by(|one, next| one == next)
            .map(|same| format!("{} {}", same.len(), same[0]))
            .collect();
        let mut more: [String; N] = std::array::from_fn(|_| String::new());
        more[0] = format!("└─ and {} more", rest.len());
        more[state] = counts.join(", ");
        all.push(more);
    }
    all
}

/// Shortens the queries until the table fits, but not below a useful length.
fn shortened(rows: &[[String; 8]], width: Option<usize>) -> Vec<[String; 8]> {
    let cut_to = |most: usize| -> Vec<[String; 8]> {
        let rows = rows.iter().cloned();
        rows.map(|mut row| {
            row[7] = cut(&row[7], most);
            row
        })
        .collect()
    };
    let fits = |most: &usize| width.is_none_or(|width| LOCKS.width(&cut_to(*most)) <= width);
    let most = (SHORTEST..=QUERY).rev().find(fits);
    cut_to(most.unwrap_or(SHORTEST))
}

fn table<const N: usize>(
    text: &mut String,
    grid: &Columns<N>,
    rows: &[[String; N]],
    width: Option<usize>,
) {
    if rows.is_empty() {
        return;
    }
    match grid.draw(rows, width) {
        Some(drawn) => text.push_str(&drawn),
        None => rows.iter().for_each(|row| paragraph(text, grid, row)),
    }
    text.push('\n');
}

/// For a narrow terminal: the first cell, and below it the other cells with their heads.
fn paragraph<const N: usize>(text: &mut String, grid: &Columns<N>, row: &[String; N]) {
    let first = grid.styles[0];
    let _ = writeln!(text, "{first}{}{first:#}", row[0]);
    let cells = grid.heads.iter().zip(row).skip(1);
    let cells: Vec<String> = cells
        .filter(|(_, cell)| !cell.is_empty())
        .map(|(head, cell)| format!("{} {cell}", head.to_lowercase()))
        .collect();
    let _ = writeln!(text, "    {}", cells.join(", "));
}

/// How many locks and waiters there are.
fn totals(snapshot: &Snapshot) -> String {
    let database = one_line(&snapshot.locks.database);
    let shown = snapshot.wanted.iter().map(|at| &snapshot.locks.locks[*at]);
    let waiters: usize = shown.map(|lock| lock.waiters.len()).sum();
    let mut which = snapshot.older_than.map_or_else(String::new, |bound| {
        format!(" older than {}", bound_text(bound))
    });
    if let Some(filter) = &snapshot.filter {
        let _ = write!(which, " with `{}`", one_line(filter));
    }
    match snapshot.wanted.len() {
        0 => format!("no advisory locks{which} in database `{database}`"),
        some => {
            let locks = plural(some, "lock");
            let waiters = plural(waiters, "waiter");
            format!("{locks}{which}, {waiters} in database `{database}`")
        }
    }
}

/// What the role does not see.
fn hint(snapshot: &Snapshot) -> Option<String> {
    let locks = &snapshot.locks;
    let is_hidden = locks
        .backends
        .iter()
        .any(|backend| backend.activity.is_hidden());
    is_hidden.then(|| {
        format!(
            "role `{}` sees neither what other roles' sessions do nor the lock names in their queries: GRANT pg_monitor TO {}",
            one_line(&locks.role),
            identifier(&locks.role)
        )
    })
}

fn bound_text(bound: Duration) -> String {
    if bound.subsec_millis() == 0 && bound.as_secs() < 60 {
        return format!("{}s", bound.as_secs());
    }
    short(bound)
}
