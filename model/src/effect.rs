//! The changes of each step.

use crate::action::Action;
use crate::bug::Bug;
use crate::leases::{Answer, Leases, TTL};
use crate::state::{Call, Caller, Lease, Process, Row, State, Transaction, Written};

impl Leases {
    fn wrote(state: &mut State, term: u8) {
        state.history.has_late_write |= term < state.data.writer;
        state.data.writer = state.data.writer.max(term);
    }

    fn tick(state: &mut State) {
        let datas = [Some(&mut state.data), state.standby.as_mut()];
        for row in datas
            .into_iter()
            .flatten()
            .filter_map(|data| data.row.as_mut())
        {
            if !row.is_kept {
                row.left = row.left.saturating_sub(1);
            }
        }
        for process in &mut state.processes {
            match &mut process.call {
                Call::Idle => {}
                Call::Asking { age, .. } => *age = (*age + 1).min(TTL),
                Call::Holding(lease) => {
                    lease.left = lease.left.saturating_sub(1);
                    // A process that runs drops its body then. A commit may be under way.
                    let is_dropped = lease.left == 0 && !process.is_stopped;
                    if is_dropped && process.transaction.is_none() {
                        process.end();
                    }
                }
            }
        }
    }

    /// A statement of the holder: the server's part, and the holder's.
    fn body(&self, state: &mut State, of: Process, lease: Lease, action: Action) -> Option<()> {
        let is_current = self.is_current(&state.data, lease);
        // A release looks at the call alone.
        let own = |row: &&mut Row| row.grant == lease.grant && row.left > 0 && !row.is_kept;
        let row = state.data.row.as_mut().filter(own);
        let process = &mut state.processes[of];
        match action {
            Action::Renew(_) if is_current => {
                row?.left = TTL;
                process.call = Call::Holding(Lease { left: TTL, ..lease });
            }
            Action::Renew(_) if process.transaction.is_none() => process.end(),
            Action::Renew(_) => process.call = Call::Holding(Lease { left: 0, ..lease }),
            Action::RenewUnanswered(_) if is_current => row?.left = TTL,
            Action::Release(_) => {
                if let Some(row) = row {
                    row.left = 0;
                }
                process.end();
            }
            Action::Fence(_) if is_current => process.transaction = Some(Transaction::Fenced),
            Action::Complete(_) if is_current => process.transaction = Some(Transaction::Completed),
            Action::Fence(_) | Action::Complete(_) => process.end(),
            Action::Write(_) => Self::wrote(state, lease.term),
            Action::Store(_) => {
                if lease.token < state.storage.token {
                    return None;
                }
                state.history.has_late_write |= lease.term < state.storage.term;
                let (token, term) = (lease.token, lease.term);
                state.storage = Written { token, term };
            }
            Action::DoWork(_) => {
                process.has_done_work = true;
                state.data.effects += 1;
            }
            Action::Mark(_) => {
                if is_current {
                    row?.is_kept = true;
                }
                process.end();
            }
            Action::Commit(_) | Action::CommitUnanswered(_) => {
                let is_unknown = action == Action::CommitUnanswered(of);
                let transaction = process.transaction.take()?;
                if is_unknown || transaction == Transaction::Completed {
                    process.end();
                }
                Self::wrote(state, lease.term);
                if transaction == Transaction::Completed {
                    state.data.effects += 1;
                    if let Some(row) = &mut state.data.row {
                        row.is_kept = true;
                    }
                }
            }
            Action::RollBack(_) | Action::EndSession(_) => process.transaction = None,
            _ => return None,
        }
        Some(())
    }

