//! How do live locks look on a terminal?

use std::fmt::Write;
use std::time::Duration;

use advisory_runtime::monitor::{
    Activity, Backend, By, Certainty, ClaimedRow, Holder, Lease, Lock, Locks, Name, Scope, State,
};
use advisory_runtime::{Key, Mode};

use super::Look;
use super::age::short;
use super::tree::{self, What};
use crate::grid::Grid;
use crate::screen::{BOLD, DIM, KEY, PLAIN, one_line};

const LOCKS: Grid<8> = Grid {
    heads: [
        "LOCK",
        "PID",
        "HELD",
        "WAITS",
        "TRANSACTION",
        "BACKEND",
        "STATE",
        "QUERY",
    ],
    styles: [KEY, BOLD, PLAIN, BOLD, PLAIN, PLAIN, PLAIN, DIM],
    narrowest: NARROWEST,
};
const LEASES: Grid<6> = Grid {
    heads: ["LEASE", "HOLDER", "STATE", "TOKEN", "AGE", "EXPIRES IN"],
    styles: [KEY, PLAIN, PLAIN, PLAIN, PLAIN, BOLD],
    narrowest: NARROWEST,
};
const CLAIMS: Grid<5> = Grid {
    heads: ["CLAIMS ON", "ROW", "WORKER", "STATE", "EXPIRES IN"],
    styles: [KEY, PLAIN, PLAIN, PLAIN, BOLD],
    narrowest: NARROWEST,
};
const NARROWEST: usize = 11;
/// As much of a query as says which one it is; `--json` has the whole.
const QUERY: usize = 60;
const SHORTEST: usize = 20;

/// Draws the locks, the leases, and what there is to say of them.
pub(crate) fn write(look: &Look, width: Option<usize>) -> String {
    let locks = &look.locks;
    let mut text = String::new();
    let rows: Vec<[String; 8]> = tree::lines(locks, &look.wanted)
        .into_iter()
        .map(|line| row(locks, &line))
        .collect();
    table(&mut text, &LOCKS, &shortened(&rows, width), width);
    let leases = look.leases.iter().flatten().map(lease);
    let leases: Vec<[String; 6]> = leases.collect();
    table(&mut text, &LEASES, &leases, width);
    let claims = look.claims.iter().map(|(table, row)| claim(table, row));
    let claims: Vec<[String; 5]> = claims.collect();
    table(&mut text, &CLAIMS, &claims, width);
    for note in notes(look) {
        // A `String` takes everything.
        let _ = writeln!(text, "{note}");
    }
    text
}

/// Queries give way first, as far as they still say something.
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
    grid: &Grid<N>,
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

/// For a narrow terminal: the first cell, and below it the others with their heads.
fn paragraph<const N: usize>(text: &mut String, grid: &Grid<N>, row: &[String; N]) {
    let first = grid.styles[0];
    let _ = writeln!(text, "{first}{}{first:#}", row[0]);
    let cells = grid.heads.iter().zip(row).skip(1);
    let cells: Vec<String> = cells
        .filter(|(_, cell)| !cell.is_empty())
        .map(|(head, cell)| format!("{} {cell}", head.to_lowercase()))
        .collect();
    let _ = writeln!(text, "    {}", cells.join(", "));
}

fn row(locks: &Locks, line: &tree::Line<'_>) -> [String; 8] {
    let branch = &line.branch;
    let mut cells: [String; 8] = Default::default();
    let mut holds = |label: String, holder: Option<&Holder>| {
        cells[0] = label;
        let Some(holder) = holder else { return };
        cells[2] = held(holder);
        match &holder.by {
            By::Backend(pid) => backend(&mut cells, locks, *pid),
            By::Prepared {
                gid, owner, age, ..
            } => {
                cells[4] = short(*age);
                cells[5] = one_line(owner);
                cells[6] = format!("prepared as '{}'", one_line(gid));
            }
            _ => {}
        }
    };
    match line.what {
        What::Lock(lock, holder) => holds(format!("{branch}{}", label(lock)), holder),
        What::Also(holder) => holds(format!("{branch}held too"), Some(holder)),
        What::Waits(waiter) => {
            let mode = match waiter.mode {
                Mode::Exclusive => "",
                Mode::Shared => ", shared",
            };
            cells[0] = format!("{branch}waits{mode}");
            cells[3] = short(waiter.waited);
            backend(&mut cells, locks, waiter.pid);
        }
        What::HoldsUp { pid, kind } => {
            cells[0] = format!("{branch}held up by a {} lock of", kind_of(kind));
            backend(&mut cells, locks, pid);
        }
    }
    cells
}

