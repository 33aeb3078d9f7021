//! Which bugs can be put into the programs, so that the checker is seen to fail?

use std::str::FromStr;

/// A bug that locks written by hand are known for; `rival` has the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A transaction without a lock.
    LockOut,
    /// A session-level lock inside the transaction, released before its commit.
    UnlockBeforeCommit,
    /// The lock and the read in one statement, whose snapshot is older than the wait.
    OneStatement,
    /// A lease that expires by `now()`, which is the transaction's begin and so older than a wait in it.
    Now,
    /// A dropped call leaves its transaction open, and the connection goes on.
    GuardOff,
    /// A body that returns `Ok` over a failed statement is reported as committed.
    SwallowedError,
}

impl Bug {
    pub(crate) const ALL: [Self; 6] = [
        Self::LockOut,
        Self::UnlockBeforeCommit,
        Self::OneStatement,
        Self::Now,
        Self::GuardOff,
        Self::SwallowedError,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::LockOut => "lock-out",
            Self::UnlockBeforeCommit => "unlock-before-commit",
            Self::OneStatement => "one-statement",
            Self::Now => "now",
            Self::GuardOff => "guard-off",
            Self::SwallowedError => "swallowed-error",
        }
    }
}

impl FromStr for Bug {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|bug| bug.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no bug `{name}`: write one of {names}")
        })
    }
}
