//! Grants a lease: by one statement, and by more if the sequence is behind or the row is locked.

use super::explain::{Rights, outside_transaction};
use super::request::milliseconds;
use super::row::micros;
use super::sql::{BEHIND, Form, LOCKED, timeline};
use super::statement::{GrantColumns, Statement, Value, count};
use super::tries::Refusal;
use super::{Error, FencingToken, Lease, Request, Table};
use crate::Connection;
use crate::driver::{Queries, depth};
use crate::error::{is_conflict, is_connection_lost};
use crate::random::random;
use crate::rows::Moment;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Of the grants that insert a row, one in so many removes expired rows.
const SWEEPS: u64 = 16;
/// How often a grant moves the sequence, which somebody may set back meanwhile.
const MOVES: u32 = 3;

/// The answer to a grant: a token, the time left, and the session's `lock_timeout`; see
/// `acquire.sql`.
type Answer = (Option<i64>, i64, i64);

impl Table {
    /// Tries once to grant a free key, or to take over the one of the token that was seen. A second
    /// try with the same `grant_id` finds the grant of the first if its answer was lost.
    pub(crate) async fn grant<D: Queries>(
        &self,
        conn: &mut D,
        request: &Request,
        grant_id: i64,
        seen: Option<FencingToken>,
    ) -> Result<Result<Lease, Refusal>, Error> {
        outside_transaction(conn, || request.name())?;
        let is_test = depth(conn).is_ok_and(|depth| depth.is_some());
        let number = random();
        // Sometimes from the first row, because a random start rarely covers the first rows.
        let mut swept_from = [0; 32];
        if !(number / SWEEPS).is_multiple_of(8) {
            swept_from[..8].copy_from_slice(&number.to_be_bytes());
        }
        let hash = request.key_hash;
        let values = [
            Value::Hash(hash),
            Value::Number(grant_id),
            Value::Text(Some(&self.holder)),
            Value::Text(self.has_text.then_some(&request.key)),
            Value::Text(Some(request.lock).filter(|pattern| !pattern.is_empty())),
            Value::Number(milliseconds(request.ttl)),
            Value::Text(request.data.as_deref()),
            Value::Number(seen.map_or_else(|| self.grant_lock(&hash), FencingToken::get)),
            Value::Hash(swept_from),
        ];
        let first = match seen {
            Some(_) => Form::TakeOver,
            // A test's transaction removes no expired rows: they would stay locked until it ends.
            None if number.is_multiple_of(SWEEPS) && !is_test => Form::AcquireAndSweep,
            None => Form::Acquire,
        };
        let (mut form, mut moves) = (first, 0);
        loop {
            let sent = Moment::now();
            let has_timeline = self.has_timeline(is_test);
            let values = match form {
                Form::AcquireAndSweep => &values[..],
                _ => &values[..8],
            };
            return match self.send_grant(conn, form, has_timeline, values).await {
                Ok(Some((Some(number), BEHIND, _))) if moves < MOVES => {
                    Box::pin(self.move_sequence(conn, request, number, is_test)).await?;
                    (form, moves) = (first, moves + 1);
                    continue;
                }
                Ok(Some((Some(_), LOCKED, _))) => {
                    form = Form::Insert;
                    continue;
                }
                Ok(Some((Some(token), left @ 0.., _))) => {
                    // The grant of an earlier try is not a whole ttl away from its expiry.
                    let ttl = match micros(left) {
                        Duration::ZERO => request.ttl,
                        left => left.min(request.ttl),
                    };
                    let (token, until) = (FencingToken(token), sent.plus(ttl));
                    let lease = Lease::new(self, request, grant_id, token, until);
                    Ok(Ok(Lease { is_test, ..lease }))
                }
                // The sequence is set back again and again, or no row has the token that was seen.
                Ok(Some((Some(_), ..)) | None) => Ok(Err(Refusal::Conflict)),
                Ok(Some((None, left, _))) if left < 0 => Ok(Err(Refusal::Done {
                    remaining: micros(left.saturating_neg()),
                })),
                Ok(Some((None, left, lock_timeout))) => Ok(Err(Refusal::Held {
                    left: micros(left),
                    lock_timeout: Some(micros(lock_timeout)).filter(|limit| !limit.is_zero()),
                })),
                // The holder has changed the row.
                Err(error) if is_conflict(&error) && seen.is_some() => continue,
                Err(error) if is_conflict(&error) => Ok(Err(Refusal::Conflict)),
                // Boxed, since it is rare.
                Err(error) => {
                    let explained = self.explain_grant(conn, error, request, has_timeline);
                    match Box::pin(explained).await {
                        None => continue,
                        Some(error) => Err(error),
                    }
                }
            };
        }
    }

