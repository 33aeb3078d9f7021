//! Each step of a lease, as one round trip on the caller's connection.

use super::backoff::{Backoff, Refusal};
use super::queries::Rights;
use super::request::{lasts, milliseconds, wrong_data};
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
        // A test's transaction removes no expired rows: they would stay locked until it ends.
        let mut swept_from = [u8::MAX; 32];
        if !is_test {
            swept_from[..8].copy_from_slice(&random().to_be_bytes());
        }
        let [hash, grant, holder, key, pattern, ttl, data] = self.grant_values(request, grant_id);
        let lock = Value::Number(self.grant_lock(&request.key_hash()));
        let swept_from = Value::Hash(swept_from);
        let values = [
            hash, grant, holder, key, pattern, ttl, data, lock, swept_from,
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
                self.move_sequence_if(conn, &lease, left).await?;
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

    /// The values of a grant: `$1` to `$7`.
    fn grant_values<'v>(&'v self, request: &'v Request, grant_id: i64) -> [Value<'v>; 7] {
        [
            Value::Hash(request.key_hash()),
            Value::Number(grant_id),
            Value::Text(Some(&self.holder)),
            Value::Text(self.has_text.then_some(&request.key)),
            Value::Text(Some(request.lock).filter(|pattern| !pattern.is_empty())),
            Value::Number(milliseconds(request.ttl)),
            Value::Text(request.data.as_deref()),
        ]
    }

    /// Takes over a lease whose token one has seen, before it expires: for operators, and for programs that know that the holder is gone.
    /// `None` if the key's row has another token by now, is done, or is gone.
    ///
    /// The new token is larger. The writes of the former holder are refused by their [`fence`](Lease::fence), and its next renewal finds
    /// the lease lost, which drops its body; work that is not fenced may go on until then. A lease is renewed by
    /// [`Leases::acquire`](super::Leases::acquire) only: [`renew`](Self::renew) this one, or [`release`](Self::release) it so that the
    /// next call gets the key. The request's `wait` and `keep` are ignored.
    ///
    /// # Locking
    ///
    /// One statement: `SELECT … FOR UPDATE` of the key's row if it has this token, which waits for the transaction of a fenced write, at
    /// most for the session's `lock_timeout`; then an `UPDATE` with a new token. `synchronous_commit` is forced.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), without [`Error::Held`] and [`Error::Done`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the lease may be taken over, and lasts for its ttl.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::lease::{Error, Request, Table};
    /// use diesel_async::AsyncPgConnection;
    ///
    /// /// Ends the term of a leader that does not answer.
    /// async fn depose(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    ///     let (table, leader) = (Table::new(), || Request::text("leader"));
    ///     if let Some(row) = table.find(conn, leader()).await?
    ///         && let Some(lease) = table.take_over(conn, leader(), row.token).await?
    ///     {
    ///         table.release(conn, &lease).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn take_over<C: Connection>(
        &self,
        conn: &mut C,
        request: impl Into<Request>,
        token: FencingToken,
    ) -> Result<Option<Lease>, Error> {
        let (conn, request) = (conn.pg(), request.into());
        request.check()?;
        require_no_transaction(conn)
            .map_err(|unusable| Error::unusable(unusable, request.name()))?;
        let is_test = depth(conn).is_ok_and(|depth| depth.is_some());
        let grant_id = random();
        let [hash, grant, holder, key, pattern, ttl, data] = self.grant_values(&request, grant_id);
        let seen = Value::Number(token.get());
        let values = [hash, grant, holder, key, pattern, ttl, data, seen];
        loop {
            let sent = Sent::now();
            let statement = Statement::<GrantColumns>::new(&self.named.texts.take_over, &values);
            let rows: Result<Vec<(Option<i64>, i64, i64)>, _> =
                RunQueryDsl::load(statement, conn).await;
            return match rows.map(|mut rows| rows.pop()) {
                Ok(Some((Some(token), left, _))) => {
                    let until = Expiry::after(sent, request.ttl);
                    let token = FencingToken(token);
                    let lease = Lease::new(self, &request, grant_id, token, until);
                    let lease = Lease { is_test, ..lease };
                    self.move_sequence_if(conn, &lease, left).await?;
                    Ok(Some(lease))
                }
                Ok(_) => Ok(None),
                // Each means that the holder has changed the row.
                Err(error) if is_conflict(&error) => continue,
                Err(error) => {
                    let lock = request.name();
                    Err(self.explain_with(conn, error, lock, Rights::Grant).await)
                }
            };
        }
    }

    /// Sets the holder's data, or erases it; `false` if the lease is not held any more.
    ///
    /// # Locking
    ///
    /// As [`renew`](Self::renew), without a new expiry.
    ///
    /// # Errors
    ///
    /// As [`renew`](Self::renew); [`Error::Invalid`] for more than 1,024 bytes, and for NUL.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the data is set or not.
    pub async fn set_data<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        data: Option<&str>,
    ) -> Result<bool, Error> {
        let conn = conn.pg();
        if let Some(reason) = data.and_then(wrong_data) {
            let lock = lease.name();
            return Err(Error::Invalid { lock, reason });
        }
        require_no_transaction(conn).map_err(|unusable| Error::unusable(unusable, lease.name()))?;
        let [hash, grant] = lease.values();
        let values = [hash, grant, Value::Text(data)];
        let is_held = self
            .affects(conn, lease, &self.named.texts.set_data, &values)
            .await?;
        if !is_held {
            lease.hold.lose();
        }
        Ok(is_held)
    }

    /// Moves the sequence if the answer to a grant says that it is behind. If that fails, the lease is released.
    async fn move_sequence_if(
        &self,
        conn: &mut AsyncPgConnection,
        lease: &Lease,
        left: i64,
    ) -> Result<(), Error> {
        if left == BEHIND
            && let Err(error) = self.move_sequence(conn, lease).await
        {
            drop(self.release(conn, lease).await);
            return Err(error);
        }
        Ok(())
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
    /// `UPDATE … SET expires_at = clock_timestamp(), key = NULL, data = NULL` if the row is this grant's. It does not wait for the disk: if the server
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
