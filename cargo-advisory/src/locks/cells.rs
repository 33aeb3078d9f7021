//! What is in the cells of the tables of live locks, leases and claims?

use std::fmt::Write;
use std::time::Duration;

use advisory_runtime::monitor::{
    Activity, Backend, Certainty, ClaimedRow, Holder, HolderId, Lease, Locks, Name, Scope, State,
};
use advisory_runtime::{Key, Mode};

use super::tree::{self, Content};
use crate::display_width::cut;
use crate::duration::short;
use crate::screen::one_line;

/// How much of a query is shown; `--json` has all of it.
pub(super) const QUERY: usize = 60;

/// The time left of a row that never expires.
const FOREVER: &str = "forever";
/// The state of a key whose work is completed.
pub(super) const DONE: &str = "done";

/// A line of the tree of locks.
pub(super) fn row(locks: &Locks, line: &tree::Line<'_>) -> [String; 8] {
    let branch = &line.branch;
    let mut cells: [String; 8] = Default::default();
    let mut holds = |label: String, holder: Option<&Holder>| {
        cells[0] = label;
        let Some(holder) = holder else { return };
        cells[2] = scope_and_mode(holder);
        match &holder.id {
            HolderId::Backend(pid) => backend(&mut cells, locks, *pid),
            HolderId::Prepared {
                gid, owner, age, ..
            } => {
                cells[4] = short(*age);
                cells[5] = one_line(owner);
                cells[6] = format!("prepared as '{}'", one_line(gid));
            }
            _ => {}
        }
    };
    match line.content {
        Content::Lock(lock, holder) => {
            holds(format!("{branch}{}", label(lock.key, &lock.names)), holder);
        }
        Content::OtherHolder(holder) => holds(format!("{branch}also held by"), Some(holder)),
        Content::Waiter(waiter) => {
            let mode = match waiter.mode {
                Mode::Exclusive => "",
                Mode::Shared => ", shared",
            };
            cells[0] = format!("{branch}waits{mode}");
            cells[3] = short(waiter.waited);
            backend(&mut cells, locks, waiter.pid);
        }
        Content::Try(one) => {
            cells[0] = format!("{branch}tried, {} ago", short(one.ago));
            backend(&mut cells, locks, one.pid);
        }
        Content::Blocker { pid, kind } => {
            cells[0] = format!("{branch}held up by a {} lock of", lock_kind(kind));
            backend(&mut cells, locks, pid);
        }
    }
    cells
}

/// The common name of a lock type of `pg_locks`.
pub(crate) fn lock_kind(kind: &str) -> &str {
    match kind {
        "transactionid" | "tuple" => "row",
        "relation" => "table",
        other => other,
    }
}

fn backend(cells: &mut [String; 8], locks: &Locks, pid: i32) {
    if pid == 0 {
        "prepared transaction".clone_into(&mut cells[6]);
        return;
    }
    cells[1] = pid.to_string();
    let Some(backend) = locks.backend(pid) else {
        return;
    };
    cells[5] = who(backend);
    match &backend.activity {
        Activity::Visible {
            state,
            state_age,
            query,
            transaction_age,
            ..
        } => {
            cells[4] = transaction_age.map(short).unwrap_or_default();
            cells[6] = match state {
                State::Active => state.to_string(),
                other => format!("{} {}", one_line(&other.to_string()), short(*state_age)),
            };
            cells[7] = cut(&one_line(query), QUERY);
        }
        Activity::Hidden { .. } => "hidden".clone_into(&mut cells[6]),
        Activity::Gone => "gone".clone_into(&mut cells[6]),
        _ => {}
    }
}

/// `booking-service (app@10.0.0.7)`
pub(crate) fn who(backend: &Backend) -> String {
    let name = one_line(&backend.application);
    let mut user = one_line(backend.user.as_deref().unwrap_or_default());
    if let Activity::Visible {
        client: Some(client),
        ..
    } = &backend.activity
    {
        user = format!("{user}@{client}");
    }
    if name.is_empty() {
        user
    } else {
        format!("{name} ({user})")
    }
}

/// A lock's name and its number, which is what other tools show.
pub(crate) fn label(key: Key, known: &[Name]) -> String {
    let names = names(known);
    match key {
        _ if names.is_empty() => key.to_string(),
        Key::BigInt(number) => format!("{names} ({number})"),
        Key::IntInt(..) => format!("{names} {key}"),
    }
}

fn names(names: &[Name]) -> String {
    let mut shown: Vec<String> = Vec::new();
    for name in names {
        let key = one_line(&name.key);
        let text = match &name.name {
            // A fixed key is a number, which is shown behind it anyway.
            Some(name) if key.parse::<i64>().is_ok() || key.starts_with('(') => one_line(name),
            Some(name) => format!("{}: {key}", one_line(name)),
            None if key.parse::<i64>().is_ok() || key.starts_with('(') => continue,
            None => key,
        };
        shown.push(text);
    }
    let shown = shown.join(" or ");
    let is_only_possible = match names {
        [name] => name.certainty == Certainty::Possible,
        // A tool that takes a number that other programs may also use.
        [name, ..] => {
            name.certainty == Certainty::Possible && name.name.is_some() && name.sites.is_empty()
        }
        [] => false,
    };
    if is_only_possible {
        return format!("perhaps {shown}");
    }
    shown
}

/// The scope and the mode, as in the table of the inventory.
pub(crate) fn scope_and_mode(holder: &Holder) -> String {
    let scope = match holder.scope {
        Some(Scope::Xact) => "xact",
        Some(Scope::Session) => "session",
        None => "xact or session",
    };
    match holder.mode {
        Mode::Exclusive => scope.to_owned(),
        Mode::Shared => format!("{scope} shared"),
    }
}

pub(super) fn lease(lease: &Lease) -> [String; 6] {
    let row = &lease.row;
    let named = names(&lease.names);
    let label = match (&row.key, &row.pattern, named.is_empty()) {
        (Some(text), ..) => one_line(text),
        (None, _, false) => named,
        (None, Some(pattern), true) => one_line(pattern),
        (None, None, true) => format!("{}…", hex(&row.key_hash[..8])),
    };
    let state = if row.is_done { DONE } else { "held" };
    [
        label,
        match &row.data {
            Some(data) => one_line(&format!("{} ({data})", row.holder)),
            None => one_line(&row.holder),
        },
        state.to_owned(),
        row.token.to_string(),
        short(row.age()),
        if row.never_expires() {
            FOREVER.to_owned()
        } else {
            short(row.remaining)
        },
    ]
}

pub(super) fn claim(table: &str, row: &ClaimedRow) -> [String; 5] {
    let state = if row.remaining.is_zero() {
        "expired"
    } else {
        "running"
    };
    [
        one_line(table),
        one_line(&row.key),
        one_line(&row.locked_by),
        state.to_owned(),
        match row.remaining {
            Duration::MAX => FOREVER.to_owned(),
            remaining => short(remaining),
        },
    ]
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut digits = String::new();
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