    /// Executes a step; `None` if it changes nothing.
    pub(crate) fn advance(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Tick => Self::tick(state),
            Action::Sweep => {
                let row = state.data.row.filter(|row| !row.is_valid())?;
                let is_newest = row.token > state.data.sequence && !self.has(Bug::SweptToken);
                if is_newest || self.is_locked(state) {
                    return None;
                }
                state.data.row = None;
            }
            Action::FallBehind => state.standby = Some(state.data.clone()),
            Action::FailOver => Self::fail_over(state)?,
            Action::Ask(of) => {
                state.calls += 1;
                let grant = state.calls;
                state.processes[of].ask(grant);
            }
            Action::Try(of) => self.try_arrives(state, of)?,
            Action::LateTry(of) => {
                let grant = state.processes[of].late_try.take()?;
                self.acquire(state, grant, TTL);
            }
            Action::Answer(of) => {
                let process = &mut state.processes[of];
                let Call::Asking { age, granted, .. } = process.call else {
                    return None;
                };
                let lease = granted?;
                let left = if self.has(Bug::Now) || self.has(Bug::LateClock) {
                    TTL
                } else {
                    lease.left.saturating_sub(age)
                };
                process.call = Call::Holding(Lease { left, ..lease });
                if left == 0 {
                    process.end();
                }
            }
            Action::LoseAnswer(of) => {
                let Call::Asking { grant, .. } = state.processes[of].call else {
                    return None;
                };
                state.processes[of].ask(grant);
            }
            Action::GiveUp(of) => {
                let process = &mut state.processes[of];
                let Call::Asking { grant, .. } = process.call else {
                    return None;
                };
                process.ask(grant);
                process.late_try = Some(grant);
            }
            Action::TakeOver(of) => {
                state.calls += 1;
                let (grant, before) = (state.calls, state.data.row?.grant);
                for process in &mut state.processes {
                    process.is_deposed |= process.grant() == Some(before);
                }
                let lease = self.grant(state, grant, TTL);
                let process = &mut state.processes[of];
                process.is_deposed = false;
                process.call = Call::Holding(lease);
            }
            Action::Stop(of) => state.processes[of].is_stopped = true,
            Action::Resume(of) => state.processes[of].is_stopped = false,
            Action::Crash(of) => {
                let process = &mut state.processes[of];
                let late_try = process.late_try;
                *process = Caller {
                    late_try,
                    ..Caller::default()
                };
            }
            _ => {
                let of = action.process()?;
                let Call::Holding(lease) = state.processes[of].call else {
                    return None;
                };
                self.body(state, of, lease, action)?;
            }
        }
        if action.is_fault() {
            state.faults += 1;
        }
        Some(())
    }

    fn try_arrives(&self, state: &mut State, of: Process) -> Option<()> {
        let Call::Asking {
            grant,
            age,
            granted: None,
        } = state.processes[of].call
        else {
            return None;
        };
        let left = if self.has(Bug::Now) {
            TTL.saturating_sub(age)
        } else {
            TTL
        };
        let answer = self.acquire(state, grant, left);
        let process = &mut state.processes[of];
        match answer {
            Answer::Granted(lease) => {
                process.is_deposed = false;
                let granted = Some(lease);
                process.call = Call::Asking {
                    grant,
                    age,
                    granted,
                };
            }
            Answer::Held | Answer::Done => process.end(),
        }
        Some(())
    }

    /// Sessions, and messages under way, are lost; the holders keep what they know.
    fn fail_over(state: &mut State) -> Option<()> {
        state.data = state.standby.take()?;
        state.timeline += 1;
        for process in &mut state.processes {
            process.transaction = None;
            process.late_try = None;
            process.is_deposed = true;
        }
        Some(())
    }
}

impl Caller {
    fn ask(&mut self, grant: u8) {
        let (age, granted) = (0, None);
        self.is_deposed = false;
        self.call = Call::Asking {
            grant,
            age,
            granted,
        };
    }

    fn end(&mut self) {
        self.call = Call::Idle;
        self.transaction = None;
        (self.is_deposed, self.has_done_work) = (false, false);
    }

    fn grant(&self) -> Option<u8> {
        match self.call {
            Call::Idle => None,
            Call::Asking { grant, .. } | Call::Holding(Lease { grant, .. }) => Some(grant),
        }
    }
}
