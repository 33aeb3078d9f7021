//! Which rules are there to break?

/// A rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Never two holders of one key at once, and never more than there are permits.
    TooMany,
    /// What was confirmed is there.
    Lost,
    /// A slot is booked once, and a booking is there once.
    Doubled,
    /// What a caller was told did not happen did not, and what is there somebody has begun.
    Ghost,
    /// Tokens grow; a lease is granted when it is free; no write under an older token comes after a newer grant.
    Token,
    /// Once the load has stopped no lock, no waiter and no open transaction is left.
    Left,
    /// Each worker goes on when the fault is over, and ends when it has to.
    Stuck,
    /// Each run goes on until it has shown enough.
    Incomplete,
}

impl Rule {
    pub(crate) const ALL: [Self; 8] = [
        Self::TooMany,
        Self::Lost,
        Self::Doubled,
        Self::Ghost,
        Self::Token,
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
            Self::Left => "left",
            Self::Stuck => "stuck",
            Self::Incomplete => "incomplete",
        }
    }
}

/// One breach of a rule, and what shows it.
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
