//! Each step of a lease, as one round trip on the caller's connection.

use super::backoff::{Backoff, Refusal};
use super::queries::Rights;
use super::request::{hex, lasts, milliseconds, wrong_data};
use super::row::micros;
use super::sql::{BEHIND, timeline};
use super::statement::{GrantColumns, Statement, Value, count};
use super::{Error, FencingToken, Lease, Request, Row, Table, body_leases};
use crate::Connection;
use crate::driver::{Queries, depth};
use crate::error::is_connection_lost;
use crate::random::random;
use crate::renewal::{Expiry, Sent, is_conflict, require_no_transaction};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Table {
    /// Tries once. A second try with the same `grant_id` finds the grant of the first if its answer was lost.
    pub(crate) async fn attempt<D: Queries>(
        &self,
        conn: &mut D,
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
        loop {
            let sent = Sent::now();
            let has_timeline = self.has_timeline(is_test);
            let text = &self.named.texts.grants(has_timeline).acquire;
            let statement = Statement::<GrantColumns>::new(text, &values);
            let rows: Result<Vec<(Option<i64>, i64, i64)>, _> = conn.load(statement).await;
            return match rows.and_then(|mut rows| rows.pop().ok_or(DieselError::NotFound)) {
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
                Err(error) => match self.explain_grant(conn, error, request, has_timeline).await {
                    None => continue,
                    Some(error) => Err(error),
                },
            };
        }
    }

    /// Whether a grant asks for the timeline. In a test's transaction the lock under which the sequence is moved would last until the test
    /// ends.
    fn has_timeline(&self, is_test: bool) -> bool {
        !is_test && self.has_timeline.load(Ordering::Relaxed)
    }

    /// Why a grant failed; `None` if it failed because the server does not tell its timeline, and later ones do not ask for it.
    async fn explain_grant<D: Queries>(
        &self,
        conn: &mut D,
        error: DieselError,
        request: &Request,
        has_timeline: bool,
    ) -> Option<Error> {
        let is_unknown = matches!(
            error,
            DieselError::DatabaseError(DatabaseErrorKind::Unknown, _)
        );
        let error = self.explain_with(conn, error, request.name(), Rights::Grant);
        let error = error.await;
        if !has_timeline || !is_unknown || !matches!(error, Error::Database(_)) {
            return Some(error);
        }
        match count(conn, &timeline(), &[]).await {
            Err(refused) if !is_connection_lost(&refused) => {
                self.has_timeline.store(false, Ordering::Relaxed);
                None
            }
            _ => Some(error),
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
    /// the lease lost, which drops its body; work that is not fenced may go on until then. Nothing
    /// renews the new lease, which lasts for the request's `ttl`: [`release`](Self::release) it, so that the next call gets the key. The
    /// request's `wait` and `keep` are ignored.
    ///
    /// # Locking
    ///
    /// One statement: `SELECT … FOR UPDATE` of the key's row if it has this token, which waits for the transaction of a fenced write, at
    /// most for the session's `lock_timeout`; then an `UPDATE` with a new token. `synchronous_commit` is forced.
    ///
    /// # Errors
    ///
    /// As [`Leases::acquire`](super::Leases::acquire), without [`Error::Held`] and [`Error::Done`]; [`Error::InTransaction`] inside a
    /// transaction, which could undo it.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the lease may be taken over, and lasts for its ttl.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::lease::{Error, Lease, Request, Table};
    /// use diesel_async::AsyncPgConnection;
    ///
    /// /// Continues the work of a holder that does not answer.
    /// async fn continue_for(conn: &mut AsyncPgConnection) -> Result<Option<Lease>, Error> {
    ///     let (table, report) = (Table::new(), || Request::text("report"));
    ///     match table.find(conn, report()).await? {
    ///         Some(row) => table.take_over(conn, report(), row.token).await,
    ///         None => Ok(None),
    ///     }
    /// }
    /// ```
    pub async fn take_over<C: Connection>(
        &self,
        conn: &mut C,
        request: impl Into<Request>,
        token: FencingToken,
    ) -> Result<Option<Lease>, Error> {
        self.take_over_on(conn.pg(), request.into(), token).await
    }

    pub(crate) async fn take_over_on<D: Queries>(
        &self,
        conn: &mut D,
        request: Request,
        token: FencingToken,
    ) -> Result<Option<Lease>, Error> {
        request.check()?;
        require_no_transaction(conn)
            .map_err(|unusable| Error::unusable(unusable, request.name()))?;
        let is_test = depth(conn).is_ok_and(|depth| depth.is_some());
        let grant_id = random().cast_signed();
        let [hash, grant, holder, key, pattern, ttl, data] = self.grant_values(&request, grant_id);
        let seen = Value::Number(token.get());
        let values = [hash, grant, holder, key, pattern, ttl, data, seen];
        loop {
            let sent = Sent::now();
            let has_timeline = self.has_timeline(is_test);
            let text = &self.named.texts.grants(has_timeline).take_over;
            let statement = Statement::<GrantColumns>::new(text, &values);
            let rows: Result<Vec<(Option<i64>, i64, i64)>, _> = conn.load(statement).await;
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
                Err(error) => match self
                    .explain_grant(conn, error, &request, has_timeline)
                    .await
                {
                    None => continue,
                    Some(error) => Err(error),
                },
            };
        }
    }

    /// Frees the key of a row that [`find`](Self::find) or [`list`](Self::list) has shown, held or done; `false` if the row has another
    /// token by now, or has expired. For operators: it needs no key, and grants nothing.
    ///
    /// The holder loses the lease: its fenced writes and its next renewal are refused. Work that was done runs again. Inside a
    /// transaction all this takes effect when the transaction commits.
    ///
    /// # Locking
    ///
    /// One statement: `SELECT … FOR UPDATE` of the row if it has this token, which waits for the transaction of a fenced write, at most for
    /// the session's `lock_timeout`; then `UPDATE … SET expires_at = clock_timestamp()`. `synchronous_commit` is forced.
    ///
    /// # Errors
    ///
    /// [`Error::MissingTable`] (42P01), [`Error::MissingRights`] (42501), [`Error::Standby`], [`Error::Database`], such as 55P03 after
    /// `lock_timeout`.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the key may be free or not.
    pub async fn free<C: Connection>(&self, conn: &mut C, row: &Row) -> Result<bool, Error> {
        self.free_on(conn.pg(), row).await
    }

    pub(crate) async fn free_on<D: Queries>(&self, conn: &mut D, row: &Row) -> Result<bool, Error> {
        let hash = Value::Hash(row.key_hash);
        let values = [
            hash,
            Value::Number(random().cast_signed()),
            Value::Number(row.token.0),
        ];
        match count(conn, &self.named.texts.free, &values).await {
            Ok(rows) => Ok(rows > 0),
            Err(error) => {
                let pattern = row.pattern.clone();
                let lock = pattern.unwrap_or_else(|| format!("{}…", hex(&row.key_hash[..6])));
                Err(self.explain(conn, error, lock.into()).await)
            }
        }
    }

    /// Sets the holder's data, or erases it; `false` if the lease is not held any more.
    ///
    /// # Locking
    ///
    /// One statement locks the row (`SELECT … FOR NO KEY UPDATE`), then runs `UPDATE … SET data = …` if this grant holds it.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release); [`Error::Invalid`] for more than 1,024 bytes, and for NUL.
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
        self.set_data_on(conn.pg(), lease, data).await
    }

    pub(crate) async fn set_data_on<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
        data: Option<&str>,
    ) -> Result<bool, Error> {
        if let Some(reason) = data.and_then(wrong_data) {
            let lock = lease.name();
            return Err(Error::Invalid { lock, reason });
        }
        require_no_transaction(conn).map_err(|unusable| Error::unusable(unusable, lease.name()))?;
        let [hash, grant, token] = lease.values();
        let values = [hash, grant, token, Value::Text(data)];
        let is_held = self
            .affects(conn, lease, &self.named.texts.set_data, &values)
            .await?;
        if !is_held {
            lease.tenure.lose();
        }
        Ok(is_held)
    }

    /// Moves the sequence if the answer to a grant says that it is behind. If that fails, the lease is released.
    async fn move_sequence_if<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
        left: i64,
    ) -> Result<(), Error> {
        if left == BEHIND
            && let Err(error) = self.move_sequence(conn, lease).await
        {
            drop(self.release_on(conn, lease).await);
            return Err(error);
        }
        Ok(())
    }

    /// Moves the sequence to the largest token in the table, or to the first of the server's timeline above it, so that keys without a
    /// row get larger ones too.
    async fn move_sequence<D: Queries>(&self, conn: &mut D, lease: &Lease) -> Result<(), Error> {
        // After a failover every program finds it behind at once, and one of them moves it.
        let token = [Value::Number(lease.token.get())];
        if let Ok(1..) = count(conn, &self.named.texts.is_moved, &token).await {
            return Ok(());
        }
        let has_timeline = self.has_timeline(lease.is_test);
        let move_it = &self.named.texts.grants(has_timeline).move_sequence;
        let moved = if lease.is_test {
            // The setting would last until the end of the test's transaction.
            conn.execute(move_it).await
        } else {
            // Renewals wait behind this wait.
            let message = format!("SET LOCAL lock_timeout='1s';{move_it}");
            conn.execute(&message).await
        };
        match moved {
            Ok(()) => Ok(()),
            Err(error) => {
                let (lock, rights) = (lease.name(), Rights::MoveSequence);
                Err(self.explain_with(conn, error, lock, rights).await)
            }
        }
    }

    /// Releases a lease; `false` if the row is gone, done, or another grant's. A second release returns the same.
    ///
    /// # Locking
    ///
    /// `UPDATE … SET expires_at = clock_timestamp(), key = NULL, data = NULL` if the row is this grant's. It does not wait for the disk: if
    /// the server crashes and loses the release, the key stays taken until the ttl is over.
    ///
    /// # Errors
    ///
    /// [`Error::InTransaction`] inside a transaction, which could undo it; [`Error::MissingTable`] (42P01), [`Error::MissingRights`]
    /// (42501), [`Error::Standby`], [`Error::BrokenConnection`], [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the lease may be released or not.
    pub async fn release<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error> {
        self.release_on(conn.pg(), lease).await
    }

    pub(crate) async fn release_on<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
    ) -> Result<bool, Error> {
        require_no_transaction(conn).map_err(|unusable| Error::unusable(unusable, lease.name()))?;
        let (text, values) = (&self.named.texts.release, lease.acquisition());
        let released = self.affects(conn, lease, text, &values).await;
        lease.tenure.lose();
        released
    }

    /// Renews for `ttl` from now, and keeps the token; `false` if the lease is not held any more. It never shortens a lease.
    ///
    /// One statement locks the row (`SELECT … FOR NO KEY UPDATE`), then runs `UPDATE … SET expires_at = clock_timestamp() + ttl` if this
    /// grant holds it. It does not wait for a [`fence`](Lease::fence), only for statements that change the row.
    pub(super) async fn renew_on<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
        ttl: Duration,
    ) -> Result<bool, Error> {
        require_no_transaction(conn).map_err(|unusable| Error::unusable(unusable, lease.name()))?;
        let sent = Sent::now();
        let text = &self.named.texts.renew;
        let is_held = self.change(conn, lease, text, ttl).await?;
        if is_held {
            lease.tenure.renewed(sent, ttl);
        } else {
            lease.tenure.lose();
        }
        Ok(is_held)
    }

    /// Ends the lease, and marks its key as done for `keep` from now; `false` if the lease was not held any more.
    pub(super) async fn keep_on<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
        keep: Duration,
    ) -> Result<bool, Error> {
        require_no_transaction(conn).map_err(|unusable| Error::unusable(unusable, lease.name()))?;
        lasts(keep, || lease.name())?;
        let text = &self.named.texts.keep;
        let kept = self.change(conn, lease, text, keep).await;
        lease.tenure.lose();
        kept
    }

    /// Asks the server whether the lease is held: `SELECT … WHERE expires_at > clock_timestamp()`.
    pub(crate) async fn holds_on<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
    ) -> Result<bool, Error> {
        let text = &self.named.texts.holds;
        self.affects(conn, lease, text, &lease.values()).await
    }

    /// Whether the grant's key is kept. It waits for a transaction that has changed the row.
    pub(super) async fn is_kept<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
    ) -> Result<bool, Error> {
        let text = &self.named.texts.is_kept;
        self.affects(conn, lease, text, &lease.values()).await
    }

    /// Sets a new expiry, if the lease is held.
    pub(super) async fn change<D: Queries>(
        &self,
        conn: &mut D,
        lease: &Lease,
        text: &str,
        time: Duration,
    ) -> Result<bool, Error> {
        lasts(time, || lease.name())?;
        let [hash, grant, token] = lease.values();
        let values = [hash, grant, token, Value::Number(milliseconds(time))];
        self.affects(conn, lease, text, &values).await
    }

    /// Whether the statement found or changed the lease's row.
    pub(super) async fn affects<D: Queries>(
        &self,
        conn: &mut D,
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

/// The steps of [`Leases`](super::Leases), each on the caller's connection and nothing behind it: no renewal, no end.
#[allow(
    async_fn_in_trait,
    missing_docs,
    reason = "for this crate and its tests, which call it on `Table` alone"
)]
pub trait Steps {
    async fn acquire<C: Connection>(
        &self,
        conn: &mut C,
        request: impl Into<Request>,
    ) -> Result<Lease, Error>;
    async fn acquire_as<C: Connection>(
        &self,
        conn: &mut C,
        request: impl Into<Request>,
        grant_id: i64,
    ) -> Result<Lease, Error>;
    async fn renew<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        ttl: Duration,
    ) -> Result<bool, Error>;
    async fn keep<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        keep: Duration,
    ) -> Result<bool, Error>;
    async fn holds<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error>;
}

