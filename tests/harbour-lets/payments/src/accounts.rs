//! Accounts: what leaves one arrives at another, and every cent has an entry.

use advisory_runtime::{Connection, LockInfo, LockKey, advisory_lock};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::locks::AccountLock;
use lets_domain::{AccountId, Cents};
use lets_store::schema::{accounts, entries};
use lets_store::{Error, Refusal, Result};
use std::time::Duration;

pub async fn balance<C: Connection>(conn: &mut C, account: AccountId) -> Result<Cents> {
    let found = accounts::table.find(account.0).select(accounts::balance);
    Ok(Cents(found.first(conn).await?))
}

/// Opens an account; one that is there stays as it is.
#[advisory_lock(key = AccountLock { id: account })]
pub async fn open<C: Connection>(conn: &mut C, account: AccountId, holder: &str) -> Result<bool> {
    let opened = diesel::insert_into(accounts::table)
        .values((accounts::id.eq(account.0), accounts::holder.eq(holder)))
        .on_conflict_do_nothing()
        .execute(conn)
        .await?;
    Ok(opened > 0)
}

/// Moves an amount between two accounts; both are locked in one step, whichever way it goes.
#[advisory_lock(
    keys = [AccountLock { id: from }, AccountLock { id: to }],
    wait = "5s",
    max_hold = "10s"
)]
pub async fn transfer(
    conn: &mut AsyncPgConnection,
    from: AccountId,
    to: AccountId,
    amount: Cents,
    reason: &str,
) -> Result<()> {
    if !amount.is_positive() || from == to {
        return Err(Refusal::Invalid.into());
    }
    if balance(conn, from).await? < amount {
        return Err(Refusal::TooLittle.into());
    }
    post(conn, from, -amount, reason).await?;
    post(conn, to, amount, reason).await
}

/// Pays in from outside.
#[advisory_lock(key = AccountLock { id: account }, wait = "5s", handle = lock)]
pub async fn pay_in<C: Connection>(
    conn: &mut C,
    account: AccountId,
    amount: Cents,
    reason: &str,
) -> Result<Duration> {
    if !amount.is_positive() {
        return Err(Refusal::Invalid.into());
    }
    post(conn, account, amount, reason).await?;
    Ok(lock.waited())
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
    shares: &[(AccountId, Cents)],
    reason: &str,
) -> Result<()> {
    let total: Cents = shares.iter().map(|(_, amount)| *amount).sum();
    if balance(conn, from).await? < total {
        return Err(Refusal::TooLittle.into());
    }
    post(conn, from, -total, reason).await?;
    for (to, amount) in shares {
        post(conn, *to, *amount, reason).await?;
    }
    Ok(())
}

/// Closes an account that is empty.
#[advisory_lock(
    key = AccountLock { id: account },
    wait = "never",
    on_held = Err(Error::Refused(Refusal::Busy)),
    isolation = "serializable"
)]
pub async fn close(conn: &mut AsyncPgConnection, account: AccountId) -> Result<()> {
    if balance(conn, account).await? != Cents::ZERO {
        return Err(Refusal::WrongState.into());
    }
    diesel::update(accounts::table.find(account.0))
        .set(accounts::is_closed.eq(true))
        .execute(conn)
        .await?;
    Ok(())
}

/// What a log line says of a lock.
pub fn told(lock: &LockInfo, account: AccountId) -> String {
    let key = AccountLock { id: account }.rendered();
    format!("{key} after {} ms", lock.waited().as_millis())
}

async fn post<C: Connection>(
    conn: &mut C,
    account: AccountId,
    amount: Cents,
    reason: &str,
) -> Result<()> {
    let open = accounts::table
        .find(account.0)
        .filter(accounts::is_closed.eq(false));
    let changed = diesel::update(open)
        .set(accounts::balance.eq(accounts::balance + amount.0))
        .execute(conn)
        .await?;
    if changed == 0 {
        return Err(Refusal::NotFound.into());
    }
    diesel::insert_into(entries::table)
        .values((
            entries::account_id.eq(account.0),
            entries::amount.eq(amount.0),
            entries::reason.eq(reason),
        ))
        .execute(conn)
        .await?;
    Ok(())
}
