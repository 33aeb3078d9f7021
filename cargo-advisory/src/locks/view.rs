//! Draws live locks, leases and claims as tables.

use std::fmt::Write;
use std::time::Duration;

use advisory_runtime::monitor::{Lease, LeaseSummary};

use super::Snapshot;
use super::cells::{DONE, QUERY, claim, lease, row};
use super::{age, tree};
use crate::columns::Columns;
use crate::database::identifier;
use crate::display_width::cut;
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
    for note in [totals(snapshot)].into_iter().chain(hints(snapshot)) {
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
    let unread = snapshot.unread.as_ref().map(ToString::to_string);
    for note in unread.into_iter().chain(hints(snapshot)) {
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
    let leases = snapshot.leases.as_ref().map(lease_rows);
    table(&mut text, &LEASES, &leases.unwrap_or_default(), width);
    let claims = snapshot.claims.iter().map(|(table, row)| claim(table, row));
    table(&mut text, &CLAIMS, &claim_rows(claims), width);
    text
}

/// Puts together the rows that have the same first cell.
fn by_first<const N: usize>(rows: impl Iterator<Item = [String; N]>) -> Vec<Vec<[String; N]>> {
    let mut groups: Vec<Vec<[String; N]>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| group[0][0] == row[0]) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// How many more rows there are than are shown, by their state.
fn more<const N: usize>(state: usize, rest: &[(&str, u64)]) -> [String; N] {
    let all: u64 = rest.iter().map(|(_, count)| count).sum();
    let counts = rest.iter().filter(|(_, count)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    let mut more: [String; N] = std::array::from_fn(|_| String::new());
    more[0] = format!("└─ and {all} more");
    more[state] = counts.join(", ");
    more
}

/// A few claims of each table, and how many more there are.
fn claim_rows(rows: impl Iterator<Item = [String; 5]>) -> Vec<[String; 5]> {
    let mut all = Vec::new();
    for mut group in by_first(rows) {
        let rest = group.split_off(group.len().min(OF_ONE));
        all.append(&mut group);
        let mut states: Vec<&str> = rest.iter().map(|row| row[3].as_str()).collect();
        states.sort_unstable();
        let counts = states.chunk_by(|one, next| one == next);
        let counts: Vec<(&str, u64)> = counts.map(|same| (same[0], same.len() as u64)).collect();
        if !counts.is_empty() {
            all.push(more(3, &counts));
        }
    }
    all
}

/// A few leases of each pattern, and how many more there are.
fn lease_rows(summary: &LeaseSummary) -> Vec<[String; 6]> {
    let mut groups: Vec<(Option<&str>, Vec<&Lease>)> = Vec::new();
    for lease in &summary.leases {
        let pattern = lease.row.pattern.as_deref();
        match groups.iter_mut().find(|(of, _)| *of == pattern) {
            Some((_, group)) => group.push(lease),
            None => groups.push((pattern, vec![lease])),
        }
    }
    for count in &summary.counts {
        let pattern = count.pattern.as_deref();
        if groups.iter().all(|(of, _)| *of != pattern) {
            groups.push((pattern, Vec::new()));
        }
    }
    let mut all = Vec::new();
    for (pattern, leases) in groups {
        let count = summary
            .counts
            .iter()
            .find(|count| count.pattern.as_deref() == pattern);
        let shown = by_first(leases.iter().map(|one| lease(one)));
        let shown: Vec<_> = shown
            .into_iter()
            .flat_map(|group| group.into_iter().take(OF_ONE))
            .collect();
        // A lease that was granted between the two statements is in neither count.
        let rest = |state: &str, counted: Option<u64>| {
            let is_it = |row: &&[String; 6]| row[2] == state;
            counted
                .unwrap_or_default()
                .saturating_sub(shown.iter().filter(is_it).count() as u64)
        };
        let rest = [
            ("held", rest("held", count.map(|count| count.held))),
            (DONE, rest(DONE, count.map(|count| count.done))),
        ];
        if shown.is_empty() {
            let mut label: [String; 6] = std::array::from_fn(|_| String::new());
            label[0] = pattern.map_or_else(|| "without a pattern".to_owned(), one_line);
            all.push(label);
        }
        all.extend(shown);
        if rest.iter().any(|(_, count)| *count > 0) {
            all.push(more(2, &rest));
        }
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
    let unknown = snapshot.unknown.len();
    let mut which = snapshot.older_than.map_or_else(String::new, |bound| {
        format!(" older than {}", bound_text(bound))
    });
    if let Some(filter) = &snapshot.filter {
        let _ = write!(which, " with `{}`", one_line(filter));
    }
    let mut locks = match snapshot.wanted.len() - unknown {
        0 => format!("no advisory locks{which}"),
        some => format!("{}{which}", plural(some, "lock")),
    };
    if unknown > 0 {
        let _ = write!(locks, ", {} of unknown age", plural(unknown, "lock"));
    }
    if !snapshot.wanted.is_empty() {
        let _ = write!(locks, ", {}", plural(waiters, "waiter"));
    }
    format!("{locks} in database `{database}`")
}

/// Of how many locks it is not known whether they are older, and why.
pub(crate) fn unknown(snapshot: &Snapshot) -> Option<String> {
    let bound = bound_text(snapshot.older_than?);
    let locks = &snapshot.locks;
    let of_lock = |at: &usize| age::holders_of(&locks.locks[*at]);
    let is_hidden = |holder: age::HolderOf| {
        let backend = holder.1.ok().and_then(|pid| locks.backend(pid));
        backend.is_some_and(|backend| backend.activity.is_hidden())
    };
    let why = if snapshot.unknown.iter().flat_map(of_lock).any(is_hidden) {
        format!(
            "role `{}` does not see what other roles' sessions do",
            one_line(&locks.role)
        )
    } else {
        "a session-level lock can be older than the transaction and the last statement of its session".to_owned()
    };
    let which = match snapshot.unknown.len() {
        0 => return None,
        1 => "a lock is".to_owned(),
        some => format!("{some} locks are"),
    };
    Some(format!(
        "it is not known whether {which} older than {bound}: {why}"
    ))
}

/// What frees a key whose work is completed.
fn done(snapshot: &Snapshot) -> Option<String> {
    let mut counts = snapshot.leases.iter().flat_map(|summary| &summary.counts);
    let has_done = counts.any(|count| count.done > 0);
    has_done
        .then(|| format!("{DONE}: the work is completed; the key is free when its time is over"))
}

/// What frees a key, and what is not known, and why.
fn hints(snapshot: &Snapshot) -> impl Iterator<Item = String> {
    let unknown = hint(snapshot).into_iter().chain(pooled(snapshot));
    done(snapshot).into_iter().chain(unknown)
}

/// Which of the sessions shown belong to a pooler.
fn pooled(snapshot: &Snapshot) -> Option<String> {
    let shown = snapshot.wanted.iter().map(|at| &snapshot.locks.locks[*at]);
    let shown: Vec<age::HolderOf> = shown.flat_map(age::holders_of).collect();
    let is_shown = |pid: &&i32| shown.iter().any(|(_, id)| *id == Ok(**pid));
    let pids = snapshot.pooled.iter().filter(is_shown);
    let pids: Vec<String> = pids.map(ToString::to_string).collect();
    let which = match pids.as_slice() {
        [] => return None,
        [pid] => format!("{pid} is a session"),
        _ => format!("{} are sessions", pids.join(", ")),
    };
    Some(format!(
        "{which} of a pooler, on which this command ran too: which program left its locks there is not known"
    ))
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
