//! The number that grows with each grant of a key.

use std::fmt;

/// Grows with each grant of a key, for ever: storage that has seen a token refuses a smaller one, and so a holder from before.
///
/// Tokens of different keys say nothing about each other. What no single server can promise: one that fails over to a standby
/// that had not received the last grants, or is restored from a backup, issues tokens again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub(super) i64);

impl FencingToken {
    /// The number, for a `BIGINT` column of your own: `… SET fence = $token WHERE fence <= $token`.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