impl Steps for Table {
    /// One statement, and one round trip, per try: an `UPDATE` of the key's row or an `INSERT`, which also removes a few expired rows.
    /// It takes a transaction-level advisory lock on the key without waiting. If the request has a wait, it tries again, first after
    /// 10 ms and at last every half second. If the sequence is behind the key's token or the server's timeline, a second message
    /// moves it under a lock on the table (`SHARE ROW EXCLUSIVE`), for which it waits at most a second.
    async fn acquire<C: Connection>(
        &self,
        conn: &mut C,
        request: impl Into<Request>,
    ) -> Result<Lease, Error> {
        self.acquire_as(conn, request, random().cast_signed()).await
    }

    /// Acquires the lease, or finds it, as the call of this number.
    async fn acquire_as<C: Connection>(
        &self,
        conn: &mut C,
        request: impl Into<Request>,
        grant_id: i64,
    ) -> Result<Lease, Error> {
        let request = request.into();
        request.check()?;
        drop(body_leases::record_request(&request));
        let mut backoff = Backoff::new(&request, self);
        loop {
            match self.attempt(conn.pg(), &request, grant_id).await? {
                Ok(lease) => return Ok(lease.with_waited(backoff.waited())),
                Err(refusal) => backoff.pause(refusal).await?,
            }
        }
    }

    async fn renew<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        ttl: Duration,
    ) -> Result<bool, Error> {
        self.renew_on(conn.pg(), lease, ttl).await
    }

    async fn keep<C: Connection>(
        &self,
        conn: &mut C,
        lease: &Lease,
        keep: Duration,
    ) -> Result<bool, Error> {
        self.keep_on(conn.pg(), lease, keep).await
    }

    async fn holds<C: Connection>(&self, conn: &mut C, lease: &Lease) -> Result<bool, Error> {
        self.holds_on(conn.pg(), lease).await
    }
}
