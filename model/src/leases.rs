//! The bounds, the row locks, and the statements, as in `advisory-runtime/src/lease/sql.rs`.

use crate::bug::Bug;
use crate::state::{Caller, Data, History, Lease, Row, State, Transaction, Written};

/// How long a lease lasts, in ticks.
pub const TTL: u8 = 2;

/// The numbers of a timeline: the design has 40 bits.
const NUMBERS: u16 = 1 << 8;

/// Leases of one key.
#[derive(Clone, Debug)]
pub struct Leases {
    pub processes: usize,
    pub calls: u8,
    pub faults: u8,
    /// A bug that is put into it.
    pub bug: Option<Bug>,
    /// States that differ only in which process is which are one state. A story needs them apart.
    pub is_symmetric: bool,
}

/// The server's answer to a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The lease, with the time left at the server.
    Granted(Lease),
    Held,
    Done,
}

impl Leases {
    /// Two processes, and two faults in any order.
    #[must_use]
    pub const fn two() -> Self {
        Self {
            processes: 2,
            calls: 2,
            faults: 2,
            bug: None,
            is_symmetric: true,
        }
    }

    #[must_use]
    pub const fn three() -> Self {
        Self {
            processes: 3,
            calls: 3,
            faults: 1,
            bug: None,
            is_symmetric: true,
        }
    }

    #[must_use]
    pub fn with(self, bug: Bug) -> Self {
        Self {
            bug: Some(bug),
            is_symmetric: false,
            ..self
        }
    }

    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    #[must_use]
    pub fn start(&self) -> State {
        State {
            data: Data::default(),
            standby: None,
            timeline: 1,
            processes: vec![Caller::default(); self.processes],
            storage: Written::default(),
            history: History::default(),
            calls: 0,
            faults: 0,
        }
    }

    /// The row locks of `fence` and `complete` keep grants, take-overs and sweeps from the row.
    pub(crate) fn is_locked(&self, state: &State) -> bool {
        let is_open = |caller: &Caller| match caller.transaction {
            Some(Transaction::Fenced) => !self.has(Bug::UnlockedFence),
            Some(Transaction::Completed) => true,
            None => false,
        };
        state.processes.iter().any(is_open)
    }

    /// The lock of `complete` is that of an update, and conflicts with it in any case.
    pub(crate) fn is_locked_for_take_over(&self, state: &State) -> bool {
        let completed = Some(Transaction::Completed);
        let is_completed = |caller: &Caller| caller.transaction == completed;
        if self.has(Bug::WeakTakeOver) {
            state.processes.iter().any(is_completed)
        } else {
            self.is_locked(state)
        }
    }

    /// `nextval`, which does not start below the timeline.
    fn draw(&self, state: &mut State) -> u16 {
        let least = if self.has(Bug::OldTimeline) {
            0
        } else {
            u16::from(state.timeline - 1) * NUMBERS
        };
        state.data.sequence = (state.data.sequence + 1).max(least + 1);
        state.data.sequence
    }

    pub(crate) fn grant(&self, state: &mut State, grant: u8, left: u8) -> Lease {
        let before = state.data.row.map_or(0, |row| row.token);
        let token = if self.has(Bug::SweptToken) {
            before + 1
        } else {
            self.draw(state).max(before + 1)
        };
        let history = &mut state.history;
        history.has_old_token |= token <= history.token;
        history.token = history.token.max(token);
        history.terms += 1;
        let term = history.terms;
        let is_kept = false;
        state.data.row = Some(Row {
            grant,
            token,
            term,
            left,
            is_kept,
        });
        Lease {
            grant,
            token,
            term,
            left,
        }
    }

    /// `acquire`.
    pub(crate) fn acquire(&self, state: &mut State, grant: u8, left: u8) -> Answer {
        match state.data.row {
            Some(row) if row.is_kept => Answer::Done,
            Some(row) if row.left > 0 && row.grant == grant => Answer::Granted(Lease {
                grant,
                token: row.token,
                term: row.term,
                left: row.left,
            }),
            Some(row) if row.left > 0 => Answer::Held,
            Some(_) if self.is_locked(state) => Answer::Held,
            _ => Answer::Granted(self.grant(state, grant, left)),
        }
    }

    /// Returns whether the row is this lease's and valid, as `fence` and `complete` ask.
    pub(crate) fn is_current(&self, data: &Data, lease: Lease) -> bool {
        data.row.is_some_and(|row| {
            row.grant == lease.grant
                && (row.token == lease.token || self.has(Bug::GrantAlone))
                && row.left > 0
                && !row.is_kept
        })
    }
}