/// What people call what `pg_locks` calls so.
pub(crate) fn kind_of(kind: &str) -> &str {
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
    let name = one_line(&backend.application.name);
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

/// The lock's name, and always its number: that is what everything else shows.
pub(crate) fn label(lock: &Lock) -> String {
    let (key, names) = (lock.key, names(&lock.names));
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
            // What is fixed is a number, which stands behind it anyway.
            Some(name) if key.parse::<i64>().is_ok() || key.starts_with('(') => one_line(name),
            Some(name) => format!("{}: {key}", one_line(name)),
            None if key.parse::<i64>().is_ok() || key.starts_with('(') => continue,
            None => key,
        };
        shown.push(match name.certainty {
            Certainty::OneOf => format!("one of {text}"),
            _ => text,
        });
    }
    shown.join(" or ")
}

/// As the column of the inventory's table has it.
pub(crate) fn held(holder: &Holder) -> String {
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

fn lease(lease: &Lease) -> [String; 6] {
    let row = &lease.row;
    let named = names(&lease.names);
    let label = match (&row.key, &row.pattern, named.is_empty()) {
        (Some(text), ..) => one_line(text),
        (None, _, false) => named,
        (None, Some(pattern), true) => one_line(pattern),
        (None, None, true) => format!("{}…", hex(&row.key_hash[..8])),
    };
    let state = if row.is_kept { "kept" } else { "held" };
    [
        label,
        one_line(&row.holder),
        state.to_owned(),
        row.token.to_string(),
        short(row.age()),
        short(row.remaining),
    ]
}

fn claim(table: &str, row: &ClaimedRow) -> [String; 5] {
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
        short(row.remaining),
    ]
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut digits = String::new();
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// What is seen, and what is not.
fn notes(look: &Look) -> Vec<String> {
    let locks = &look.locks;
    let (database, role) = (one_line(&locks.database), one_line(&locks.role));
    let shown = look.wanted.iter().map(|at| &locks.locks[*at]);
    let waiters: usize = shown.map(|lock| lock.waiters.len()).sum();
    let older = look.older_than.map_or_else(String::new, |bound| {
        format!(" older than {}", bound_text(bound))
    });
    let mut notes = vec![match look.wanted.len() {
        0 => format!("no advisory locks{older} in database `{database}`"),
        some => {
            let locks = plural(some, "lock");
            let waiters = plural(waiters, "waiter");
            format!("{locks}{older}, {waiters} in database `{database}`")
        }
    }];
    let hidden = locks.backends.iter();
    if hidden
        .filter(|backend| backend.activity.is_hidden())
        .count()
        > 0
    {
        notes.push(format!(
            "role `{role}` does not see what other roles' sessions do, nor for how long: GRANT pg_monitor TO {}",
            identifier(&locks.role)
        ));
    }
    notes
}

/// A role's name as SQL takes it.
pub(crate) fn identifier(name: &str) -> String {
    let name = one_line(name);
    let is_plain = |at: usize, letter: char| {
        letter == '_' || letter.is_ascii_lowercase() || (at > 0 && letter.is_ascii_digit())
    };
    if name
        .chars()
        .enumerate()
        .all(|(at, letter)| is_plain(at, letter))
    {
        return name;
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn bound_text(bound: Duration) -> String {
    if bound.subsec_millis() == 0 && bound.as_secs() < 60 {
        return format!("{}s", bound.as_secs());
    }
    short(bound)
}

fn plural(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// At most so many characters, with a mark where some are gone.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most - 1).collect();
    format!("{}…", kept.trim_end())
}
