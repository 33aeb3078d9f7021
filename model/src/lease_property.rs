//! Properties of every state.

use crate::state::{Call, Lease, State};

/// A promise of the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseProperty {
    /// At most one process relies on its lease.
    OneHolder,
    /// A write lands only if no later holder has written.
    NoLateWrite,
    /// The token of each grant is above all tokens before.
    TokensGrow,
    /// Work that is marked as done is there once.
    DoneOnce,
}

impl LeaseProperty {
    pub const ALL: [Self; 4] = [
        Self::OneHolder,
        Self::NoLateWrite,
        Self::TokensGrow,
        Self::DoneOnce,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneHolder => "at most one process relies on its lease",
            Self::NoLateWrite => "no former holder's write lands after a later one's",
            Self::TokensGrow => "tokens grow with each grant",
            Self::DoneOnce => "completed work is there exactly once",
        }
    }

    #[must_use]
    pub fn is_true(self, state: &State) -> bool {
        match self {
            Self::OneHolder => {
                let relying = state.processes.iter().filter(|process| {
                    matches!(process.call, Call::Holding(Lease { left: 1.., .. }))
                        && !process.is_deposed
                });
                relying.count() <= 1
            }
            Self::NoLateWrite => !state.history.has_late_write,
            Self::TokensGrow => !state.history.has_old_token,
            Self::DoneOnce => {
                let is_kept = state.data.row.is_some_and(|row| row.is_kept);
                state.data.effects <= 1 && (!is_kept || state.data.effects == 1)
            }
        }
    }
}
