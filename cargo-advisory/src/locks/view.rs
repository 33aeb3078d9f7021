//! Draws live locks, leases and claims as tables.

use std::fmt::Write;
use std::time::Duration;

use advisory_pattern::Placeholder;
use advisory_runtime::monitor::{Lease, LeaseSummary, Lock, Name};

use super::Snapshot;
use super::cells::{
    BACKEND, DONE, EXPIRED, HELD, LABEL, OVERDUE, QUERY, RUNNING, TRANSACTION, claim, lease,
};
use super::{age, causes, renewal, tree};
use crate::columns::Columns;
use crate::database::identifier;
use crate::display_width::{self, cut, wrapped};
use crate::duration::short;
use crate::screen::{BOLD, DIM, KEY, PLAIN};
use crate::text::{joined, one_line, plural, shell_word};

const LOCKS: Columns<7> = Columns {
    heads: "LOCK | PID | SCOPE | TRANSACTION | BACKEND | STATE | QUERY",
    styles: [KEY, BOLD, PLAIN, PLAIN, PLAIN, PLAIN, DIM],
    narrowest: NARROWEST,
};
const LEASES: Columns<7> = Columns {
    heads: "LEASE | HOLDER | STATE | TOKEN | AGE | RENEWED | EXPIRES IN",
    styles: [KEY, PLAIN, PLAIN, PLAIN, PLAIN, PLAIN, BOLD],
    narrowest: NARROWEST,
};
const CLAIMS: Columns<5> = Columns {
    heads: "CLAIMS ON | ROW | WORKER | STATE | EXPIRES IN",
    styles: [KEY, PLAIN, PLAIN, PLAIN, BOLD],
    narrowest: NARROWEST,
};
const HOLDER: usize = 1;
const TOKEN: usize = 3;
const NARROWEST: usize = 11;
/// The shortest widths to which a query, the name of a program, and the name of a lock are cut.
const SHORTEST: usize = 20;
const SHORTEST_NAME: usize = 12;
const SHORTEST_LABEL: usize = 24;
/// At most this many leases of one pattern, and claims of one table, are shown.
const OF_ONE: usize = 3;

pub(crate) fn write(snapshot: &Snapshot, width: Option<usize>) -> String {
    let totals = [totals(snapshot)].into_iter();
    tables(snapshot, width, None)
        + &causes::text(snapshot, width)
        + &notes(totals.chain(hints(snapshot)), width)
}

/// Draws the view for `--watch`: the totals come first, and there are no more rows than the
/// terminal has lines.
pub(crate) fn frame(snapshot: &Snapshot, width: Option<usize>, height: Option<usize>) -> String {
    let unread = snapshot.unread.as_ref().map(ToString::to_string);
    // The causes come before the tables, which can be longer than the terminal.
    notes([totals(snapshot)], width)
        + "\n"
        + &causes::text(snapshot, width)
        + &tables(snapshot, width, height)
        + &notes(unread.into_iter().chain(hints(snapshot)), width)
}

fn notes(notes: impl IntoIterator<Item = String>, width: Option<usize>) -> String {
    let notes = notes.into_iter().map(|note| note + "\n");
    wrapped(&notes.collect::<String>(), width)
}

fn tables(snapshot: &Snapshot, width: Option<usize>, most: Option<usize>) -> String {
    let locks = &snapshot.locks;
    let mut rows = tree::rows(locks, &snapshot.wanted, snapshot.filter.is_none());
    // Nobody would see the rest, and it would only make the columns wider.
    rows.truncate(most.unwrap_or(usize::MAX));
    let fitting = fitted(&LOCKS, &rows, width, &LOCK_STEPS);
    let locks = LOCKS.draw(&fitting.unwrap_or(rows), width);
    let leases = snapshot.leases.as_ref().map(lease_rows);
    let fitting = fitted(&LEASES, &leases.unwrap_or_default(), width, &LEASE_STEPS);
    let leases = LEASES.draw(&fitting.unwrap_or_else(|rows| rows), width);
    let claims = snapshot.claims.rows.iter();
    let claims = claim_rows(claims.map(|(table, row)| claim(table, row)));
    let fitting = fitted(&CLAIMS, &claims, width, &CLAIM_STEPS);
    let claims = CLAIMS.draw(&fitting.unwrap_or(claims), width);
    let tables = [locks, leases, claims].into_iter();
    let tables = tables.filter(|table| !table.is_empty());
    tables.map(|table| table + "\n").collect()
}

