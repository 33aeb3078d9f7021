//! Accounts as the accountants see them.

use crate::Office;
use advisory_runtime::{LockKey, advisory_lock};
use lets_domain::AccountId;
use lets_domain::locks::AccountLock;
use lets_store::{Error, Result};

/// A month of the ledger. Only the back office closes one.
#[derive(Clone, Copy, Debug, LockKey)]
#[lock_key("ledger-month:<year: int>:<month: uint>", component = "ledger")]
pub struct LedgerMonth {
    pub year: i32,
    pub month: u32,
}

impl Office {
    /// Corrects a balance by hand, as a booking against our own account.
    #[advisory_lock(
        keys = [AccountLock { id: account }, AccountLock { id: ours }],
        wait = "5s",
        conn = self.pool.get()?,
        handle = lock
    )]
    pub fn correct(&self, account: AccountId, ours: AccountId) -> Result<usize> {
        Err(Error::Refused)
    }

    /// Closes a month: what every account comes to.
    #[advisory_lock(
        key = month,
        wait = "never",
        on_held = Err(Error::Refused),
        isolation = "serializable",
        conn = self.pool.get()?
    )]
    pub fn close_month(&self, month: LedgerMonth) -> Result<i64> {
        Err(Error::Refused)
    }
}
