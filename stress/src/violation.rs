//! The rules that a run can break.

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// A key has one holder at a time, or as many as it has permits.
    TooMany,
    /// Confirmed writes exist.
    Lost,
    /// A slot is booked once, a job is done once, and each is recorded once.
    Doubled,
    /// A call that reported no effect has none, and everything written was begun by a client.
    Ghost,
    /// Tokens grow; a lease is granted only when it is free; no write under an older token comes
    /// after a newer grant.
    Token,
    /// Each claim of a job is an attempt unless it was released; a job fails after its last one.
    Attempts,
    /// A row is held as long as its process lives and the server answers.
    Expired,
    /// A job that does not fail is done, whatever its neighbours do.
    Failed,
    /// Once the load has stopped, each job is done or has failed.
    Starved,
    /// Once the load has stopped, no lock, no waiter and no open transaction is left.
    Left,
    /// Each worker continues after a fault, and exits when it has to.
    Stuck,
    /// Each run continues until it has shown enough.
    Incomplete,
}

impl Rule {
    pub(crate) const ALL: [Self; 12] = [
        Self::TooMany,
        Self::Lost,
        Self::Doubled,
        Self::Ghost,
        Self::Token,
        Self::Attempts,
        Self::Expired,
        Self::Failed,
        Self::Starved,
        Self::Left,
        Self::Stuck,
        Self::Incomplete,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TooMany => "too many holders",
            Self::Lost => "lost",
            Self::Doubled => "doubled",
            Self::Ghost => "ghost",
            Self::Token => "token",
            Self::Attempts => "attempts",
            Self::Expired => "expired",
            Self::Failed => "failed",
            Self::Starved => "starved",
            Self::Left => "left",
            Self::Stuck => "stuck",
            Self::Incomplete => "incomplete",
        }
    }
}

/// One violation of a rule, and the records that show it.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) what: String,
}

impl Violation {
    pub(crate) fn new(rule: Rule, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { rule, what }
    }
}
