//! Each step of a lease, as one round trip on the caller's connection.

use super::backoff::{Backoff, Refusal};
use super::queries::Rights;
use super::request::{lasts, milliseconds};
use super::row::micros;
use super::sql::BEHIND;
use super::statement::{GrantColumns, Statement, Value, count};
use super::{Error, FencingToken, Lease, Request, Table, body_leases};
use crate::Connection;
use crate::driver::depth;
use crate::renewal::{Expiry, Sent, is_conflict, require_no_transaction};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::time::Duration;

impl Table {
    /// Acquires a lease on the caller's connection, without renewing it.
    ///
    /// # Locking
    ///
    /// One statement, and one round trip, per try: an `UPDATE` of the key's row or an `INSERT`, which also removes a few expired rows.
    /// The statement takes a transaction-level advisory lock on the key without waiting. If the request has a wait, it tries again,
    /// first after 10 ms and at last every half second. If the sequence is behind the key's token, a second message moves it
    /// to the largest one under a lock on the table (`SHARE ROW EXCLUSIVE`), for which it waits at most a second. The lease is held until [`release`](Self::release) or the end of its ttl.
    /// `synchronous_commit` is forced.
    ///
    /// # Errors
    ///
    /// [`Error::Held`]; [`Error::Done`], at once whatever the wait; [`Error::KeyTooLong`],
    /// [`Error::Invalid`]; [`Error::InTransaction`] inside a transaction of Diesel's;
    /// [`Error::MissingTable`] (42P01), [`Error::MissingRights`] (42501), [`Error::Standby`], [`Error::BrokenConnection`],
    /// [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a lease may be granted, and lasts for its ttl. Use [`Leases::acquire`](super::Leases::acquire) instead.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::{Wait, lease::{Error, Request, Table}};
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
        drop(body_leases::record_request(&request));
        let mut backoff = Backoff::new(&request, self);
        let grant_id = random();
        loop {
            match self.attempt(conn.pg(), &request, grant_id).await? {
                Ok(lease) => return Ok(lease.with_waited(backoff.waited())),
                Err(refusal) => backoff.pause(refusal).await?,
            }
        }
    }

    /// Tries once. A second try with the same `grant_id` finds the grant of the first if its answer was lost.
    pub(super) async fn attempt(
        &self,
        conn: &mut AsyncPgConnection,
        request: &Request,
        grant_id: i64,
    ) -> Result<Result<Lease, Refusal>, Error> {
        require_no_transaction(conn)
            .map_err(|unusable| Error::unusable(unusable, request.name()))?;
        let is_test = depth(conn).is_ok_and(|depth| depth.is_some());
        let key_hash = request.key_hash();
        // A test's transaction removes no expired rows: they would stay locked until it ends.
        let mut swept_from = [u8::MAX; 32];
        if !is_test {
            swept_from[..8].copy_from_slice(&random().to_be_bytes());
        }
        let values = [
            Value::Hash(key_hash),
            Value::Number(grant_id),
            Value::Text(Some(&self.holder)),
            Value::Text(self.has_text.then_some(&request.key)),
            Value::Text(Some(request.lock).filter(|pattern| !pattern.is_empty())),
            Value::Number(milliseconds(request.ttl)),
            Value::Number(self.grant_lock(&key_hash)),
            Value::Hash(swept_from),
        ];
        let sent = Sent::now();
        let statement = Statement::<GrantColumns>::new(&self.named.texts.acquire, &values);
        let answer: Result<(Option<i64>, i64, i64), _> =
            RunQueryDsl::get_result(statement, conn).await;
        match answer {
            Ok((Some(token), left, _)) => {
                let token = FencingToken(token);
                // The grant of an earlier try is not a whole ttl away from its expiry.
                let ttl = match micros(left) {
                    Duration::ZERO => request.ttl,
                    left => left.min(request.ttl),
                };
                let until = Expiry::after(sent, ttl);
                let lease = Lease::new(self, request, grant_id, token, until);
                let lease = Lease { is_test, ..lease };
                if left == BEHIND
                    && let Err(error) = self.move_sequence(conn, &lease).await
                {
                    drop(self.release(conn, &lease).await);
                    return Err(error);
                }
                Ok(Ok(lease))
            }
            Ok((None, left, _)) if left < 0 => Ok(Err(Refusal::Done {
                remaining: micros(left.saturating_neg()),
            })),
            Ok((None, left, lock_timeout)) => Ok(Err(Refusal::Held {
                left: micros(left),
                lock_timeout: Some(micros(lock_timeout)).filter(|limit| !limit.is_zero()),
            })),
            Err(error) if is_conflict(&error) => Ok(Err(Refusal::Conflict)),
            Err(error) => {
                let lock = request.name();
                Err(self.explain_with(conn, error, lock, Rights::Grant).await)
            }
        }
    }

    /// Moves the sequence to the largest token in the table, so that keys without a row get larger ones too.
    async fn move_sequence(
        &self,
        conn: &mut AsyncPgConnection,
        lease: &Lease,
    ) -> Result<(), Error> {
        let move_it = &self.named.texts.move_sequence;
        let moved = if lease.is_test {
            // The setting would last until the end of the test's transaction.
            conn.batch_execute(move_it).await
        } else {
            // Renewals wait behind this wait.
            let message = format!("SET LOCAL lock_timeout='1s';{move_it}");
            conn.batch_execute(&message).await
        };
        match moved {
            Ok(()) => Ok(()),
            Err(error) => {
                let (lock, rights) = (lease.name(), Rights::MoveSequence);
                Err(self.explain_with(conn, error, lock, rights).await)
            }
        }
    }

    /// Renews a lease for `ttl` from now, and keeps its token; `false` if it is not held any more. A renewal never shortens a lease.
    /// [`Leases::acquire`](super::Leases::acquire) renews in the background.
    ///
    /// # Locking
    ///
    /// One statement locks the row (`SELECT … FOR NO KEY UPDATE`), then runs `UPDATE … SET expires_at = clock_timestamp() + ttl` if this
    /// grant holds it. It does not wait for a [`fence`](Lease::fence), only for statements that change the row.
    /// `synchronous_commit` is forced. The ttl is rounded up to whole milliseconds.
    ///
    /// # Errors
    ///
    /// [`Error::InTransaction`] inside a transaction, which could undo it; [`Error::Invalid`] for more than 100 years;
    /// [`Error::MissingTable`] (42P01), [`Error::Standby`], [`Error::BrokenConnection`], [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the lease is renewed or not, and [`Lease::remaining`] is the shorter time.
    pub async fn renew<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        ttl: Duration,
    ) -> Result<bool, Error> {
        require_no_transaction(conn.pg())
            .map_err(|unusable| Error::unusable(unusable, lease.name()))?;
        let sent = Sent::now();
        let text = &self.named.texts.renew;
        let is_held = self.change(conn.pg(), lease, text, ttl).await?;
        if is_held {
            lease.hold.renewed(sent, ttl);
        } else {
            lease.hold.lose();
        }
        Ok(is_held)
    }

    /// Releases a lease; `false` if the row is gone, done, or another grant's. A second release returns the same.
    ///
    /// # Locking
    ///
    /// `UPDATE … SET expires_at = clock_timestamp(), key = NULL` if the row is this grant's. It does not wait for the disk: if the server
    /// crashes and loses the release, the key stays taken until the ttl is over.
    ///
    /// # Errors
    ///
    /// As [`renew`](Self::renew).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the lease may be released or not.
    pub async fn release<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error> {
        let conn = conn.pg();
        require_no_transaction(conn).map_err(|unusable| Error::unusable(unusable, lease.name()))?;
        let (text, values) = (&self.named.texts.release, lease.values());
        let released = self.affects(conn, lease, text, &values).await;
        lease.hold.lose();
        released
    }

    /// Ends the lease, and marks its key as done for `keep` from now; `false` if the lease was not held any more. A second call counts
    /// from then. Rounded up to whole milliseconds. In the transaction that writes the results, use [`Lease::complete`].
    ///
    /// # Locking
    ///
    /// As [`renew`](Self::renew); the row is marked as done.
    ///
    /// # Errors
    ///
    /// As [`renew`](Self::renew).
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the key may be done or not.
    pub async fn keep<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        keep: Duration,
    ) -> Result<bool, Error> {
        require_no_transaction(conn.pg())
            .map_err(|unusable| Error::unusable(unusable, lease.name()))?;
        lasts(keep, || lease.name())?;
        let text = &self.named.texts.keep;
        let kept = self.change(conn.pg(), lease, text, keep).await;
        lease.hold.lose();
        kept
    }

    /// Asks the server whether the lease is held. The answer may be outdated at once: to write under it use [`Lease::fence`].
    ///
    /// # Locking
    ///
    /// None: `SELECT … WHERE expires_at > clock_timestamp()`.
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
        self.affects(conn.pg(), lease, text, &lease.values()).await
    }

    /// Whether the grant's key is kept. It waits for a transaction that has changed the row.
    pub(super) async fn is_kept(
        &self,
        conn: &mut AsyncPgConnection,
        lease: &Lease,
    ) -> Result<bool, Error> {
        let text = &self.named.texts.is_kept;
        self.affects(conn, lease, text, &lease.values()).await
    }

    /// Sets a new expiry, if the lease is held.
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
        self.affects(conn, lease, text, &values).await
    }

    /// Whether the statement found or changed the lease's row.
    pub(super) async fn affects(
        &self,
        conn: &mut AsyncPgConnection,
        lease: &Lease,
        text: &str,
        values: &[Value<'_>],
    ) -> Result<bool, Error> {
        match count(conn, text, values).await {
            Ok(rows) => Ok(rows > 0),
            Err(error) => Err(self.explain(conn, error, lease.name()).await),
        }
    }
}

/// A unique number for a grant. Unlike a token, it is not issued again after a failover that loses grants.
pub(super) fn random() -> i64 {
    use std::hash::{BuildHasher, RandomState};
    // Keyed by the operating system's randomness; the time and the process tell copies of a process apart.
    RandomState::new()
        .hash_one((std::time::SystemTime::now(), std::process::id()))
        .cast_signed()
}
