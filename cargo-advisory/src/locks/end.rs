//! Cancels a statement or terminates a session, after a confirmation.

use std::fmt::Write;

use advisory_runtime::monitor::{self, Activity, Backend, HolderId, Locks, Signal, State};
use clap::{Args, Subcommand, value_parser};

use super::cells::{UNTRACKED, has_transaction, label, lock_kind, scope_and_mode, who};
use crate::cli::Confirmation;
use crate::database::{Session, identifier, with_timeout};
use crate::duration::short;
use crate::failure::Result;
use crate::screen::{self, BOLD};
use crate::text::{joined, one_line, plural};

/// At most this many locks of the session for which nobody waits are listed.
const ALONE: usize = 3;

#[derive(Subcommand)]
pub(super) enum Action {
    /// Cancels the statement that a backend runs
    Cancel(Target),
    /// Terminates a backend's session, which releases its locks
    Terminate(Target),
}

// The backend.
#[derive(Args)]
#[command(
    after_help = "Shows the session, what it holds and what would be lost, and asks. Only for a backend that holds an advisory lock of \
                  this database, waits for one, or blocks one that does. Needs the backend's own role, or `pg_signal_backend`."
)]
pub(super) struct Target {
    /// The backend's process id, as `locks` shows it
    #[arg(value_parser = value_parser!(i32).range(1..))]
    pid: i32,
    #[command(flatten)]
    confirmation: Confirmation,
}

impl Action {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Cancel(_) => "cancel",
            Self::Terminate(_) => "terminate",
        }
    }

    /// Shows the session and what would be lost, asks, and sends the signal. Returns `true` if the
    /// signal had its effect.
    pub(super) async fn run(&self, session: &mut Session, locks: &Locks) -> Result<bool> {
        let (Self::Cancel(target) | Self::Terminate(target)) = self;
        let (pid, is_cancel) = (target.pid, matches!(self, Self::Cancel(_)));
        let Some(backend) = locks.backend(pid) else {
            let database = one_line(&locks.database);
            screen::note(&format!(
                "{pid} holds no advisory lock of database `{database}`, waits for none and blocks nobody: it may have ended. \
                 Nothing was done.\n"
            ));
            return Ok(false);
        };
        screen::note(&description(locks, backend));
        let is_idle = match &backend.activity {
            Activity::Visible { state, .. } => matches!(
                state,
                State::Idle | State::IdleInTransaction | State::IdleInFailedTransaction
            ),
            _ => false,
        };
        if is_cancel && is_idle {
            screen::note(&format!(
                "{pid} runs no statement, so there is nothing to cancel. `terminate {pid}` ends its session.\n"
            ));
            return Ok(false);
        }
        let what = if is_cancel {
            screen::note(
                "Its statement fails. If a transaction is open, it can then only be rolled back, which releases its locks. Session-level \
                 locks stay.\n",
            );
            "Cancel the statement"
        } else {
            let rolled_back = match has_transaction(&backend.activity) {
                Some(true) => "its transaction is rolled back",
                Some(false) => "no transaction is open, so nothing is rolled back",
                None => "a transaction that is open is rolled back",
            };
            screen::note(&format!(
                "Its session ends: {rolled_back}, all its locks are released, and its client gets an error.\n"
            ));
            "End the session"
        };
        if !target.confirmation.is_given(&format!("{what} of {pid}"))? {
            screen::note("Nothing was done.\n");
            return Ok(false);
        }
        let signal = if is_cancel {
            with_timeout(monitor::cancel(session, backend)).await?
        } else {
            with_timeout(monitor::terminate(session, backend)).await?
        };
        let (is_done, said) = outcome(pid, is_cancel, signal?, &locks.role);
        screen::note(&said);
        Ok(is_done)
    }
}

