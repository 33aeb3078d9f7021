//! The bugs that can be injected, to show that the checker finds them.

use crate::absence::TTL;
use crate::named::named;
use crate::violation::Rule;
use std::time::Duration;

/// Declares the bugs: the name, the rule that it breaks among others, and what it is.
macro_rules! bugs {
    ($($bug:ident $name:literal $rule:ident $what:literal)*) => {
        named! {
            /// A common bug of locks written by hand; `buggy` has the code.
            Bug { $($bug = $name),* }
        }

        impl Bug {
            pub(crate) const fn description(self) -> &'static str {
                match self {
                    $(Self::$bug => $what,)*
                }
            }

            pub(crate) const fn rule(self) -> Rule {
                match self {
                    $(Self::$bug => Rule::$rule,)*
                }
            }
        }
    };
}

bugs! {
    LockOut "lock-out" TooMany "a transaction without a lock"
    UnlockBeforeCommit "unlock-before-commit" Doubled
        "a session-level lock that is released inside the transaction"
    OneStatement "one-statement" Doubled
        "the lock and the read in one statement, which reads the state before the wait"
    PollInSnapshot "poll-in-snapshot" Doubled
        "tries in one REPEATABLE READ transaction, which reads the state of the first try"
    CountedPermits "counted-permits" TooMany
        "permits that are counted in `pg_locks` before one more is taken"
    EarlyReturn "early-return" Left
        "an early return that skips the release of a session-level lock"
    GuardOff "guard-off" Ghost
        "a dropped call leaves its transaction open, and the connection is used again"
    SwallowedError "swallowed-error" Lost
        "a body that returns `Ok` after a failed statement is reported as committed"
    Now "now" TooMany
        "the expiry of a lease is compared with `now()`, in a transaction that has waited"
    SweptToken "swept-token" Token
        "tokens that are counted in the lease's row, and a sweep that deletes the row"
    CompletedApart "completed-apart" Doubled "work that is marked as done in a later transaction"
    UnfencedLeader "unfenced-leader" Token
        "a leader that does not renew its lease and writes without the fence"
    UnlockedMigrations "unlocked-migrations" Doubled "migrations that are run without a lock"
    CountedLimit "counted-limit" TooMany
        "the running jobs of a tenant are counted in the statement that claims one more"
    LateCompletion "late-completion" Doubled "a job is completed after its claim has expired"
    UncountedAttempt "uncounted-attempt" Attempts
        "an attempt counts when it fails, and not when its worker dies"
    EndlessClaim "endless-claim" Starved "a job is not claimed again if its worker has died"
    TaskRenewal "task-renewal" Expired
        "a claim that a task of the application's runtime renews"
    OneConnection "one-connection" Expired
        "claims that are renewed on one connection, whatever happens to it"
    KeptPlan "kept-plan" Starved
        "a claim that is prepared once, on a connection that is used again after an error"
    RefusedText "refused-text" Expired
        "the end of a job is given up if the text of its error does not fit"
    SameNeighbours "same-neighbours" Failed
        "the jobs of a dead worker are claimed again together, by one worker"
}

impl Bug {
    /// Whether it replaces the lock of slots and rooms. With the other bugs they use our lock.
    pub(crate) const fn is_of_slots(self) -> bool {
        matches!(
            self,
            Self::LockOut
                | Self::UnlockBeforeCommit
                | Self::OneStatement
                | Self::PollInSnapshot
                | Self::CountedPermits
                | Self::EarlyReturn
                | Self::GuardOff
                | Self::SwallowedError
        )
    }

    /// Whether it replaces our leases.
    pub(crate) const fn is_of_leases(self) -> bool {
        matches!(self, Self::Now | Self::SweptToken)
    }

    /// Whether it replaces our claims.
    pub(crate) const fn is_of_jobs(self) -> bool {
        self as usize >= Self::CountedLimit as usize
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
