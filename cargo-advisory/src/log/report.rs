//! Writes the waits of a log for people: as a table, and with `--follow` as one line per incident.

use std::fmt::Write;
use std::time::Duration;

use super::event::LockId;
use super::incident::Incident;
use super::lock_waits::LockWaits;
use super::waits::{Deadlock, Waits, ordered};
use crate::columns::Columns;
use crate::display_width::wrapped;
use crate::duration::short;
use crate::locks::{find_hint, label};
use crate::screen::{BOLD, DIM, KEY, PLAIN, one_line, plural};

const COLUMNS: Columns<8> = Columns {
    heads: [
        "LOCK",
        "WAITS",
        "LONGEST",
        "TOTAL",
        "CANCELLED",
        "DEADLOCKS",
        "LAST",
        "HELD BY",
    ],
    styles: [KEY, BOLD, BOLD, PLAIN, PLAIN, PLAIN, DIM, PLAIN],
    narrowest: 11,
};

/// The maximum number of holders in a row.
const HOLDERS: usize = 3;

/// Writes the table. The lock with the longest total wait comes first.
pub(super) fn table(waits: &Waits, width: Option<usize>) -> String {
    let mut text = language_note(waits).map_or_else(String::new, |said| format!("{said}\n\n"));
    let rows: Vec<[String; 8]> = ordered(waits)
        .into_iter()
        .map(|(lock, of_it)| row(waits, *lock, of_it))
        .collect();
    if !rows.is_empty() {
        // Ignores the width if the terminal is too narrow for a table.
        let drawn = COLUMNS
            .draw(&rows, width)
            .or_else(|| COLUMNS.draw(&rows, None));
        text.push_str(&drawn.unwrap_or_default());
        text.push('\n');
    }
    for deadlock in &waits.deadlocks {
        text.push_str(&deadlock_text(waits, deadlock));
        text.push('\n');
    }
    let is_number = |of_it: &LockWaits| {
        let mut names = of_it.names.iter();
        of_it.names.is_empty() || names.any(|name| name.key.contains('<'))
    };
    if waits.locks.values().any(is_number) {
        let hint = wrapped(&format!("{}\n\n", find_hint()), width);
        text.push_str(&hint);
    }
    text.push_str(&summary(waits));
    text
}

/// Says that the log is in another language than English, if it is.
pub(super) fn language_note(waits: &Waits) -> Option<String> {
    let word = one_line(waits.foreign.as_deref()?);
    Some(format!(
        "this log has messages in another language than English (`{word}`), which are not read: write \
         `ALTER SYSTEM SET lc_messages = 'C'` and `SELECT pg_reload_conf()`, and read what the server logs from then on"
    ))
}

fn row(waits: &Waits, lock: LockId, of_it: &LockWaits) -> [String; 8] {
    let time = |time: Duration| {
        if time.is_zero() {
            String::new()
        } else {
            short(time)
        }
    };
    let count = |count: usize| match count {
        0 => String::new(),
        count => count.to_string(),
    };
    let mut holders: Vec<(&i32, &usize)> = of_it.holders.iter().collect();
    holders.sort_by_key(|(_, waits)| std::cmp::Reverse(**waits));
    let mut held_by: Vec<String> = holders
        .iter()
        .take(HOLDERS)
        .map(|(pid, _)| process(waits, **pid))
        .collect();
    if holders.len() > HOLDERS {
        held_by.push(format!("{} more", holders.len() - HOLDERS));
    }
    [
        name(waits, lock),
        of_it.waits.to_string(),
        time(of_it.longest),
        time(of_it.total),
        count(of_it.cancelled),
        count(of_it.deadlocks),
        of_it
            .last
            .as_ref()
            .map_or_else(String::new, |time| one_line(&time.text)),
        held_by.join(", "),
    ]
}

/// The lock's name and number, and its database if the log has several.
fn name(waits: &Waits, lock: LockId) -> String {
    let of_it = waits.locks.get(&lock);
    let label = label(lock.key, of_it.map_or(&[], |of_it| &of_it.names));
    let mut databases = waits.locks.keys().map(|lock| lock.database);
    if databases.all(|database| database == lock.database) {
        return label;
    }
    match of_it.and_then(|of_it| of_it.database.as_deref()) {
        Some(database) => format!("{label} in {}", one_line(database)),
        None if lock.database == 0 => label,
        None => format!("{label} in database {}", lock.database),
    }
}

