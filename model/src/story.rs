//! A path of the model in words, a line per step.

use crate::action::Action;
use crate::leases::{Leases, TTL};
use crate::state::{Call, Process, State, Transaction};
use stateright::Model;

/// The steps in words, each with what the server answered.
#[must_use]
pub fn story(model: &Leases, actions: &[Action]) -> String {
    let mut state = model.start();
    let mut lines = Vec::new();
    for (number, action) in actions.iter().enumerate() {
        let Some(next) = model.next_state(&state, *action) else {
            continue;
        };
        let line = sentence(&state, *action, &next);
        lines.push(format!("{:>3}. {line}", number + 1));
        state = next;
    }
    lines.join("\n")
}

fn sentence(before: &State, action: Action, after: &State) -> String {
    let of = action.process().unwrap_or_default();
    let name = ["A", "B", "C", "D"][of % 4];
    let (token, row) = (token(before, after, of), row(after));
    let process = &after.processes[of];
    let (is_idle, is_open) = (process.call == Call::Idle, process.transaction.is_some());
    let written = match before.processes[of].transaction {
        Some(Transaction::Completed) => "the work and its mark are",
        _ => "its write is",
    };
    match action {
        Action::Tick => format!("A tick of the clocks passes. {row}"),
        Action::Ask(_) => format!("{name} asks for the lease."),
        Action::Try(_) if is_idle => format!("The server refuses {name}."),
        Action::Try(_) => format!("The server grants {name} token {token}. {row}"),
        Action::Answer(_) if is_idle => {
            format!("{name} reads the answer after the lease has expired.")
        }
        Action::Answer(_) => match process.call {
            Call::Holding(lease) => format!(
                "{name} reads the answer, and relies on token {token} for {} of {TTL} ticks.",
                lease.left
            ),
            _ => format!("{name} reads the answer."),
        },
        Action::LoseAnswer(_) => {
            format!("The answer is lost. {name} repeats the request.")
        }
        Action::GiveUp(_) => {
            format!(
                "No answer comes. {name} repeats the request; its first try is still under way."
            )
        }
        Action::LateTry(_) => format!("The first try of {name} arrives now. {row}"),
        Action::Renew(_) if is_idle => format!("The renewal of {name} is refused."),
        Action::Renew(_) => format!("{name} renews. {row}"),
        Action::RenewUnanswered(_) => format!("{name} renews, and the answer is lost. {row}"),
        Action::TakeOver(_) => format!("{name} takes the lease over, with token {token}. {row}"),
        Action::Sweep => "The expired row is removed.".to_owned(),
        Action::Stop(_) => format!("{name} is stopped."),
        Action::Resume(_) => format!("{name} continues."),
        Action::Crash(_) => format!("{name} dies, and is started again."),
        Action::FallBehind => "From now on the standby receives nothing.".to_owned(),
        Action::FailOver => format!("The primary fails, and the standby is promoted. {row}"),
        Action::Release(_) => format!("{name} ends its call. {row}"),
        Action::Fence(_) if is_open => {
            format!("{name} begins a transaction, and its fence with token {token} passes.")
        }
        Action::Fence(_) => format!("The fence of {name} is refused."),
        Action::Complete(_) if is_open => format!(
            "{name} begins a transaction, does the work, and marks it as done with token {token}."
        ),
        Action::Complete(_) => format!("`complete` of {name} is refused."),
        Action::Commit(_) => {
            format!("The commit of {name} arrives: {written} there, with token {token}.")
        }
        Action::CommitUnanswered(_) => {
            format!("The commit of {name} arrives: {written} there. The answer is lost.")
        }
        Action::RollBack(_) => format!("{name} rolls back."),
        Action::EndSession(_) => {
            format!("The server ends the session of {name}, which has stopped.")
        }
        Action::Store(_) => {
            format!("A storage elsewhere accepts the write of {name} with token {token}.")
        }
        Action::Write(_) => format!("{name} writes with token {token}, without a fence."),
        Action::DoWork(_) => format!("{name} does the work and commits it."),
        Action::Mark(_) => format!("{name} marks the work as done. {row}"),
    }
}

/// The token that the process has, or had before the step.
fn token(before: &State, after: &State, of: Process) -> u16 {
    let token = |state: &State| match state.processes[of].call {
        Call::Holding(lease)
        | Call::Asking {
            granted: Some(lease),
            ..
        } => Some(lease.token),
        _ => None,
    };
    token(after).or_else(|| token(before)).unwrap_or_default()
}

fn row(state: &State) -> String {
    match state.data.row {
        None => "There is no row.".to_owned(),
        Some(row) if row.is_kept => "The row says that the work is done.".to_owned(),
        Some(row) if row.left == 0 => format!("The row with token {} has expired.", row.token),
        Some(row) => format!("The row with token {} has {} left.", row.token, row.left),
    }
}
