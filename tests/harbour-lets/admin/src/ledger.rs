//! Accounts as the accountants see them.

use crate::Office;
use advisory_runtime::{LockKey, advisory_lock};
use diesel::prelude::*;
use lets_domain::locks::AccountLock;
use lets_domain::{AccountId, Cents};
use lets_store::schema::{accounts, entries};
use lets_store::{Refusal, Result};

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
    pub fn correct(&self, account: AccountId, ours: AccountId, amount: Cents) -> Result<usize> {
        if account == ours {
            return Err(Refusal::Invalid.into());
        }
        let locks = lock.keys().len();
        for (id, amount) in [(account, amount), (ours, -amount)] {
            diesel::update(accounts::table.find(id.0))
                .set(accounts::balance.eq(accounts::balance + amount.0))
                .execute(conn)?;
            diesel::insert_into(entries::table)
                .values((
                    entries::account_id.eq(id.0),
                    entries::amount.eq(amount.0),
                    entries::reason.eq("correction"),
                ))
                .execute(conn)?;
        }
        Ok(locks)
    }

    /// Closes a month: what every account comes to.
    #[advisory_lock(
        key = month,
        wait = "never",
        on_held = Err(Refusal::Busy.into()),
        isolation = "serializable",
        conn = self.pool.get()?
    )]
    pub fn close_month(&self, month: LedgerMonth) -> Result<Cents> {
        if !(1..=12).contains(&month.month) {
            return Err(Refusal::Invalid.into());
        }
        let amounts: Vec<i64> = entries::table.select(entries::amount).load(conn)?;
        let balances: Vec<i64> = accounts::table.select(accounts::balance).load(conn)?;
        let (posted, kept) = (
            amounts.into_iter().map(Cents).sum::<Cents>(),
            balances.into_iter().map(Cents).sum::<Cents>(),
        );
        if posted != kept {
            return Err(Refusal::WrongState.into());
        }
        Ok(kept)
    }
}
