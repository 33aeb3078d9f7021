//! Leases as rows that the keeper renews and ends.

use super::Error;
use super::explain::outside_transaction;
use super::grant::Granted;
use super::request::milliseconds;
use super::sql::Form;
use super::statement::{Statement, Value};
use crate::PoolError;
use crate::driver::Queries;
use crate::rows::{
    Answering, End, Event, Failure, HeldRow, Hold, Phase, Reach, Renewal, Renewed, RowError,
    RowEvent, Rows, Settled, Step, Times, UNANSWERED, failure_of, tell,
};
use diesel::sql_types::{BigInt, Bool, Nullable, Text};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How a lease ends.
#[derive(Clone, Copy, Debug)]
pub struct LeaseEnd {
    /// How long the key stays done; `None` releases it.
    pub(super) keep: Option<Duration>,
    /// `true` if the lease is known to be granted. Otherwise its row can still appear, such as when
    /// its commit waits for a standby.
    pub(super) is_granted: bool,
}

impl LeaseEnd {
    pub(super) const RELEASE: Self = Self {
        keep: None,
        is_granted: true,
    };
}

impl HeldRow for Arc<Granted> {
    type End = LeaseEnd;
    type Error = Error;

    fn hold(&self) -> &Hold {
        &self.lease.hold
    }

    fn every(&self) -> Duration {
        self.every
    }

    fn tell(&self, event: RowEvent<'_, Error>) {
        tell(self.observer.as_ref(), Event::of(&self.lease, &event));
    }

    fn shown_end(end: &LeaseEnd) -> End {
        match end.keep {
            Some(_) => End::Complete,
            None => End::Release,
        }
    }

    fn caller_waits(end: &LeaseEnd) -> Option<Duration> {
        Some(match end.keep {
            Some(_) => UNANSWERED,
            None => Duration::ZERO,
        })
    }
}

/// The leases of one table, on the connections of one pool.
pub(crate) struct LeaseRows<R>(pub(crate) R);

impl<R: Reach> Rows<Arc<Granted>> for LeaseRows<R> {
    fn sends_on_caller(&self) -> bool {
        R::IS_ASYNC
    }

    fn renew(&self, leases: Vec<Arc<Granted>>, times: Times) -> Answering<'_, Vec<Renewed>, Error> {
        self.0.send(false, Arc::new(Renew(leases)), times)
    }

    fn settled(
        &self,
        leases: Vec<Arc<Granted>>,
        times: Times,
    ) -> Answering<'_, Vec<Settled>, Error> {
        self.0.send(false, Arc::new(Settle(leases)), times)
    }

    /// Once its transaction of `complete` was rolled back, the work is not done, and the key is not
    /// kept.
    fn end(
        &self,
        row: Arc<Granted>,
        mut end: LeaseEnd,
        times: Times,
        on_caller: bool,
    ) -> Answering<'_, bool, Error> {
        if row.lease.hold.phase() == Phase::RolledBack {
            end.keep = None;
        }
        self.0.send(on_caller, Arc::new(EndStep(row, end)), times)
    }
}

/// The values of a statement about many grants: their identities, and a number for each.
fn values_of(leases: &[Arc<Granted>], number: impl Fn(&Granted) -> i64) -> [Value<'static>; 4] {
    let of = |number: &dyn Fn(&Granted) -> i64| {
        Value::Numbers(leases.iter().map(|granted| number(granted)).collect())
    };
    let keys = leases.iter().map(|granted| granted.lease.key_hash.to_vec());
    [
        Value::Hashes(keys.collect()),
        of(&|granted| granted.lease.grant_id),
        of(&|granted| granted.lease.token.get()),
        of(&number),
    ]
}

/// A test's transaction alone sees its leases.
fn are_of_test(leases: &[Arc<Granted>]) -> bool {
    leases.iter().any(|granted| granted.lease.is_test)
}

/// Renews leases of one table, each for its ttl from now, without waiting for a locked row: not for
/// a [`fence`](super::Lease::fence), only for statements that change the row. One answer for each,
/// in their order.
struct Renew(Vec<Arc<Granted>>);

