//! Each step of a lease as one round trip on a connection of the caller's.

use super::backoff::{Backoff, Refusal};
use super::request::{lasts, milliseconds};
use super::row::micros;
use super::statement::{GrantColumns, Statement, Value, count};
use super::{FencingToken, Lease, Request, Table, running};
use crate::driver::{Driver, depth};
use crate::renewal::is_conflict;
use crate::{Connection, Error};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::borrow::Cow;
use std::num::NonZeroU32;
use std::time::Duration;
use tokio::time::Instant;

impl Table {
    /// Acquires a lease on a connection of the caller's, and does not renew it.
    ///
    /// # Locking
    ///
    /// An `UPDATE` of the row or, if the key has none, an `INSERT`, in one statement: one round trip a try. It takes a
    /// transaction-level advisory lock on the key for that statement, without waiting, and waits for nobody inside the server: if the
    /// request has a wait, it tries again, after 10 ms at first and after half a second at most. An `INSERT` also removes a few rows
    /// that have expired. Held until [`release`](Self::release), or until its ttl is over. `synchronous_commit` is forced for it.
    ///
    /// # Errors
    ///
    /// [`Error::NotAvailable`], [`Error::TimedOut`], [`Error::KeyTooLong`], [`Error::InvalidLease`], [`Error::InTransaction`]
    /// inside a transaction, whose end would decide on it (one that was begun by SQL and not by Diesel is not found out);
    /// [`Error::MissingTable`] (42P01), [`Error::Standby`], [`Error::BrokenConnection`], [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a lease that was granted meanwhile lasts for its ttl. [`Leases::acquire`](super::Leases::acquire) is.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::{Error, Wait, lease::{Request, Table}};
    /// use diesel_async::AsyncPgConnection;
    /// use std::time::Duration;
    ///
    /// async fn report(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    ///     let (table, ttl) = (Table::new(), Duration::from_secs(60));
    ///     let lease = table.acquire(conn, Request::text("report:2026-11").ttl(ttl).wait(Wait::Never)).await?;
    ///     // … the first half …
    ///     if table.renew(conn, &lease, ttl).await? {
    ///         // … the second half, each of its writes behind `lease.fence(…)` …
    ///     }
    ///     table.release(conn, &lease).await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn acquire<C: Connection>(
        &self,
        conn: &mut C,
        request: impl Into<Request>,
    ) -> Result<Lease, Error> {
        let request = request.into();
        request.check()?;
        drop(running::asked(&request));
        let mut backoff = Backoff::new(&request, self);
        let grant_id = random();
        loop {
            match self.attempt(conn.pg(), &request, grant_id).await? {
                Ok(lease) => return Ok(lease.after(backoff.waited())),
                Err(refusal) => backoff.pause(refusal).await?,
            }
        }
    }

    /// One try. With the same `grant_id`, a try whose answer was lost is found again.
    pub(super) async fn attempt(
        &self,
        conn: &mut AsyncPgConnection,
        request: &Request,
        grant_id: i64,
    ) -> Result<Result<Lease, Refusal>, Error> {
        require_no_transaction(conn, || request.name())?;
        let is_test = depth(conn).is_ok_and(|depth| depth.is_some());
        let key_hash = request.key_hash();
        // Rows that a test's transaction removes would be locked to its end: it looks behind the last one.
        let mut swept_from = [u8::MAX; 32];
        if !is_test {
            swept_from[..8].copy_from_slice(&random().to_be_bytes());
        }
        let sent = Instant::now();
        let statement: Statement<'_, 8, GrantColumns> = Statement::new(
            &self.named.texts.acquire,
            [
                Value::Hash(key_hash),
                Value::Number(grant_id),
                Value::Text(Some(&self.holder)),
                Value::Text(self.has_text.then_some(&request.key)),
                Value::Text(Some(request.lock).filter(|pattern| !pattern.is_empty())),
                Value::Number(milliseconds(request.ttl)),
                Value::Number(self.grant_lock(&key_hash)),
                Value::Hash(swept_from),
            ],
        );
        let answer: Result<(Option<i64>, i64, i64), _> =
            RunQueryDsl::get_result(statement, conn).await;
        match answer {
            Ok((Some(token), ..)) => {
                let token = FencingToken(token);
                let lease = Lease::new(self, request, grant_id, token, sent);
                Ok(Ok(Lease { is_test, ..lease }))
            }
            Ok((None, left, lock_timeout)) => Ok(Err(Refusal::Held {
                left: micros(left),
                lock_timeout: Some(micros(lock_timeout)).filter(|limit| !limit.is_zero()),
            })),
            Err(error) if is_conflict(&error) => Ok(Err(Refusal::Conflict)),
            Err(error) => Err(self.explain(conn, error, request.name()).await),
        }
    }

    /// Makes a lease last its ttl from now on; `false` when it is not held any more, and then it never is again. It never gets
    /// shorter, and its token stays the same. [`Leases::acquire`](super::Leases::acquire) does it in the background.
    ///
    /// # Locking
    ///
    /// One statement: the row is locked (`SELECT … FOR NO KEY UPDATE`), and then `UPDATE … SET expires_at = clock_timestamp() + ttl` if
    /// it is still this grant's and has not expired. It passes by a [`fence`](Lease::fence), and waits only for a statement that
    /// changes the row. `synchronous_commit` is forced for it. The ttl is whole milliseconds, rounded up.
    ///
    /// # Errors
    ///
    /// [`Error::InTransaction`] inside a transaction, which could undo it; [`Error::InvalidLease`] for more than 100 years;
    /// [`Error::MissingTable`] (42P01), [`Error::Standby`], [`Error::BrokenConnection`], [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it is renewed or not, and the lease's own clock counts from before.
    pub async fn renew<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        ttl: Duration,
    ) -> Result<bool, Error> {
        require_no_transaction(conn.pg(), || lease.name())?;
        let sent = Instant::now();
        let renewed = self.change(conn.pg(), lease, &self.named.texts.renew, ttl);
        let is_held = renewed.await?;
        if is_held {
            lease.hold.renewed(sent, ttl);
        } else {
            lease.hold.lose();
        }
        Ok(is_held)
    }

    /// Releases a lease; `false` when its row is another grant's by now, is kept, or is gone. Releasing twice is the same.
    ///
    /// # Locking
    ///
    /// `UPDATE … SET expires_at = clock_timestamp(), key = NULL` if it is still this grant's. It does not wait for the disk: a crash of
    /// the server that forgets a release leaves the key taken until the ttl is over.
    ///
    /// # Errors
    ///
    /// As [`renew`](Self::renew).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: it may be released or not.
    pub async fn release<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error> {
        let conn = conn.pg();
        require_no_transaction(conn, || lease.name())?;
        let released = self.told(conn, lease, &self.named.texts.release, lease.values());
        let released = released.await;
        lease.hold.lose();
        released
    }

    /// Leaves the key taken for this time from now on, by nobody who could renew, release or write under it; `false` when it was
    /// not held any more. If you ask again, it is kept anew. In whole milliseconds, rounded up. In the transaction that writes use
    /// [`Lease::complete`].
    ///
    /// # Locking
    ///
    /// As [`renew`](Self::renew), and the row is marked as kept.
    ///
    /// # Errors
    ///
    /// As [`renew`](Self::renew).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: it may be kept or not.
    pub async fn keep<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        keep: Duration,
    ) -> Result<bool, Error> {
        require_no_transaction(conn.pg(), || lease.name())?;
        lasts(keep, || lease.name())?;
        let kept = self.change(conn.pg(), lease, &self.named.texts.keep, keep);
        let kept = kept.await;
        lease.hold.lose();
        kept
    }

    /// Whether this lease is still held, by the server's word. A moment later it may not be: to write under it use
    /// [`Lease::fence`].
    ///
    /// # Locking
    ///
    /// `SELECT … WHERE expires_at > clock_timestamp()`, of this grant. It locks nothing and waits for nobody.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn holds<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error> {
        let text = &self.named.texts.holds;
        self.told(conn.pg(), lease, text, lease.values()).await
    }

    /// Whether this grant's key is kept, once the transaction that changes the row has ended.
    pub(super) async fn is_kept(
        &self,
        conn: &mut AsyncPgConnection,
        lease: &Lease,
    ) -> Result<bool, Error> {
        let text = &self.named.texts.is_kept;
        self.told(conn, lease, text, lease.values()).await
    }

    /// Sets a new end, if the lease is held.
    pub(super) async fn change(
        &self,
        conn: &mut AsyncPgConnection,
        lease: &Lease,
        text: &str,
        time: Duration,
    ) -> Result<bool, Error> {
        lasts(time, || lease.name())?;
        let [hash, grant] = lease.values();
        let values = [hash, grant, Value::Number(milliseconds(time))];
        self.told(conn, lease, text, values).await
    }

    /// Whether the statement has found or changed the lease's row.
    async fn told<const N: usize>(
        &self,
        conn: &mut AsyncPgConnection,
        lease: &Lease,
        text: &str,
        values: [Value<'_>; N],
    ) -> Result<bool, Error> {
        match count(conn, text, values).await {
            Ok(rows) => Ok(rows > 0),
            Err(error) => Err(self.explain(conn, error, lease.name()).await),
        }
    }
}

/// Refuses a transaction that could undo the step; a test's counts as none.
pub(super) fn require_no_transaction(
    conn: &mut AsyncPgConnection,
    lock: impl Fn() -> Cow<'static, str>,
) -> Result<(), Error> {
    match depth(conn) {
        Ok(None | Some(NonZeroU32::MIN)) if !conn.is_broken() => Ok(()),
        Ok(Some(_)) => Err(Error::InTransaction { lock: lock() }),
        _ => Err(Error::BrokenConnection { lock: lock() }),
    }
}

/// A number that no other grant has: after a fail-over that forgets grants a token comes twice, this does not.
pub(super) fn random() -> i64 {
    use std::hash::{BuildHasher, RandomState};
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| now.as_nanos());
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    // Keyed by the operating system's randomness.
    RandomState::new()
        .hash_one((next, now, std::process::id()))
        .cast_signed()
}
