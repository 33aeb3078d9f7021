//! Writes the waits of a log as text: as a table, or with `--follow` as one line for each incident.

use std::fmt::Write;
use std::time::Duration;

use super::event::LockId;
use super::record::Time;
use super::waits::{Deadlock, Incident, LockWaits, Waits, ordered};
use crate::columns::Columns;
use crate::display_width::wrapped;
use crate::duration::short;
use crate::locks::{find_hint, label};
use crate::screen::{BOLD, DIM, KEY, PLAIN};
use crate::text::{joined, one_line, plural};

const COLUMNS: Columns<8> = Columns {
    heads: "LOCK | WAITS | LONGEST | TOTAL | CANCELLED | DEADLOCKS | LAST | HELD BY",
    styles: [KEY, BOLD, BOLD, PLAIN, PLAIN, PLAIN, DIM, PLAIN],
    narrowest: 11,
};

const HOLDERS: usize = 3;

pub(super) fn table(waits: &Waits, width: Option<usize>) -> String {
    let mut text = language_note(waits).map_or_else(String::new, |said| format!("{said}\n\n"));
    let locks = ordered(waits).into_iter();
    let rows: Vec<_> = locks.map(|(lock, it)| row(waits, *lock, it)).collect();
    text.push_str(&COLUMNS.draw(&rows, width));
    if !rows.is_empty() {
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
        text.push_str(&wrapped(&format!("{}\n\n", find_hint()), width));
    }
    text.push_str(&summary(waits));
    text
}

/// A note if the log is in another language than English.
pub(super) fn language_note(waits: &Waits) -> Option<String> {
    let word = one_line(waits.foreign.as_deref()?);
    Some(format!(
        "this log has messages in another language than English (`{word}`), which are not read: write \
         `ALTER SYSTEM SET lc_messages = 'C'` and `SELECT pg_reload_conf()`, and read what the server logs from then on"
    ))
}

fn at(time: &Time) -> String {
    one_line(&time.text)
}

fn row(waits: &Waits, lock: LockId, of_it: &LockWaits) -> [String; 8] {
    let time = |time: Duration| match time {
        Duration::ZERO => String::new(),
        time => short(time),
    };
    let count = |count: usize| match count {
        0 => String::new(),
        count => count.to_string(),
    };
    let mut holders: Vec<(&i32, &usize)> = of_it.holders.iter().collect();
    holders.sort_by_key(|(_, waits)| std::cmp::Reverse(**waits));
    let held_by = holders.iter().take(HOLDERS);
    let held_by = held_by.map(|(pid, _)| process(waits, **pid));
    let more = holders.len().checked_sub(HOLDERS + 1);
    let more = more.map(|more| format!("{} more", more + 1));
    [
        name(waits, lock),
        of_it.waits.to_string(),
        time(of_it.longest),
        time(of_it.total),
        count(of_it.cancelled),
        count(of_it.deadlocks),
        of_it.last.as_ref().map(at).unwrap_or_default(),
        joined(held_by.chain(more), ", "),
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
    let time = deadlock.time.as_ref();
    let at = time.map_or_else(String::new, |time| format!(" at {}", at(time)));
    let mut text = format!("{BOLD}deadlock{at}{BOLD:#}\n");
    for wait in &deadlock.waits {
        let target = match wait.lock {
            Some(lock) => name(waits, lock),
            None => one_line(&wait.target),
        };
        let is_victim = deadlock.victim == Some(wait.pid);
        let ended = if is_victim { ", and was aborted" } else { "" };
        let (who, by) = (process(waits, wait.pid), process(waits, wait.blocked_by));
        let _ = writeln!(
            text,
            "    {who} waited for {KEY}{target}{KEY:#}, held by {by}{ended}"
        );
        if !wait.statement.is_empty() {
            let _ = writeln!(text, "        {DIM}{}{DIM:#}", one_line(&wait.statement));
        }
    }
    text
}

fn summary(waits: &Waits) -> String {
    let span = match (&waits.first, &waits.last) {
        (Some(first), Some(last)) => format!(", {} to {}", at(first), at(last)),
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

pub(super) fn line(waits: &Waits, incident: &Incident) -> String {
    let last = waits.last.as_ref();
    let time = last.map_or_else(String::new, |time| format!("{DIM}{}{DIM:#}  ", at(time)));
    let named = |locks: &[LockId]| {
        let names = joined(locks.iter().map(|lock| name(waits, *lock)), " or ");
        format!("{KEY}{names}{KEY:#}")
    };
    match incident {
        Incident::Wait(wait) => {
            let (who, waited) = (process(waits, wait.pid), short(wait.waited));
            let lock = named(&[wait.lock]);
            if wait.is_over {
                return format!("{time}{who} acquired {lock} after {waited}\n");
            }
            let holders = joined(wait.holders.iter().map(|pid| process(waits, *pid)), ", ");
            let held_by = match &*holders {
                "" => holders,
                holders => format!(", held by {holders}"),
            };
            format!("{time}{who} has waited {waited} for {lock}{held_by}\n")
        }
        Incident::Cancelled {
            pid,
            locks,
            waited,
            reason,
        } => {
            let who = pid.map(|pid| process(waits, pid));
            let who = who.unwrap_or_else(|| "a session".to_owned());
            let after = waited.map(|waited| format!(" after {}", short(waited)));
            let (after, reason) = (after.unwrap_or_default(), one_line(reason));
            let locks = named(locks);
            format!("{time}{who} gave up waiting for {locks}{after}: {reason}\n")
        }
        Incident::Deadlock => {
            let last = waits.deadlocks.last();
            last.map_or_else(String::new, |deadlock| deadlock_text(waits, deadlock))
        }
    }
}
