//! How a key is granted: one try, and as many as the wait allows.

use super::answer::lies_outside;
use super::patience::{Patience, Refusal};
use super::request::milliseconds;
use super::sql::{Answer, TAKEN};
use super::standing::{Lease, Standing};
use super::statement::{Statement, Value};
use super::{FencingToken, Request, Table, running};
use crate::driver::depth;
use crate::{Connection, Error};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::AsyncPgConnection;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

impl Table {
    /// Acquires a lease, on a connection of the caller's, and does not renew it.
    ///
    /// # Locking
    ///
    /// An `UPDATE` of the row and, for a key that was never leased, an `INSERT`, in one statement of its own: one round trip a
    /// try. It waits for nobody inside the server: where the request has a wait, it tries again, after 10 ms at first and never
    /// longer than half a second apart. Held until [`release`](Self::release), or until its ttl is over. `synchronous_commit` is
    /// forced for it.
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
        let mut patience = Patience::new(&request);
        loop {
            match self.attempt(conn.pg(), &request).await? {
                Ok(grant) => return Ok(grant.lease(self, &request, patience.waited())),
                Err(refusal) => patience.wait(refusal).await?,
            }
        }
    }

    /// One try.
    pub(super) async fn attempt(
        &self,
        conn: &mut AsyncPgConnection,
        request: &Request,
    ) -> Result<Result<Grant, Refusal>, Error> {
        let lock = || request.name();
        lies_outside(conn, lock)?;
        let (key_hash, grant_id) = (request.key_hash(), random());
        let texts = &self.0.texts;
        let sent = Instant::now();
        let answer = self
            .rows(
                conn,
                Statement {
                    text: &texts.acquire,
                    values: [
                        Value::Hash(key_hash),
                        Value::Number(grant_id),
                        Value::Text(&self.0.holder),
                        if self.0.has_text {
                            Value::Text(&request.key)
                        } else {
                            Value::NoText
                        },
                        Value::Number(milliseconds(request.ttl)),
                    ],
                    answer: Answer::Committed,
                    outcome: &texts.outcome,
                },
            )
            .await;
        let answer = match answer {
            Ok(rows) => rows.into_iter().next().unwrap_or_default(),
            // Under a stricter level of the role's own: somebody else wrote the row at the same moment.
            Err(DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, _)) => {
                return Ok(Err(Refusal::Again));
            }
            Err(error) => return Err(self.explain(conn, error, lock()).await),
        };
        let mut words = answer.split(' ');
        if words.next() == Some(TAKEN)
            && let Some(token) = words.next().and_then(|token| token.parse().ok())
        {
            return Ok(Ok(Grant {
                key_hash,
                grant_id,
                token: FencingToken(token),
                sent,
                is_test: depth(conn).is_ok_and(|depth| depth.is_some()),
            }));
        }
        Ok(Err(Refusal::held(words.next(), words.next())))
    }
}

/// What was granted.
#[expect(
    clippy::struct_field_names,
    reason = "`grant_id` is what the table calls it"
)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) key_hash: [u8; 32],
    pub(super) grant_id: i64,
    pub(super) token: FencingToken,
    /// Before the server could begin to count.
    pub(super) sent: Instant,
    /// Granted inside a test's transaction.
    pub(super) is_test: bool,
}

impl Grant {
    pub(super) fn lease(self, table: &Table, request: &Request, waited: Duration) -> Lease {
        Lease {
            table: table.clone(),
            lock: request.name(),
            key_hash: self.key_hash,
            grant_id: self.grant_id,
            token: self.token,
            waited,
            is_test: self.is_test,
            standing: Arc::new(Standing::new(self.sent, request.ttl)),
        }
    }
}

/// A number that no other grant has: after a fail-over that forgets grants a token comes twice, this does not.
pub(super) fn random() -> i64 {
    use std::hash::{BuildHasher, RandomState};
    use std::sync::atomic::AtomicU64;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| now.as_nanos());
    // Keyed by the operating system's randomness.
    RandomState::new()
        .hash_one((
            NEXT.fetch_add(1, Ordering::Relaxed),
            now,
            std::process::id(),
        ))
        .cast_signed()
}
