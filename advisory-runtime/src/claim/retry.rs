//! How often is a statement of a claim sent again?

use crate::driver::depth;
use crate::renewal::is_conflict;
use diesel::result::Error as DieselError;
use diesel_async::AsyncPgConnection;

/// How often a statement is sent again after a conflict under a stricter level. Each conflict means that another statement has
/// succeeded.
pub(super) struct Retries(usize);

impl Retries {
    /// None inside a transaction, which the conflict has failed.
    pub(super) fn on(conn: &mut AsyncPgConnection) -> Self {
        Self(if matches!(depth(conn), Ok(None)) {
            99
        } else {
            0
        })
    }

    /// Whether to send the statement again that has failed.
    pub(super) fn retry(&mut self, error: &DieselError) -> bool {
        let is_left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        is_left && is_conflict(error)
    }
}
