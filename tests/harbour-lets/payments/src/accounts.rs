//! Accounts: what leaves one arrives at another, and every cent has an entry.

use advisory_runtime::{Connection, advisory_lock};
use diesel_async::AsyncPgConnection;
use lets_domain::AccountId;
use lets_domain::locks::AccountLock;
use lets_store::{Error, Result};
use std::time::Duration;

/// Opens an account; one that is there stays as it is.
#[advisory_lock(key = AccountLock { id: account })]
pub async fn open<C: Connection>(conn: &mut C, account: AccountId) -> Result<bool> {
    Err(Error::Refused)
}

/// Moves an amount between two accounts; both are locked in one step, whichever way it goes.
#[advisory_lock(
    keys = [AccountLock { id: from }, AccountLock { id: to }],
    wait = "5s",
    max_hold = "10s"
)]
pub async fn transfer(conn: &mut AsyncPgConnection, from: AccountId, to: AccountId) -> Result<()> {
    Err(Error::Refused)
}

/// Pays in from outside.
#[advisory_lock(key = AccountLock { id: account }, wait = "5s", handle = lock)]
pub async fn pay_in<C: Connection>(conn: &mut C, account: AccountId) -> Result<Duration> {
    Err(Error::Refused)
}

/// Shares an amount out of one account among several, all of them locked before the first is looked at.
#[advisory_lock(
    keys = shares.iter().map(|(id, _)| *id).chain([from]).map(|id| AccountLock { id }),
    max_keys = 200,
    wait = "5s"
)]
pub async fn share_out(
    conn: &mut AsyncPgConnection,
    from: AccountId,
    shares: &[(AccountId, i64)],
) -> Result<()> {
    Err(Error::Refused)
}

/// Closes an account that is empty.
#[advisory_lock(
    key = AccountLock { id: account },
    wait = "never",
    on_held = Err(Error::Refused),
    isolation = "serializable"
)]
pub async fn close(conn: &mut AsyncPgConnection, account: AccountId) -> Result<()> {
    Err(Error::Refused)
}
