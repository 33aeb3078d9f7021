//! An auditor's session: one connection, as long as the audit takes.

use advisory_runtime::advisory_lock;
use diesel::prelude::*;
use lets_domain::locks::AccountLock;
use lets_domain::{AccountId, Cents};
use lets_store::Result;
use lets_store::schema::{accounts, entries};

pub struct Audit {
    pub conn: PgConnection,
}

impl Audit {
    /// What an account says it has and what its entries come to, between two payments.
    #[advisory_lock(key = AccountLock { id: account }, mode = "shared", conn = self.conn, wait = "10s")]
    pub fn compare(&mut self, account: AccountId) -> Result<(Cents, Cents)> {
        let balance = accounts::table.find(account.0).select(accounts::balance);
        let balance = balance.first(&mut self.conn)?;
        let amounts: Vec<i64> = entries::table
            .filter(entries::account_id.eq(account.0))
            .select(entries::amount)
            .load(&mut self.conn)?;
        Ok((Cents(balance), amounts.into_iter().map(Cents).sum()))
    }
}