/// Groups rows by their key, in the order in which the keys come first.
fn groups<K: PartialEq, T>(rows: impl Iterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for (key, row) in rows {
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(row),
            None => groups.push((key, vec![row])),
        }
    }
    groups
}

/// A row that counts the rows that are not shown, by their state.
fn more<const N: usize>(state: usize, rest: &[(&str, u64)]) -> [String; N] {
    let all: u64 = rest.iter().map(|(_, count)| count).sum();
    let counts = rest.iter().filter(|(_, count)| *count > 0);
    let mut more: [String; N] = std::array::from_fn(|_| String::new());
    more[0] = format!("└─ and {all} more");
    more[state] = joined(counts.map(|(name, count)| format!("{count} {name}")), ", ");
    more
}

/// A few claims of each table, and the number of the others.
fn claim_rows(rows: impl Iterator<Item = [String; 5]>) -> Vec<[String; 5]> {
    let mut all = Vec::new();
    for (_, mut group) in groups(rows.map(|row| (row[0].clone(), row))) {
        let rest = group.split_off(group.len().min(OF_ONE));
        all.append(&mut group);
        let count = |state| rest.iter().filter(|row| row[3] == state).count() as u64;
        if !rest.is_empty() {
            let counts = [EXPIRED, RUNNING].map(|state| (state, count(state)));
            all.push(more(3, &counts));
        }
    }
    all
}

