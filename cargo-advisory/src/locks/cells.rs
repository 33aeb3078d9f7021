//! The cells of the tables of live locks, leases and claims, and the names of locks.

use std::time::Duration;

use advisory_runtime::monitor::{
    Activity, Backend, Certainty, ClaimedRow, Holder, HolderId, Lease, Locks, Name, Scope, State,
};
use advisory_runtime::{Key, Mode};

use super::renewal;
use crate::display_width::cut;
use crate::duration::short;
use crate::text::{hex, joined, one_line};

const LONGEST_QUERY: usize = 60;

const FOREVER: &str = "forever";
// The states of leases.
pub(crate) const HELD: &str = "held";
pub(crate) const OVERDUE: &str = "overdue";
pub(crate) const DONE: &str = "done";
// The states of claimed rows.
pub(super) const EXPIRED: &str = "expired";
pub(super) const RUNNING: &str = "running";

/// The columns of the tree of locks.
pub(super) const LABEL: usize = 0;
const PID: usize = 1;
const SCOPE: usize = 2;
pub(super) const TRANSACTION: usize = 3;
pub(super) const BACKEND: usize = 4;
const STATE: usize = 5;
pub(super) const QUERY: usize = 6;

pub(super) type Row = [String; 7];

/// A line of the tree of locks with a session, or a prepared transaction, that holds a lock.
pub(super) fn holder_row(locks: &Locks, label: String, holder: Option<&Holder>) -> Row {
    let mut cells = Row::default();
    cells[LABEL] = label;
    let Some(holder) = holder else { return cells };
    cells[SCOPE] = match (holder.scope, holder.mode) {
        (None, Mode::Exclusive) => String::new(),
        (None, Mode::Shared) => "shared".to_owned(),
        (Some(_), _) => scope_and_mode(holder),
    };
    match &holder.id {
        HolderId::Backend(pid) => backend(&mut cells, locks, *pid),
        HolderId::Prepared {
            gid, owner, age, ..
        } => {
            cells[TRANSACTION] = short(*age);
            cells[BACKEND] = one_line(owner);
            cells[STATE] = format!("prepared as '{}'", one_line(gid));
        }
        _ => {}
    }
    cells
}

/// A line of the tree of locks with a session that holds none of them.
pub(super) fn session_row(locks: &Locks, label: String, pid: i32) -> Row {
    let mut cells = Row::default();
    cells[LABEL] = label;
    backend(&mut cells, locks, pid);
    cells
}

/// A lock's name in the lists, and its number.
pub(crate) fn label(key: Key, known: &[Name]) -> String {
    let names = names(known);
    match key {
        _ if names.is_empty() => key.to_string(),
        Key::BigInt(number) => format!("{names} ({number})"),
        Key::IntInt(..) => format!("{names} {key}"),
    }
}

/// The names of a lock, without its number; empty if it has none.
pub(super) fn names(names: &[Name]) -> String {
    let shown = names.iter().filter_map(|name| {
        let key = one_line(&name.key);
        // A fixed key is a number, which is shown after it anyway.
        let is_number = key.parse::<i64>().is_ok() || key.starts_with('(');
        match &name.name {
            Some(name) if is_number => Some(one_line(name)),
            Some(name) => Some(format!("{}: {key}", one_line(name))),
            None => Some(key).filter(|_| !is_number),
        }
    });
    let shown = joined(shown, " or ");
    let is_possible = |name: &Name| name.certainty == Certainty::Possible;
    let is_only_possible = match names {
        [name] => is_possible(name),
        // A tool that takes a number that other programs may also use.
        [name, ..] => is_possible(name) && name.name.is_some() && name.sites.is_empty(),
        [] => false,
    };
    if is_only_possible {
        format!("perhaps {shown}")
    } else {
        shown
    }
}

/// The common name of a lock type of `pg_locks`.
pub(crate) fn lock_kind(kind: &str) -> &str {
    match kind {
        "transactionid" | "tuple" => "row",
        "relation" => "table",
        other => other,
    }
}

fn backend(cells: &mut Row, locks: &Locks, pid: i32) {
    if pid == 0 {
        "prepared transaction".clone_into(&mut cells[STATE]);
        return;
    }
    cells[PID] = pid.to_string();
    let Some(backend) = locks.backend(pid) else {
        return;
    };
    cells[BACKEND] = who(backend);
    match &backend.activity {
        Activity::Visible {
            state,
            state_age,
            query,
            transaction_age,
            ..
        } => {
            cells[TRANSACTION] = transaction_age.map(short).unwrap_or_default();
            cells[STATE] = match state {
                State::Active | State::Disabled => state.to_string(),
                other => format!("{} {}", one_line(&other.to_string()), short(*state_age)),
            };
            cells[QUERY] = cut(&one_line(query), LONGEST_QUERY);
        }
        Activity::Hidden { .. } => "hidden".clone_into(&mut cells[STATE]),
        Activity::Gone => "gone".clone_into(&mut cells[STATE]),
        _ => {}
    }
    if backend.is_pooled {
        cells[STATE].push_str(", pooled");
    }
}

pub(super) const UNTRACKED: &str = "what it does is not known: `track_activities` is off";

/// Returns `true` if a session has a transaction open; `None` if this role does not see it, or if
/// the server does not record it.
pub(super) fn has_transaction(activity: &Activity) -> Option<bool> {
    match activity {
        Activity::Visible {
            state: State::Disabled,
            ..
        }
        | Activity::Hidden { .. } => None,
        Activity::Visible {
            transaction_age, ..
        } => Some(transaction_age.is_some()),
        _ => Some(false),
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

/// The cells of a lease: its name, holder, state, token, age, last renewal, and remaining time.
pub(crate) fn lease(lease: &Lease) -> [String; 7] {
    let row = &lease.row;
    let renewal = renewal::of(lease);
    let state = match &renewal {
        _ if row.is_done => DONE,
        Some(renewal) if renewal.is_overdue => OVERDUE,
        _ => HELD,
    };
    [
        lease_label(lease),
        match &row.data {
            Some(data) => one_line(&format!("{} ({data})", row.holder)),
            None => one_line(&row.holder),
        },
        state.to_owned(),
        row.token.to_string(),
        short(row.age()),
        renewal.map_or_else(String::new, |renewal| format!("{} ago", short(renewal.ago))),
        if row.never_expires() {
            FOREVER.to_owned()
        } else {
            short(row.remaining)
        },
    ]
}

/// The text of a lease's key if the table has it, or else its name or pattern, or else the start of
/// its hash.
pub(crate) fn lease_label(lease: &Lease) -> String {
    let row = &lease.row;
    let named = names(&lease.names);
    match (&row.key, &row.pattern, named.is_empty()) {
        (Some(text), ..) => one_line(text),
        (None, _, false) => named,
        (None, Some(pattern), true) => one_line(pattern),
        (None, None, true) => format!("{}…", hex(&row.key_hash[..8])),
    }
}

pub(super) fn claim(table: &str, row: &ClaimedRow) -> [String; 5] {
    let state = if row.remaining.is_zero() {
        EXPIRED
    } else {
        RUNNING
    };
    [
        one_line(table),
        one_line(&row.key),
        one_line(&row.locked_by),
        state.to_owned(),
        match row.remaining {
            Duration::MAX => FOREVER.to_owned(),
            Duration::ZERO => format!("{} ago", short(row.expired)),
            remaining => short(remaining),
        },
    ]
}
