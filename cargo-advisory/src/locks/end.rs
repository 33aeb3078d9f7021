//! How is a statement or a session ended, and what is said before?

use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal};

use advisory_runtime::monitor::{self, Activity, Backend, HolderId, Locks, Signal, State};
use clap::ArgMatches;

use super::age::short;
use super::session::{Session, bounded};
use super::view::{held, identifier, kind_of, label, who};
use crate::failure::Failure;
use crate::screen::{self, BOLD, one_line};

/// What is ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// The statement.
    Cancel,
    /// The session.
    Terminate,
}

impl How {
    pub(crate) fn of(word: &str) -> Self {
        if word == "cancel" {
            Self::Cancel
        } else {
            Self::Terminate
        }
    }
}

/// Shows who it is and what would be lost, asks, and ends it. Tells whether it was ended.
pub(crate) async fn run(
    session: &mut Session,
    locks: &Locks,
    how: How,
    matches: &ArgMatches,
) -> Result<bool, Failure> {
    let pid = matches.get_one::<i32>("pid").copied().unwrap_or_default();
    let Some(backend) = locks.backend(pid) else {
        let database = one_line(&locks.database);
        screen::note(&format!(
            "{pid} holds no advisory lock of database `{database}`, waits for none, and is in nobody's way: it may have ended. \
             Nothing was done.\n"
        ));
        return Ok(false);
    };
    screen::note(&told(locks, backend));
    if how == How::Cancel && !may_run(&backend.activity) {
        screen::note(&format!(
            "{pid} runs no statement, so there is nothing to cancel; `terminate {pid}` ends its session.\n"
        ));
        return Ok(false);
    }
    screen::note(&lost(&backend.activity, how));
    if !matches.get_flag("yes") && !confirmed(pid, how)? {
        screen::note("Nothing was done.\n");
        return Ok(false);
    }
    let signal = match how {
        How::Cancel => bounded(monitor::cancel(session.conn(), backend)).await?,
        How::Terminate => bounded(monitor::terminate(session.conn(), backend)).await?,
    };
    let (is_done, said) = outcome(
        pid,
        how,
        signal.map_err(|error| super::wrong(&error))?,
        &locks.role,
    );
    screen::note(&said);
    Ok(is_done)
}

fn may_run(activity: &Activity) -> bool {
    match activity {
        Activity::Visible { state, .. } => !matches!(
            state,
            State::Idle | State::IdleInTransaction | State::IdleInFailedTransaction
        ),
        _ => true,
    }
}

/// Who it is, what it holds, and who waits for that.
fn told(locks: &Locks, backend: &Backend) -> String {
    let pid = backend.pid;
    let mut text = format!("{BOLD}{pid}{BOLD:#}  {}\n", who(backend));
    // A `String` takes everything.
    let mut line = |line: String| {
        let _ = writeln!(text, "  {line}");
    };
    match &backend.activity {
        Activity::Visible {
            state,
            state_age,
            query,
            transaction_age,
            ..
        } => {
            let open = match transaction_age {
                Some(age) => format!("its transaction is open for {}", short(*age)),
                None => "no transaction is open".to_owned(),
            };
            line(format!(
                "{} for {}; {open}",
                one_line(&state.to_string()),
                short(*state_age)
            ));
            if !query.is_empty() {
                let which = if *state == State::Active {
                    "runs"
                } else {
                    "last ran"
                };
                line(format!("{which}: {}", one_line(query)));
            }
        }
        Activity::Hidden { needs, .. } => line(format!(
            "what it does is hidden from role `{}`: GRANT {needs} TO {}",
            one_line(&locks.role),
            identifier(&locks.role)
        )),
        _ => line("it has ended since".to_owned()),
    }
    for lock in &locks.locks {
        for holder in lock
            .holders
            .iter()
            .filter(|holder| holder.id == HolderId::Backend(pid))
        {
            line(format!("holds {} ({})", label(lock), held(holder)));
        }
        for waiter in &lock.waiters {
            if waiter.pid == pid {
                line(format!(
                    "waits for {}, for {}",
                    label(lock),
                    short(waiter.waited)
                ));
            }
            if waiter.held_by.contains(&pid) {
                let other = locks.backend(waiter.pid).map(who).unwrap_or_default();
                line(format!(
                    "  {} waits for it, for {}: {other}",
                    waiter.pid,
                    short(waiter.waited)
                ));
            }
        }
    }
    for other in &locks.backends {
        let kind = other.waits_for.as_deref().unwrap_or("advisory");
        if kind != "advisory" && other.blocked_by.contains(&pid) {
            line(format!(
                "{} waits for a {} lock of it: {}",
                other.pid,
                kind_of(kind),
                who(other)
            ));
        }
    }
    if let Some(kind) = backend
        .waits_for
        .as_deref()
        .filter(|kind| *kind != "advisory")
    {
        let others: Vec<String> = backend.blocked_by.iter().map(ToString::to_string).collect();
        line(format!(
            "waits for a {} lock of {}",
            kind_of(kind),
            others.join(", ")
        ));
    }
    text
}

/// What would be lost.
fn lost(activity: &Activity, how: How) -> String {
    let has_transaction = match activity {
        Activity::Visible {
            transaction_age, ..
        } => transaction_age.is_some(),
        _ => true,
    };
    let rolled_back = if has_transaction {
        "what its transaction has written is rolled back"
    } else {
        "no transaction is open, so nothing is rolled back"
    };
    match how {
        How::Cancel => "Its statement ends with an error. A transaction that is open can only be rolled back then, by its client; \
             its locks are free when that has happened. Session-level locks stay.\n"
            .to_owned(),
        How::Terminate => format!(
            "Its session ends: {rolled_back}, every lock that it holds is free, session-level ones too, and its client gets an \
             error and may do its work again.\n"
        ),
    }
}

fn confirmed(pid: i32, how: How) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        let why = "there is no terminal to ask on: give `--yes` to do it without being asked";
        return Err(Failure::Input(why.to_owned()));
    }
    let what = match how {
        How::Cancel => "Cancel the statement",
        How::Terminate => "End the session",
    };
    screen::note(&format!("{what} of {pid}? [y/N] "));
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Failure::Input(format!("standard input: {error}")))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn outcome(pid: i32, how: How, signal: Signal, role: &str) -> (bool, String) {
    let (role, grantee) = (one_line(role), identifier(role));
    match (signal, how) {
        (Signal::Done, How::Cancel) => (true, format!("The statement of {pid} was cancelled.\n")),
        (Signal::Done, How::Terminate) => (
            true,
            format!("The session of {pid} has ended; its locks are free.\n"),
        ),
        (Signal::Sent, _) => (
            false,
            format!("{pid}: signal sent; still alive after 5 s.\n"),
        ),
        (
            Signal::Refused {
                needs: "superuser", ..
            },
            _,
        ) => (
            false,
            format!(
                "Only a superuser may end what {pid} does, for that is a superuser's. Nothing was done.\n"
            ),
        ),
        (Signal::Refused { needs, .. }, _) => (
            false,
            format!(
                "Role `{role}` may not end what {pid} does. Be a member of its role, or: GRANT {needs} TO {grantee}. Nothing was done.\n"
            ),
        ),
        _ => (
            false,
            format!("{pid} has ended by itself. Nothing was done.\n"),
        ),
    }
}