    async fn send_grant<D: Queries>(
        &self,
        conn: &mut D,
        form: Form,
        has_timeline: bool,
        values: &[Value<'_>],
    ) -> Result<Option<Answer>, DieselError> {
        let text = self.texts.of_grant(form, has_timeline);
        let mut rows = match form {
            Form::Acquire if has_timeline && self.is_default() => {
                let statement = Statement::<GrantColumns, 1>::new(text, values);
                conn.load(statement).await?
            }
            Form::AcquireAndSweep if has_timeline && self.is_default() => {
                let statement = Statement::<GrantColumns, 3>::new(text, values);
                conn.load(statement).await?
            }
            _ => {
                let statement = Statement::<GrantColumns>::new(text, values);
                conn.load(statement).await?
            }
        };
        Ok(rows.pop())
    }

    /// Returns `true` if a grant asks for the timeline. In a test's transaction the lock under which
    /// the sequence is moved would last until the test ends.
    fn has_timeline(&self, is_test: bool) -> bool {
        !is_test && self.has_timeline.load(Ordering::Relaxed)
    }

    /// Why a grant failed; `None` if it failed because the server does not tell its timeline, and
    /// later ones do not ask for it.
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
        let lock = request.name();
        let error = self.explain(conn, error, lock, Rights::Grant).await;
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

    /// Takes over a lease whose token one has seen, before it expires: for operators, and for
    /// programs that know that the holder is gone. `None` if the key's row has another token by
    /// now, is done, or is gone.
    ///
    /// The new token is larger. The writes of the former holder are refused by their
    /// [`fence`](Lease::fence), and its next renewal finds the lease lost, which drops its body;
    /// work that is not fenced may go on until then. Nothing renews the new lease, which lasts for
    /// the request's `ttl`: [`release`](Self::release) it, so that the next call gets the key. The
    /// request's `wait` and `keep` are ignored.
    ///
    /// # Locking
    ///
    /// One statement: `SELECT … FOR UPDATE` of the key's row if it has this token, which waits for
    /// the transaction of a fenced write, at most for the session's `lock_timeout`; then an
    /// `UPDATE` with a new token. `synchronous_commit` is forced.
    ///
    /// # Errors
    ///
    /// Those of [`Table`]; [`Error::InTransaction`] inside a transaction, which could undo it;
    /// [`Error::KeyTooLong`] and [`Error::Invalid`].
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
        let grant_id = random().cast_signed();
        let granted = self.grant(conn, &request, grant_id, Some(token)).await;
        Ok(granted?.ok())
    }

    /// Moves the sequence, which has not reached this number or is not in the server's timeline.
    async fn move_sequence<D: Queries>(
        &self,
        conn: &mut D,
        request: &Request,
        number: i64,
        is_test: bool,
    ) -> Result<(), Error> {
        let has_timeline = self.has_timeline(is_test);
        let text = |form| self.texts.of_grant(form, has_timeline);
        // After a failover every program finds it behind at once, and one of them moves it.
        if let Ok(1..) = count(conn, text(Form::IsMoved), &[Value::Number(number)]).await {
            return Ok(());
        }
        let move_it = text(Form::MoveSequence);
        let moved = if is_test {
            // The setting would last until the end of the test's transaction.
            conn.execute(move_it).await
        } else {
            // Renewals wait until this request for the lock on the table ends.
            let message = format!("SET LOCAL lock_timeout='1s';{move_it}");
            conn.execute(&message).await
        };
        let Err(error) = moved else { return Ok(()) };
        let (lock, rights) = (request.name(), Rights::MoveSequence);
        Err(self.explain(conn, error, lock, rights).await)
    }
}
