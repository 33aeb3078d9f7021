//! The steps that a process can take.

use crate::action::Action;
use crate::bug::Bug;
use crate::leases::Leases;
use crate::state::{Call, Caller, Process, State, Transaction};

impl Leases {
    pub(crate) fn steps(&self, state: &State, of: Process, steps: &mut Vec<Action>) {
        let process = &state.processes[of];
        let may_fail = state.faults < self.faults;
        let may_call = state.calls < self.calls;
        // Messages under way arrive even if the process is stopped.
        if process.late_try.is_some() {
            steps.push(Action::LateTry(of));
        }
        if let Call::Asking { granted: None, .. } = process.call {
            steps.push(Action::Try(of));
        }
        if process.transaction.is_some() {
            steps.push(Action::Commit(of));
        }
        if process.is_stopped {
            steps.push(Action::Resume(of));
            let is_expired = state.data.row.is_none_or(|row| row.left == 0);
            if process.transaction.is_some() && is_expired {
                steps.push(Action::EndSession(of));
            }
            return;
        }
        match process.call {
            Call::Idle if may_call => {
                steps.push(Action::Ask(of));
                let is_held = state.data.row.is_some_and(|row| !row.is_kept);
                if is_held && !self.is_locked_for_take_over(state) {
                    steps.push(Action::TakeOver(of));
                }
            }
            Call::Idle => {}
            Call::Asking { granted: None, .. } => {
                if may_fail && process.late_try.is_none() {
                    steps.push(Action::GiveUp(of));
                }
            }
            Call::Asking { .. } => {
                steps.push(Action::Answer(of));
                if may_fail {
                    steps.push(Action::LoseAnswer(of));
                }
            }
            Call::Holding(_) => self.body_steps(process, of, may_fail, steps),
        }
        if may_fail && process.call != Call::Idle {
            steps.extend([Action::Stop(of), Action::Crash(of)]);
        }
    }

    fn body_steps(&self, process: &Caller, of: Process, may_fail: bool, steps: &mut Vec<Action>) {
        if process.transaction.is_some() {
            steps.push(Action::RollBack(of));
            if may_fail {
                steps.push(Action::CommitUnanswered(of));
            }
        } else {
            steps.extend([Action::Release(of), Action::Store(of)]);
            if self.has(Bug::UnfencedLeader) {
                steps.push(Action::Write(of));
            } else {
                steps.push(Action::Fence(of));
            }
            if !self.has(Bug::CompletedApart) {
                steps.push(Action::Complete(of));
            } else if process.has_done_work {
                steps.push(Action::Mark(of));
            } else {
                steps.push(Action::DoWork(of));
            }
        }
        // A renewal waits for the row lock of `complete`.
        let is_completed = process.transaction == Some(Transaction::Completed);
        if !self.has(Bug::UnfencedLeader) && !is_completed {
            steps.push(Action::Renew(of));
            if may_fail {
                steps.push(Action::RenewUnanswered(of));
            }
        }
    }
}
