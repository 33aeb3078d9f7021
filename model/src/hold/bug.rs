//! Properties of a held row, and the bugs that break them.

use super::{HOLD_MARGIN, HoldState, Phase, RowState, Stop};

/// A condition that each state of a held row meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldProperty {
    /// A body that is not stopped has its row, and a margin before others can take it.
    BodyHolds,
    /// An end that is reported is on the server.
    EndIsThere,
    /// A row that was ended is not reported as lost, nor is its body stopped for a loss while the
    /// answer is on its way.
    EndIsNotLost,
    /// A body that has ended its row in a transaction is stopped if it does not return.
    BodyReturns,
    /// While the transaction that ended the row is open, the process knows so.
    TransactionIsKnown,
}

impl HoldProperty {
    pub const ALL: [Self; 5] = [
        Self::BodyHolds,
        Self::EndIsThere,
        Self::EndIsNotLost,
        Self::BodyReturns,
        Self::TransactionIsKnown,
    ];

    #[must_use]
    pub fn is_true(self, state: &HoldState, bug: Option<HoldBug>) -> bool {
        let stop = state.stop(bug);
        match self {
            // The body that does not know of a rollback has its own limit.
            Self::BodyHolds => match state.row {
                RowState::Ours(left) => left > HOLD_MARGIN || stop.is_some() || !state.is_held(),
                RowState::Taken => stop.is_some() || !state.is_held(),
                RowState::Ended => true,
            },
            Self::EndIsThere => state.phase != Phase::Ended || state.row == RowState::Ended,
            Self::EndIsNotLost => {
                let is_lost_at_end = state.phase == Phase::Ended && state.is_lost;
                let is_stopped_early = state.is_ending && stop == Some(Stop::Lost);
                !(is_lost_at_end || is_stopped_early)
            }
            Self::BodyReturns => {
                !matches!(state.phase, Phase::InTransaction(_)) || state.return_in.is_some()
            }
            Self::TransactionIsKnown => state
                .open
                .is_none_or(|open| state.phase == Phase::InTransaction(open)),
        }
    }
}

/// A rule of `rows/hold.rs` that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldBug {
    /// The process counts a renewal's time from its answer.
    LateClock,
    /// The body is stopped at the expiry and not before it.
    NoMargin,
    /// The row counts as ended when the statement is sent.
    EarlyEnd,
    /// The row counts as ended after a rollback.
    EndedByRollback,
    /// A renewal that was refused because of the commit leaves the row lost.
    LostByCommit,
    /// A renewal that is refused after the end makes the row lost.
    LateLoss,
    /// An answer about another transaction counts.
    OldAnswer,
    /// A body that has ended its row in a transaction may go on forever.
    NoLimit,
    /// A refused renewal stops the body while the answer to its end is on its way.
    ImpatientEnd,
}

impl HoldBug {
    pub const ALL: [Self; 9] = [
        Self::LateClock,
        Self::NoMargin,
        Self::EarlyEnd,
        Self::EndedByRollback,
        Self::LostByCommit,
        Self::LateLoss,
        Self::OldAnswer,
        Self::NoLimit,
        Self::ImpatientEnd,
    ];

    /// The property that it breaks.
    #[must_use]
    pub const fn property(self) -> HoldProperty {
        match self {
            Self::LateClock | Self::NoMargin => HoldProperty::BodyHolds,
            Self::EarlyEnd | Self::EndedByRollback => HoldProperty::EndIsThere,
            Self::LostByCommit | Self::LateLoss | Self::ImpatientEnd => HoldProperty::EndIsNotLost,
            Self::OldAnswer => HoldProperty::TransactionIsKnown,
            Self::NoLimit => HoldProperty::BodyReturns,
        }
    }
}