/// A few leases of each pattern, and the number of the others.
fn lease_rows(summary: &LeaseSummary) -> Vec<[String; 7]> {
    let leases = summary.leases.iter();
    let leases = leases.map(|lease| (lease.row.pattern.as_deref(), Some(lease)));
    let counts = summary.counts.iter();
    let counts = counts.map(|count| (count.pattern.as_deref(), None));
    let mut all = Vec::new();
    for (pattern, leases) in groups(leases.chain(counts)) {
        let mut counts = summary.counts.iter();
        let count = counts.find(|count| count.pattern.as_deref() == pattern);
        let cells = leases.into_iter().flatten().map(lease);
        let shown = groups(cells.map(|row| (row[0].clone(), row))).into_iter();
        let shown: Vec<_> = shown
            .flat_map(|(_, group)| group.into_iter().take(OF_ONE))
            .collect();
        let (held, done) = count.map_or((0, 0), |count| (count.held, count.done));
        let shown_done = shown.iter().filter(|row| row[2] == DONE).count() as u64;
        let shown_held = shown.len() as u64 - shown_done;
        // A lease that was granted between the two statements is in neither count.
        let rest = [
            (HELD, held.saturating_sub(shown_held)),
            (DONE, done.saturating_sub(shown_done)),
        ];
        if shown.is_empty() {
            let mut label: [String; 7] = Default::default();
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

/// A step that makes a table narrower: a change of each row, and the columns that are then cut in
/// this order, each down to its shortest width.
type Step<const N: usize> = (fn(&mut [String; N]), &'static [(usize, usize)]);

/// Shortens queries, then leaves out the ages of transactions and the queries, and shortens names
/// last. The causes below the table show their queries.
const LOCK_STEPS: [Step<7>; 4] = [
    (|_| (), &[(QUERY, SHORTEST)]),
    (|row| row[TRANSACTION].clear(), &[(QUERY, SHORTEST)]),
    (|row| row[QUERY].clear(), &[]),
    (
        without_role,
        &[(BACKEND, SHORTEST_NAME), (LABEL, SHORTEST_LABEL)],
    ),
];
const LEASE_NAMES: &[(usize, usize)] = &[(HOLDER, SHORTEST_NAME), (LABEL, SHORTEST_LABEL)];
/// Shortens names, then leaves out the tokens.
const LEASE_STEPS: [Step<7>; 3] = [
    (|_| (), LEASE_NAMES),
    (|row| row[TOKEN].clear(), LEASE_NAMES),
    (|_| (), &[(HOLDER, SHORTEST_NAME), (LABEL, SHORTEST_NAME)]),
];
const CLAIM_STEPS: [Step<5>; 1] = [(
    |_| (),
    &[(2, SHORTEST_NAME), (1, SHORTEST_NAME), (0, SHORTEST_NAME)],
)];

/// Leaves the program, without the role and the address.
fn without_role(row: &mut [String; 7]) {
    if let Some(end) = row[BACKEND].find(" (") {
        row[BACKEND].truncate(end);
    }
}

/// Makes a table as narrow as the screen, so that each row is one line, in as few steps as possible.
/// If all are not enough, the error has the rows without what the steps leave out.
fn fitted<const N: usize>(
    grid: &Columns<N>,
    rows: &[[String; N]],
    width: Option<usize>,
    steps: &[Step<N>],
) -> Result<Vec<[String; N]>, Vec<[String; N]>> {
    let fits = |rows: &[[String; N]]| width.is_none_or(|width| grid.width(rows) <= width);
    let mut rows = rows.to_vec();
    for (change, columns) in steps {
        rows.iter_mut().for_each(change);
        let mut cut_rows = rows.clone();
        for (column, shortest) in *columns {
            let widths = cut_rows.iter().map(|row| display_width::of(&row[*column]));
            let mut most = widths.max().unwrap_or_default();
            while !fits(&cut_rows) && most > *shortest {
                most -= 1;
                for row in &mut cut_rows {
                    row[*column] = cut(&row[*column], most);
                }
            }
        }
        if fits(&cut_rows) {
            return Ok(cut_rows);
        }
    }
    Err(rows)
}

fn totals(snapshot: &Snapshot) -> String {
    let database = one_line(&snapshot.locks.database);
    let waiters: usize = snapshot.wanted().map(|lock| lock.waiters.len()).sum();
    let unknown = snapshot.unknown.len();
    let bound = snapshot.older_than.map(bound_text);
    let which = bound.as_ref().map(|it| format!(" older than {it}"));
    let mut which = which.unwrap_or_default();
    if let Some(filter) = &snapshot.filter {
        let _ = write!(which, " with `{}`", one_line(filter));
    }
    let mut text = match snapshot.wanted.len() - unknown {
        0 => format!("no advisory locks{which}"),
        some => format!("{}{which}", plural(some, "lock")),
    };
    if unknown > 0 {
        let _ = write!(text, ", {} of unknown age", plural(unknown, "lock"));
    }
    if !snapshot.wanted.is_empty() {
        let _ = write!(text, ", {}", plural(waiters, "waiter"));
    }
    let _ = write!(text, " in database `{database}`");
    if let Some(bound) = bound {
        let leases = snapshot.leases().count();
        let unknown = unknown_leases(snapshot).len();
        if leases > unknown {
            let leases = plural(leases - unknown, "lease");
            let _ = write!(text, "; {leases} not renewed for {bound}");
        }
        if unknown > 0 {
            let _ = write!(text, "; {} of unknown renewal", plural(unknown, "lease"));
        }
        if !snapshot.claims.rows.is_empty() {
            let claims = plural(snapshot.claims.rows.len(), "claim");
            let _ = write!(text, "; {claims} expired for {bound} and not taken over");
        }
    }
    text
}

pub(crate) fn unknown(snapshot: &Snapshot) -> Option<String> {
    let bound = bound_text(snapshot.older_than?);
    let locks = &snapshot.locks;
    let of_lock = |at: &usize| age::holders_of(&locks.locks[*at]);
    let holders: Vec<age::HolderOf> = snapshot.unknown.iter().flat_map(of_lock).collect();
    let pids = holders.iter().filter_map(|(_, id)| id.as_ref().ok());
    let mut backends = pids.filter_map(|pid| locks.backend(*pid));
    let why = if backends.any(|backend| backend.activity.is_hidden()) {
        let role = one_line(&locks.role);
        format!("role `{role}` does not see what other roles' sessions do")
    } else if holders.iter().all(|(_, id)| id.is_err()) {
        "the server does not record when a prepared transaction began".to_owned()
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

pub(crate) fn unknown_leases(snapshot: &Snapshot) -> Vec<&Lease> {
    let bound = snapshot.older_than;
    let can_be_older = |lease: &&Lease| bound.is_some_and(|it| renewal::can_be_older(lease, it));
    snapshot.leases().filter(can_be_older).collect()
}

/// The meaning of the leases' states, and the commands that free their keys.
fn lease_hints(snapshot: &Snapshot) -> Vec<String> {
    let counts = || snapshot.leases.iter().flat_map(|it| &it.counts);
    let held: u64 = counts().map(|count| count.held).sum();
    let done: u64 = counts().map(|count| count.done).sum();
    let renewals = snapshot.leases().filter_map(renewal::of);
    let overdue = renewals.into_iter().any(|renewal| renewal.is_overdue);
    let mut hints = Vec::new();
    if overdue {
        hints.push(format!(
            "{OVERDUE}: not renewed in time, so its holder is dead, stopped, or cannot reach the server"
        ));
    }
    if done > 0 {
        hints.push(format!(
            "{DONE}: the work is completed; the key is free when it expires"
        ));
    }
    if held + done > 0 || overdue {
        hints.push(
            "a key is free at once after `cargo advisory lease release KEY`; `cargo advisory lease list` has the keys"
                .to_owned(),
        );
    }
    // With `--older-than` it is why the command fails.
    if snapshot.older_than.is_none() {
        let unknown = renewal::unknowns(snapshot.leases()).into_iter();
        hints.extend(unknown.map(str::to_owned));
    }
    hints
}

/// The meaning of the claimed rows' states, their ends, and the claims that are not shown.
fn claim_hints(snapshot: &Snapshot) -> Vec<String> {
    let rows = || snapshot.claims.rows.iter().map(|(_, row)| row);
    let mut hints = Vec::new();
    if rows().any(|row| row.remaining.is_zero()) {
        hints.push(format!(
            "{EXPIRED}: not renewed in time, so its worker is dead, stopped, or cannot reach the server; any worker \
             takes the row again, after its `backoff` if it has one, or fails it after its last attempt: start a worker, and write \
             nothing by hand"
        ));
    }
    if rows().any(|row| !row.remaining.is_zero()) {
        hints.push(format!(
            "{RUNNING}: the row is free when its work ends, or after that time if its worker is dead"
        ));
    }
    hints.extend(snapshot.claims.unfound.values().cloned());
    hints.extend(snapshot.claims.chosen.iter().cloned());
    hints
}

/// The commands that free a key or a row, and what is not known, with the reason.
fn hints(snapshot: &Snapshot) -> Vec<String> {
    let mut hints: Vec<String> = key_hint(snapshot).into_iter().collect();
    hints.extend(lease_hints(snapshot));
    hints.extend(claim_hints(snapshot));
    let locks = &snapshot.locks;
    if locks.backends.iter().any(|backend| backend.is_pooled) {
        hints.push(
            "pooled: the session of a pooler, which serves other clients too; its address is the pooler's, not that of the program".to_owned()
        );
    }
    if locks.backends.iter().any(|it| it.activity.is_hidden()) {
        hints.push(format!(
            "role `{}` sees neither what other roles' sessions do nor the lock names in their queries: GRANT pg_monitor TO {}",
            one_line(&locks.role),
            identifier(&locks.role)
        ));
    }
    hints
}

/// The command that finds the values in a key: of a lock that somebody waits for if there is one,
/// or of a lock that is only a number.
fn key_hint(snapshot: &Snapshot) -> Option<String> {
    let all = snapshot.wanted();
    let has_placeholder = |name: &&Name| name.key.contains('<');
    // The server can have truncated a pattern.
    let pattern = |lock: &Lock| {
        let name = lock.names.iter().find(has_placeholder)?;
        let pattern = one_line(&name.key);
        let parsed = advisory_pattern::parse(&pattern).ok()?;
        let values = parsed.placeholders().map(Placeholder::name);
        Some((pattern, values.collect::<Vec<String>>()))
    };
    let waited = all.clone().filter(|lock| !lock.waiters.is_empty());
    let mut known = waited.chain(all.clone());
    let known = known.find_map(|lock| Some((lock.key, pattern(lock)?)));
    if let Some((key, (pattern, mut names))) = known {
        names.dedup();
        let values = names.iter().map(|name| format!(" --values {name}=FILE"));
        return Some(format!(
            "its values:\n    {KEY}cargo advisory key --find={} --pattern {}{}{KEY:#}\n\
             or the program shows them here, after `monitor::show(Shown::Key)`",
            shell_word(&key.to_string()),
            shell_word(&pattern),
            values.collect::<String>()
        ));
    }
    let is_number =
        |lock: &Lock| lock.names.is_empty() || lock.names.iter().any(|it| has_placeholder(&it));
    let has_number = all.into_iter().any(is_number);
    has_number.then(|| format!("{}; `--artifact` names fixed numbers", find_hint()))
}

pub(crate) fn find_hint() -> String {
    format!(
        "a number's key:\n    {KEY}cargo advisory key --find NUMBER --pattern PATTERN --values FILE{KEY:#}\n\
         or the program names it, after `monitor::show(Shown::Key)`"
    )
}

fn bound_text(bound: Duration) -> String {
    if bound.subsec_millis() == 0 && bound.as_secs() < 60 {
        return format!("{}s", bound.as_secs());
    }
    short(bound)
}
