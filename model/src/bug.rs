//! Bugs that can be put into the model: each must make the check fail.

use crate::lease_property::LeaseProperty;
use std::str::FromStr;

/// The first four are those of the stress test that concern leases. Each of the others leaves out
/// one rule of the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The expiry is computed from the time before a wait.
    Now,
    /// Tokens are counted in the row, which a sweep deletes.
    SweptToken,
    /// Work is done in one transaction and marked as done in a later one.
    CompletedApart,
    /// A leader that neither renews nor fences.
    UnfencedLeader,
    /// After a failover the sequence continues where its last copy was.
    OldTimeline,
    /// A take-over does not wait for a fenced write.
    WeakTakeOver,
    /// The holder counts its time from the answer instead of the request.
    LateClock,
    /// A fence compares the number of the call alone, which a late try of that call grants again.
    GrantAlone,
    /// A fence checks the row and does not lock it.
    UnlockedFence,
}

impl Bug {
    pub const ALL: [Self; 9] = [
        Self::Now,
        Self::SweptToken,
        Self::CompletedApart,
        Self::UnfencedLeader,
        Self::OldTimeline,
        Self::WeakTakeOver,
        Self::LateClock,
        Self::GrantAlone,
        Self::UnlockedFence,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::SweptToken => "swept-token",
            Self::CompletedApart => "completed-apart",
            Self::UnfencedLeader => "unfenced-leader",
            Self::OldTimeline => "old-timeline",
            Self::WeakTakeOver => "weak-take-over",
            Self::LateClock => "late-clock",
            Self::GrantAlone => "grant-alone",
            Self::UnlockedFence => "unlocked-fence",
        }
    }

    /// One sentence, for the story's title.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Now => {
                "a lease with an expiry from `now()`, computed in a transaction that has waited"
            }
            Self::SweptToken => {
                "tokens that are counted in the lease's row, and a sweep that deletes the row"
            }
            Self::CompletedApart => "work that is marked as done in a later transaction",
            Self::UnfencedLeader => {
                "a leader that does not renew its lease and writes without the fence"
            }
            Self::OldTimeline => {
                "a sequence that continues from an old number after a failover with lost writes"
            }
            Self::WeakTakeOver => "a take-over that does not wait for a fenced write",
            Self::LateClock => {
                "a holder that counts its time from the answer instead of the request"
            }
            Self::GrantAlone => {
                "a fence that compares the number of the call and not the token, and a try that arrives late"
            }
            Self::UnlockedFence => "a fence that checks the row and does not lock it",
        }
    }

    /// The property that it breaks; it may break others too.
    #[must_use]
    pub const fn property(self) -> LeaseProperty {
        match self {
            Self::Now | Self::LateClock => LeaseProperty::OneHolder,
            Self::SweptToken | Self::OldTimeline => LeaseProperty::TokensGrow,
            Self::CompletedApart => LeaseProperty::DoneOnce,
            Self::UnfencedLeader | Self::WeakTakeOver | Self::GrantAlone | Self::UnlockedFence => {
                LeaseProperty::NoLateWrite
            }
        }
    }
}

impl FromStr for Bug {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|bug| bug.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no bug `{name}`: write one of {names}, or `all`")
        })
    }
}