impl<D: Queries> Step<D, Vec<Renewed>, Error> for Renew {
    fn send<'s>(&'s self, conn: &'s mut D) -> Answering<'s, Vec<Renewed>, Error> {
        Box::pin(async move {
            let Self(leases) = self;
            let Some(first) = leases.first().map(|granted| &granted.lease) else {
                return Ok(Vec::new());
            };
            let lock = || first.name();
            outside_transaction(conn, lock)?;
            let values = values_of(leases, |granted| milliseconds(granted.lease.hold.ttl));
            // Its place, whether it was renewed, and otherwise whether the last commit held it.
            let text = first.table.texts.get(Form::Renew);
            let statement = Statement::<(BigInt, Bool, Bool)>::new(text, &values);
            let rows = conn.load(statement).await;
            let mut rows: Vec<(i64, bool, bool)> = first.table.explained(conn, rows, lock).await?;
            rows.sort_unstable();
            let answers = rows.into_iter().zip(leases);
            let answers = answers.map(|(row, granted)| match row {
                (_, true, _) => Renewed::For(granted.lease.hold.ttl),
                (_, false, true) => Renewed::Busy,
                (_, false, false) => Renewed::Gone,
            });
            Ok(answers.collect())
        })
    }

    fn is_renewal(&self) -> bool {
        true
    }

    fn is_of_test(&self) -> bool {
        are_of_test(&self.0)
    }
}

/// The place of a lease, how its transaction has ended, and whether its row is kept.
type SettledColumns = (BigInt, Nullable<Text>, Nullable<Bool>);

/// How the transactions have ended in which these leases of one table were completed, without
/// waiting for them. One answer for each, in their order.
struct Settle(Vec<Arc<Granted>>);

impl<D: Queries> Step<D, Vec<Settled>, Error> for Settle {
    fn send<'s>(&'s self, conn: &'s mut D) -> Answering<'s, Vec<Settled>, Error> {
        Box::pin(async move {
            let Self(leases) = self;
            let Some(first) = leases.first().map(|granted| &granted.lease) else {
                return Ok(Vec::new());
            };
            let values = values_of(leases, |granted| granted.lease.hold.inside().transaction);
            let text = first.table.texts.get(Form::Settled);
            let rows = conn
                .load(Statement::<SettledColumns>::new(text, &values))
                .await;
            let rows = first.table.explained(conn, rows, || first.name()).await;
            let mut rows: Vec<(i64, Option<String>, Option<bool>)> = rows?;
            rows.sort_unstable();
            let answers = rows.into_iter().zip(leases);
            let answers = answers.map(|((_, transaction, is_kept), granted)| {
                let is_nested = granted.lease.hold.inside().is_nested;
                match (transaction.as_deref(), is_kept) {
                    (Some("in progress"), _) => Settled::Open,
                    (_, Some(true)) => Settled::Committed,
                    // The key was done, and its row is gone. A savepoint can have been rolled back
                    // in the transaction, and then another can have been granted the key.
                    (Some("committed"), None) if !is_nested => Settled::Committed,
                    // It was rolled back, as a whole or to a savepoint. If the server does not know
                    // it, the row says so.
                    _ => Settled::RolledBack,
                }
            });
            Ok(answers.collect())
        })
    }

    fn is_of_test(&self) -> bool {
        are_of_test(&self.0)
    }
}

struct EndStep(Arc<Granted>, LeaseEnd);

impl<D: Queries> Step<D, bool, Error> for EndStep {
    fn send<'s>(&'s self, conn: &'s mut D) -> Answering<'s, bool, Error> {
        Box::pin(async move {
            let Self(granted, end) = self;
            let (lease, table) = (&granted.lease, &granted.lease.table);
            if let Some(keep) = end.keep {
                return table.keep_on(conn, lease, keep).await;
            }
            let is_released = table.release_on(conn, lease).await?;
            if !is_released && !end.is_granted {
                return Err(PoolError::new("the grant has not appeared so far").into());
            }
            Ok(is_released)
        })
    }

    fn is_of_test(&self) -> bool {
        self.0.lease.is_test
    }
}

impl RowError for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::Pool(_) | Self::BrokenConnection { .. } => Failure::Unreachable,
            Self::Standby { .. } => Failure::Refused,
            Self::Database(error) => failure_of(error),
            _ => Failure::Final,
        }
    }
}

/// Is dropped when a lease has ended whose caller is gone.
pub(super) type Alive = Option<oneshot::Sender<Infallible>>;

/// A lease that the keeper renews.
pub(super) type LeaseRenewal = Renewal<Arc<Granted>>;

pub(crate) type AnyLeaseRows = Box<dyn Rows<Arc<Granted>>>;
