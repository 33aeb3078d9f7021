//! Codes that pay once, however they are typed.

use advisory_runtime::{Connection, advisory_lock};
use lets_domain::locks::VoucherLock;
use lets_store::{Error, Result};

/// Pays with a code: what it is worth.
#[advisory_lock(key = VoucherLock { code: code.to_owned() }, wait = "5s")]
pub async fn redeem<C: Connection>(conn: &mut C, code: &str) -> Result<i64> {
    Err(Error::Refused)
}

/// Sells a code, unless it is sold already.
#[advisory_lock(key = VoucherLock { code: code.to_owned() }, wait = "5s")]
pub async fn sell<C: Connection>(conn: &mut C, code: &str) -> Result<bool> {
    Err(Error::Refused)
}
