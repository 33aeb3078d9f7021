//! The connection that a statement about rows uses, and when the next one is tried.
//!
//! The keeper's statements go to a connection of the pool first. It is asked for on the program's
//! own runtime, because a connection lives on the runtime that opens it. If the answer is late,
//! such as under a body that blocks every thread of that runtime or holds every connection of the
//! pool, the statement is sent again on a connection of the keeper's own, and the first answer
//! counts.

use super::UNANSWERED;
use super::answer::{Failure, RowError};
use crate::PoolError;
use crate::driver::Queries;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::timeout;

/// The bounds of one statement.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// After this time another connection is used as well.
    pub(crate) fallback_after: Duration,
    /// How long the server may take to answer on one connection.
    pub(crate) answer: Duration,
}

impl Times {
    /// `every` is the time between two renewals, `left` the time until the first row expires.
    pub(crate) fn new(every: Duration, left: Duration) -> Self {
        Self {
            fallback_after: (every / 8).clamp(Duration::from_millis(5), Duration::from_millis(500)),
            // A row that is about to expire does not hurry the others of its statement.
            answer: UNANSWERED
                .min((left / 2).max(every / 4))
                .max(Duration::from_millis(5)),
        }
    }

    /// How long the pool's connection may take before another one is used.
    pub(super) const fn on_pool(self, is_of_test: bool) -> Duration {
        if is_of_test {
            self.answer
        } else {
            self.fallback_after
        }
    }

    /// For a question about a transaction that has ended a row: its answer counts after the expiry
    /// too.
    pub(crate) fn of_settling(self) -> Self {
        Self {
            answer: self.answer.max(Duration::from_secs(1)),
            ..self
        }
    }
}

/// A statement that can be sent again on another connection of this type. What sends it does not
/// know the type of row, so it is compiled once for each type of answer.
pub(crate) trait Step<D, A, E>: Send + Sync {
    fn send<'s>(&'s self, conn: &'s mut D) -> Answering<'s, A, E>;

    /// Returns `true` for a renewal, which waits neither for a locked row nor for another step.
    fn is_renewal(&self) -> bool {
        false
    }

    /// Returns `true` if only the pool's connection sees the row, in the open transaction of a test.
    fn is_of_test(&self) -> bool {
        false
    }

    /// Returns `true` if the same statement on the other connection may have caused this answer, such
    /// as "not held". Then the other answer is awaited too.
    fn may_come_from_duplicate(&self, _: &A) -> bool {
        false
    }

    /// Returns the part of an answer that can be trusted if the connection is outside the pool,
    /// which has not set it up: its `search_path` or its role can hide a row.
    fn trusted_part(&self, answer: A) -> Option<A> {
        Some(answer)
    }
}

/// An answer that is awaited.
pub(crate) type Answering<'s, A, E> = Pin<Box<dyn Future<Output = Result<A, E>> + Send + 's>>;

pub(crate) type AnyStep<D, A, E> = Arc<dyn Step<D, A, E>>;

/// The connections of a pool of any type, and one outside of it.
pub(crate) trait Reach: Send + Sync + 'static {
    type Connection: Queries;

    /// `true` if statements are futures, so that the caller's own runtime can send for others.
    const IS_ASYNC: bool;

    /// Sends the step from the keeper, until a connection answers; or once from the caller's own
    /// runtime, on a connection of the pool.
    fn send<A: Send + 'static, E: RowError>(
        &self,
        on_caller: bool,
        step: AnyStep<Self::Connection, A, E>,
        times: Times,
    ) -> Answering<'_, A, E>;
}

/// The first answer that counts: on a connection of the pool, or, if that one is late or fails, on
/// one outside of it.
pub(crate) async fn first_answer<D, A, E: RowError>(
    step: &dyn Step<D, A, E>,
    times: Times,
    pooled: impl Future<Output = Result<A, E>>,
    own: impl Future<Output = Result<A, E>>,
) -> Result<A, E> {
    let mut pooled = pin!(pooled);
    let fallback_after = times.on_pool(step.is_of_test());
    // The answer on the pool's connection, while the other connection is awaited.
    let mut pool_answer = match timeout(fallback_after, pooled.as_mut()).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(error)) if is_of_the_row(&error) => return Err(error),
        Ok(Err(error)) => Some(Err(error)),
        Err(_) => None,
    };
    if step.is_of_test() {
        return pool_answer.unwrap_or_else(|| Err(no_connection(fallback_after).into()));
    }
    let (mut own, mut is_own_over) = (pin!(own), false);
    let first = poll_fn(|context| {
        if !is_own_over && let Poll::Ready(answered) = own.as_mut().poll(context) {
            is_own_over = true;
            if let Some(answer) = answered.ok().and_then(|answer| step.trusted_part(answer)) {
                return Poll::Ready(Ok(answer));
            }
        }
        if pool_answer.is_none()
            && let Poll::Ready(answered) = pooled.as_mut().poll(context)
        {
            match answered {
                Ok(answer) if !step.may_come_from_duplicate(&answer) => {
                    return Poll::Ready(Ok(answer));
                }
                answered => pool_answer = Some(answered),
            }
        }
        match pool_answer.take_if(|_| is_own_over) {
            Some(pool_answer) => Poll::Ready(pool_answer),
            None => Poll::Pending,
        }
    });
    let limit = times.answer.max(Duration::from_millis(100));
    if let Ok(answered) = timeout(limit, first).await {
        return answered;
    }
    pool_answer.unwrap_or_else(|| {
        Err(if is_own_over {
            no_connection(limit).into()
        } else {
            unanswered(limit).into()
        })
    })
}

/// Returns `true` if this connection may refuse the statement each time, such as a prepared
/// statement that the server cannot plan again (0A000) or that a pooler has lost (26000, 08P01).
/// Diesel hides the SQLSTATE.
pub(crate) const fn may_stick(error: &DieselError) -> bool {
    matches!(
        error,
        DieselError::DatabaseError(DatabaseErrorKind::Unknown, _)
    )
}

/// Returns `true` if another connection would get the same answer.
pub(crate) fn is_of_the_row<E: RowError>(error: &E) -> bool {
    match error.failure() {
        Failure::Unreachable | Failure::Unanswered => false,
        Failure::Refused | Failure::Final => !error.database().is_some_and(may_stick),
    }
}

/// The error of a statement without an answer, whose connection is closed.
pub(crate) fn unanswered(limit: Duration) -> DieselError {
    connection_lost(format!("the server did not answer within {limit:.1?}"))
}

pub(crate) fn connection_lost(why: impl Into<String>) -> DieselError {
    DieselError::DatabaseError(DatabaseErrorKind::ClosedConnection, Box::new(why.into()))
}

pub(crate) fn no_connection(limit: Duration) -> PoolError {
    PoolError::new(format!("it gave none within {limit:.1?}"))
}
