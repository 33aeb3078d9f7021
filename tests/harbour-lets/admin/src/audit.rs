//! An auditor's session: one connection, as long as the audit takes.

use advisory_runtime::advisory_lock;
use diesel::PgConnection;
use lets_domain::AccountId;
use lets_domain::locks::AccountLock;
use lets_store::{Error, Result};

pub struct Audit {
    pub conn: PgConnection,
}

impl Audit {
    /// What an account says it has and what its entries come to, between two payments.
    #[advisory_lock(key = AccountLock { id: account }, mode = "shared", conn = self.conn, wait = "10s")]
    pub fn compare(&mut self, account: AccountId) -> Result<(i64, i64)> {
        Err(Error::Refused)
    }
}
