//! The bugs that can be injected, to show that the checker finds them.

use crate::absence::TTL;
use crate::violation::Rule;
use std::str::FromStr;
use std::time::Duration;

/// A common bug of locks written by hand; `buggy` has the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    LockOut,
    UnlockBeforeCommit,
    OneStatement,
    PollInSnapshot,
    CountedPermits,
    EarlyReturn,
    GuardOff,
    SwallowedError,
    Now,
    SweptToken,
    CompletedApart,
    UnfencedLeader,
    UnlockedMigrations,
    CountedLimit,
    LateCompletion,
    UncountedAttempt,
    EndlessClaim,
    TaskRenewal,
    OneConnection,
    KeptPlan,
    RefusedText,
    SameNeighbours,
}

impl Bug {
    pub(crate) const ALL: [Self; 22] = [
        Self::LockOut,
        Self::UnlockBeforeCommit,
        Self::OneStatement,
        Self::PollInSnapshot,
        Self::CountedPermits,
        Self::EarlyReturn,
        Self::GuardOff,
        Self::SwallowedError,
        Self::Now,
        Self::SweptToken,
        Self::CompletedApart,
        Self::UnfencedLeader,
        Self::UnlockedMigrations,
        Self::CountedLimit,
        Self::LateCompletion,
        Self::UncountedAttempt,
        Self::EndlessClaim,
        Self::TaskRenewal,
        Self::OneConnection,
        Self::KeptPlan,
        Self::RefusedText,
        Self::SameNeighbours,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::LockOut => "lock-out",
            Self::UnlockBeforeCommit => "unlock-before-commit",
            Self::OneStatement => "one-statement",
            Self::PollInSnapshot => "poll-in-snapshot",
            Self::CountedPermits => "counted-permits",
            Self::EarlyReturn => "early-return",
            Self::GuardOff => "guard-off",
            Self::SwallowedError => "swallowed-error",
            Self::Now => "now",
            Self::SweptToken => "swept-token",
            Self::CompletedApart => "completed-apart",
            Self::UnfencedLeader => "unfenced-leader",
            Self::UnlockedMigrations => "unlocked-migrations",
            Self::CountedLimit => "counted-limit",
            Self::LateCompletion => "late-completion",
            Self::UncountedAttempt => "uncounted-attempt",
            Self::EndlessClaim => "endless-claim",
            Self::TaskRenewal => "task-renewal",
            Self::OneConnection => "one-connection",
            Self::KeptPlan => "kept-plan",
            Self::RefusedText => "refused-text",
            Self::SameNeighbours => "same-neighbours",
        }
    }

    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::LockOut => "a transaction without a lock",
            Self::UnlockBeforeCommit => {
                "a session-level lock that is released inside the transaction"
            }
            Self::OneStatement => {
                "the lock and the read in one statement, whose snapshot is older than the wait"
            }
            Self::PollInSnapshot => {
                "tries in one REPEATABLE READ transaction, whose snapshot is that of the first try"
            }
            Self::CountedPermits => {
                "permits that are counted in `pg_locks` before one more is taken"
            }
            Self::EarlyReturn => "an early return that skips the release of a session-level lock",
            Self::GuardOff => {
                "a dropped call leaves its transaction open, and the connection is used again"
            }
            Self::SwallowedError => {
                "a body that returns `Ok` after a failed statement is reported as committed"
            }
            Self::Now => {
                "a lease whose expiry is compared with `now()`, in a transaction that has waited"
            }
            Self::SweptToken => {
                "tokens that are counted in the lease's row, and a sweep that deletes the row"
            }
            Self::CompletedApart => "work that is marked as done in a later transaction",
            Self::UnfencedLeader => {
                "a leader that does not renew its lease and writes without the fence"
            }
            Self::UnlockedMigrations => "migrations that are run without a lock",
            Self::CountedLimit => {
                "the running jobs of a tenant are counted in the statement that claims one more"
            }
            Self::LateCompletion => "a job is completed after its claim has expired",
            Self::UncountedAttempt => {
                "an attempt counts when it fails, and not when its worker dies"
            }
            Self::EndlessClaim => "a job whose worker has died is not claimed again",
            Self::TaskRenewal => "a claim that a task of the application's runtime renews",
            Self::OneConnection => {
                "claims that are renewed on one connection, whatever happens to it"
            }
            Self::KeptPlan => {
                "a claim that is prepared once, on a connection that is used again after an error"
            }
            Self::RefusedText => {
                "the end of a job is given up if the text of its error does not fit"
            }
            Self::SameNeighbours => {
                "the jobs of a dead worker are claimed again together, by one worker"
            }
        }
    }

    /// The rule that it breaks; it may break others too.
    pub(crate) const fn rule(self) -> Rule {
        match self {
            Self::LockOut | Self::CountedPermits | Self::Now | Self::CountedLimit => Rule::TooMany,
            Self::UnlockBeforeCommit
            | Self::OneStatement
            | Self::PollInSnapshot
            | Self::CompletedApart
            | Self::UnlockedMigrations
            | Self::LateCompletion => Rule::Doubled,
            Self::EarlyReturn => Rule::Left,
            Self::GuardOff => Rule::Ghost,
            Self::SwallowedError => Rule::Lost,
            Self::SweptToken | Self::UnfencedLeader => Rule::Token,
            Self::UncountedAttempt => Rule::Attempts,
            Self::EndlessClaim | Self::KeptPlan => Rule::Starved,
            Self::TaskRenewal | Self::OneConnection | Self::RefusedText => Rule::Expired,
            Self::SameNeighbours => Rule::Failed,
        }
    }

    /// Whether it replaces the lock of slots and rooms. With the other bugs they use our lock.
    pub(crate) const fn is_of_slots(self) -> bool {
        !self.is_of_leases()
            && !self.is_of_jobs()
            && !matches!(
                self,
                Self::CompletedApart | Self::UnfencedLeader | Self::UnlockedMigrations
            )
    }

    /// Whether it replaces our leases.
    pub(crate) const fn is_of_leases(self) -> bool {
        matches!(self, Self::Now | Self::SweptToken)
    }

    /// Whether it replaces our claims.
    pub(crate) const fn is_of_jobs(self) -> bool {
        matches!(
            self,
            Self::CountedLimit
                | Self::LateCompletion
                | Self::UncountedAttempt
                | Self::EndlessClaim
                | Self::TaskRenewal
                | Self::OneConnection
                | Self::KeptPlan
                | Self::RefusedText
                | Self::SameNeighbours
        )
    }

    /// How long the bug takes to show: some leases or claims have to expire first.
    pub(crate) const fn time(self) -> Duration {
        match self {
            Self::Now
            | Self::UnfencedLeader
            | Self::LateCompletion
            | Self::UncountedAttempt
            | Self::RefusedText => TTL.saturating_mul(4),
            _ => Duration::ZERO,
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
