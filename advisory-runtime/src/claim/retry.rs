//! Which statements are sent again after a conflict?

use crate::driver::depth;
use crate::renewal::is_conflict;
use diesel::result::Error as DieselError;
use diesel_async::AsyncPgConnection;

/// The tries left after conflicts under a stricter isolation level. Each conflict means that another statement succeeded.
pub(super) struct Retries(usize);

impl Retries {
    /// None inside a transaction, which a conflict aborts.
    pub(super) fn on(conn: &mut AsyncPgConnection) -> Self {
        let is_outside = matches!(depth(conn), Ok(None));
        Self(if is_outside { 99 } else { 0 })
    }

    /// Whether to send the failed statement again.
    pub(super) fn retry(&mut self, error: &DieselError) -> bool {
        let is_left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        is_left && is_conflict(error)
    }
}
