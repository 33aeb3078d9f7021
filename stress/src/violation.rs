//! The rules that a run can break.

use crate::named::named;

named! {
    /// A rule.
    Rule {
        /// A key has one holder at a time, or as many as it has permits.
        TooMany = "too many holders",
        /// Confirmed writes exist.
        Lost = "lost",
        /// A slot is booked once, a job is done once, and each is recorded once.
        Doubled = "doubled",
        /// A call that reported no effect has none, and everything written was begun by a client.
        Ghost = "ghost",
        /// Tokens grow; a lease is granted only when it is free; no write under an older token
        /// comes after a newer grant.
        Token = "token",
        /// Each claim of a job is an attempt unless it was released; a job fails after its last
        /// one.
        Attempts = "attempts",
        /// A row is held as long as its process lives and the server answers.
        Expired = "expired",
        /// A job that does not fail is done, whatever its neighbours do.
        Failed = "failed",
        /// Once the load has stopped, each job is done or has failed.
        Starved = "starved",
        /// Once the load has stopped, no lock, no waiter and no open transaction is left.
        Left = "left",
        /// Each worker continues after a fault, and exits when it has to.
        Stuck = "stuck",
        /// Each run continues until it has shown enough.
        Incomplete = "incomplete",
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
