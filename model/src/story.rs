//! Tells a path of the model, a line per step.

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

const fn name(process: Process) -> &'static str {
    ["A", "B", "C", "D"][process % 4]
}

fn sentence(before: &State, action: Action, after: &State) -> String {
    let token = |of: Process| token(before, after, of);
    let is_idle = |of: Process| after.processes[of].call == Call::Idle;
    match action {
        Action::Tick => format!("A tick of the clocks passes. {}", row(after)),
        Action::Ask(of) => format!("{} asks for the lease.", name(of)),
        Action::Try(of) if is_idle(of) => format!("The server refuses {}.", name(of)),
        Action::Try(of) => {
            let (name, token) = (name(of), token(of));
            format!("The server grants {name} token {token}. {}", row(after))
        }
        Action::Answer(of) if is_idle(of) => {
            format!("{} reads the answer when its time is over.", name(of))
        }
        Action::Answer(of) => match after.processes[of].call {
            Call::Holding(lease) => format!(
                "{} reads the answer, and relies on token {} for {} of {} ticks.",
                name(of),
                lease.token,
                lease.left,
                TTL
            ),
            _ => format!("{} reads the answer.", name(of)),
        },
        Action::LoseAnswer(of) => {
            format!(
                "The answer is lost. {} asks again for the same call.",
                name(of)
            )
        }
        Action::GiveUp(of) => format!(
            "No answer comes. {} asks again for the same call; its first try is still under way.",
            name(of)
        ),
        Action::LateTry(of) => {
            format!("The first try of {} arrives now. {}", name(of), row(after))
        }
        Action::Renew(of) if is_idle(of) => format!("The renewal of {} is refused.", name(of)),
        Action::Renew(of) => format!("{} renews. {}", name(of), row(after)),
        Action::RenewUnanswered(of) => {
            format!(
                "{} renews, and the answer is lost. {}",
                name(of),
                row(after)
            )
        }
        Action::TakeOver(of) => format!(
            "{} takes the lease over, with token {}. {}",
            name(of),
            token(of),
            row(after)
        ),
        Action::Sweep => "The expired row is removed.".to_owned(),
        Action::Stop(of) => format!("{} is stopped.", name(of)),
        Action::Resume(of) => format!("{} continues.", name(of)),
        Action::Crash(of) => format!("{} dies, and is started again.", name(of)),
        Action::FallBehind => "From now on the standby receives nothing.".to_owned(),
        Action::FailOver => {
            format!(
                "The primary fails, and the standby is promoted. {}",
                row(after)
            )
        }
        of_a_body => body_sentence(before, of_a_body, after),
    }
}

fn body_sentence(before: &State, action: Action, after: &State) -> String {
    let token = |of: Process| token(before, after, of);
    let is_open = |of: Process| after.processes[of].transaction.is_some();
    let kind = |of: Process| match before.processes[of].transaction {
        Some(Transaction::Completed) => "the work and its mark are",
        _ => "its write is",
    };
    match action {
        Action::Release(of) => format!("{} ends its call. {}", name(of), row(after)),
        Action::Fence(of) if is_open(of) => format!(
            "{} begins a transaction, and its fence with token {} passes.",
            name(of),
            token(of)
        ),
        Action::Fence(of) => format!("The fence of {} is refused.", name(of)),
        Action::Complete(of) if is_open(of) => format!(
            "{} begins a transaction, does the work, and marks it as done with token {}.",
            name(of),
            token(of)
        ),
        Action::Complete(of) => format!("`complete` of {} is refused.", name(of)),
        Action::Commit(of) => format!(
            "The commit of {} arrives: {} there, with token {}.",
            name(of),
            kind(of),
            token(of)
        ),
        Action::CommitUnanswered(of) => format!(
            "The commit of {} arrives: {} there. The answer is lost.",
            name(of),
            kind(of)
        ),
        Action::RollBack(of) => format!("{} rolls back.", name(of)),
        Action::EndSession(of) => {
            format!(
                "The server ends the session of {}, which has stopped.",
                name(of)
            )
        }
        Action::Store(of) => format!(
            "A storage elsewhere accepts the write of {} with token {}.",
            name(of),
            token(of)
        ),
        Action::Write(of) => format!(
            "{} writes with token {}, without a fence.",
            name(of),
            token(of)
        ),
        Action::DoWork(of) => format!("{} does the work and commits it.", name(of)),
        Action::Mark(of) => format!("{} marks the work as done. {}", name(of), row(after)),
        other => format!("{other:?}"),
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