fn description(locks: &Locks, backend: &Backend) -> String {
    let pid = backend.pid;
    let mut text = format!("{BOLD}{pid}{BOLD:#}  {}\n", who(backend));
    let _ = match &backend.activity {
        Activity::Visible {
            state: State::Disabled,
            ..
        } => writeln!(text, "  {UNTRACKED}"),
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
            let (said, age) = (one_line(&state.to_string()), short(*state_age));
            let _ = writeln!(text, "  {said} for {age}; {open}");
            match (query.as_str(), state) {
                ("", _) => Ok(()),
                (query, State::Active) => writeln!(text, "  runs: {}", one_line(query)),
                (query, _) => writeln!(text, "  last ran: {}", one_line(query)),
            }
        }
        Activity::Hidden { needs, .. } => writeln!(
            text,
            "  its activity is hidden from role `{}`: GRANT {needs} TO {}",
            one_line(&locks.role),
            identifier(&locks.role)
        ),
        _ => writeln!(text, "  it has ended"),
    };
    describe_locks(&mut text, locks, pid);
    let is_other = |kind: &&str| *kind != "advisory";
    for other in &locks.backends {
        let kind = other.waits_for.as_deref().filter(is_other).map(lock_kind);
        if let Some(kind) = kind.filter(|_| other.blocked_by.contains(&pid)) {
            let (other, who) = (other.pid, who(other));
            let _ = writeln!(text, "  {other} waits for its {kind} lock: {who}");
        }
    }
    if let Some(kind) = backend.waits_for.as_deref().filter(is_other) {
        let (kind, others) = (lock_kind(kind), joined(&backend.blocked_by, ", "));
        let _ = writeln!(text, "  waits for a {kind} lock of {others}");
    }
    text
}

fn describe_locks(text: &mut String, locks: &Locks, pid: i32) {
    let mut alone = 0;
    for lock in &locks.locks {
        let label = label(lock.key, &lock.names);
        let holders = lock.holders.iter();
        for holder in holders.filter(|holder| holder.id == HolderId::Backend(pid)) {
            alone += usize::from(lock.waiters.is_empty());
            if !lock.waiters.is_empty() || alone <= ALONE {
                let _ = writeln!(text, "  holds {label} ({})", scope_and_mode(holder));
            }
        }
        for waiter in &lock.waiters {
            let (other, waited) = (waiter.pid, short(waiter.waited));
            if other == pid {
                let _ = writeln!(text, "  has waited for {label} for {waited}");
            }
            if waiter.held_by.contains(&pid) {
                let who = locks.backend(other).map(who).unwrap_or_default();
                let _ = writeln!(text, "    {other} has waited for it for {waited}: {who}");
            }
        }
    }
    if alone > ALONE {
        let more = plural(alone - ALONE, "lock");
        let _ = writeln!(text, "  holds {more} more, for which nobody waits");
    }
}

/// Returns `true` if the signal had its effect, and the message.
fn outcome(pid: i32, is_cancel: bool, signal: Signal, role: &str) -> (bool, String) {
    let said = match signal {
        Signal::Done if is_cancel => format!("The statement of {pid} was cancelled.\n"),
        Signal::Done => format!("The session of {pid} has ended, and its locks are released.\n"),
        Signal::Sent => format!("{pid}: signal sent; still alive after 5 s.\n"),
        Signal::Refused {
            needs: "superuser", ..
        } => format!(
            "Only a superuser may signal {pid}, which is the session of a superuser. Nothing was done.\n"
        ),
        Signal::Refused { needs, .. } => format!(
            "Role `{}` may not signal {pid}: use the role of that session, or GRANT {needs} TO {}. Nothing was done.\n",
            one_line(role),
            identifier(role)
        ),
        _ => format!("{pid} has ended by itself. Nothing was done.\n"),
    };
    (matches!(signal, Signal::Done), said)
}

#[cfg(test)]
mod tests {
    use advisory_runtime::monitor::Signal;

    use super::outcome;

    /// A script relies on the exit code to know that the locks are free.
    #[test]
    fn a_signal_without_effect_is_not_a_success() {
        for (signal, why) in [(Signal::Sent, "still alive"), (Signal::Gone, "by itself")] {
            let (is_done, said) = outcome(7, false, signal, "app");
            assert!(!is_done && said.contains(why), "{said}");
        }
    }
}