fn process(waits: &Waits, pid: i32) -> String {
    match (pid, waits.who(pid)) {
        (0, _) => "a prepared transaction".to_owned(),
        (_, Some(who)) => format!("{pid} {}", one_line(who)),
        (_, None) => pid.to_string(),
    }
}

fn deadlock_text(waits: &Waits, deadlock: &Deadlock) -> String {
    let at = deadlock
        .time
        .as_ref()
        .map_or_else(String::new, |time| format!(" at {}", one_line(&time.text)));
    let mut text = format!("{BOLD}deadlock{at}{BOLD:#}\n");
    for wait in &deadlock.waits {
        let target = match wait.lock {
            Some(lock) => name(waits, lock),
            None => one_line(&wait.target),
        };
        let ended = if deadlock.victim == Some(wait.pid) {
            ", and was aborted"
        } else {
            ""
        };
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "    {} waited for {KEY}{target}{KEY:#}, held by {}{ended}",
            process(waits, wait.pid),
            process(waits, wait.blocked_by)
        );
        if !wait.statement.is_empty() {
            let _ = writeln!(text, "        {DIM}{}{DIM:#}", one_line(&wait.statement));
        }
    }
    text
}

fn summary(waits: &Waits) -> String {
    let span = match (&waits.first, &waits.last) {
        (Some(first), Some(last)) => {
            format!(", {} to {}", one_line(&first.text), one_line(&last.text))
        }
        _ => String::new(),
    };
    let records = plural(waits.records, "message");
    if waits.locks.is_empty() {
        return format!(
            "no waits for advisory locks in {records}{span}\nwaits longer than `deadlock_timeout` are logged if `log_lock_waits` is on\n"
        );
    }
    let sum = |of: fn(&LockWaits) -> usize| waits.locks.values().map(of).sum::<usize>();
    let open = match waits.open() {
        0 => String::new(),
        count => format!(", {count} not over at the end"),
    };
    format!(
        "{} for {}: {} cancelled{open}, {}; {records}{span}\n",
        plural(sum(|of_it| of_it.waits), "wait"),
        plural(waits.locks.len(), "lock"),
        sum(|of_it| of_it.cancelled),
        plural(waits.deadlocks.len(), "deadlock")
    )
}

/// Writes an incident as a line.
pub(super) fn line(waits: &Waits, incident: &Incident) -> String {
    let time = waits.last.as_ref().map_or_else(String::new, |time| {
        format!("{DIM}{}{DIM:#}  ", one_line(&time.text))
    });
    let named = |locks: &[LockId]| {
        let names: Vec<String> = locks.iter().map(|lock| name(waits, *lock)).collect();
        format!("{KEY}{}{KEY:#}", names.join(" or "))
    };
    match incident {
        Incident::Waiting {
            pid,
            lock,
            waited,
            holders,
        } => {
            let holders: Vec<String> = holders.iter().map(|pid| process(waits, *pid)).collect();
            let held_by = if holders.is_empty() {
                String::new()
            } else {
                format!(", held by {}", holders.join(", "))
            };
            format!(
                "{time}{} has waited {} for {}{held_by}\n",
                process(waits, *pid),
                short(*waited),
                named(&[*lock])
            )
        }
        Incident::Acquired { pid, lock, waited } => format!(
            "{time}{} acquired {} after {}\n",
            process(waits, *pid),
            named(&[*lock]),
            short(*waited)
        ),
        Incident::Cancelled {
            pid,
            locks,
            waited,
            reason,
        } => {
            let who = pid.map_or_else(|| "a session".to_owned(), |pid| process(waits, pid));
            let after =
                waited.map_or_else(String::new, |waited| format!(" after {}", short(waited)));
            format!(
                "{time}{who} gave up waiting for {}{after}: {}\n",
                named(locks),
                one_line(reason)
            )
        }
        Incident::Deadlock => waits
            .deadlocks
            .last()
            .map_or_else(String::new, |deadlock| deadlock_text(waits, deadlock)),
    }
}
