//! Events of rows with an expiry, for metrics and logs.

use super::end::End;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// An event of a row with an expiry, or of a try to get one. `R` is the lease or the claim.
///
/// [`lease::Event`](crate::lease::Event) and [`claim::Event`](crate::claim::Event) are this type
/// for their rows.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'e, R, E> {
    /// It was granted, or claimed.
    Acquired(&'e R),
    /// The key of a lease was held until the end of the wait.
    #[non_exhaustive]
    Busy {
        /// The key pattern, or the key's hash.
        lock: &'e str,
        /// How long the call waited.
        waited: Duration,
    },
    /// The work under the key of a lease was already done.
    #[non_exhaustive]
    Done {
        /// The key pattern, or the key's hash.
        lock: &'e str,
        /// How long the key stays done.
        remaining: Duration,
    },
    /// A worker calls its body.
    Started(&'e R),
    /// It was renewed.
    Renewed(&'e R),
    /// A renewal failed. It is tried again until the row expires.
    RenewalFailed(&'e R, &'e E),
    /// It was lost before its end, and its body is dropped.
    Lost(&'e R),
    /// It has ended. The commit is on disk, except that of a lease's release: a crash of the server
    /// can undo it, and the lease then expires.
    #[non_exhaustive]
    Ended {
        /// The lease, or the claim.
        row: &'e R,
        /// How: a lease is released, or its key completed. The last attempt of a claim that was to
        /// be retried has failed.
        end: End,
        /// How long it was held.
        held: Duration,
    },
    /// A worker's body returned, panicked or was dropped. Unless it was dropped, the worker has
    /// finished with the row too: it ended the row, lost it, or could not end it.
    #[non_exhaustive]
    Finished {
        /// The claim.
        row: &'e R,
        /// How.
        outcome: BodyOutcome<'e, E>,
        /// How long the body ran.
        ran: Duration,
    },
    /// The server refused the end. A temporary refusal is tried again for ten seconds, and a
    /// message that does not fit its column is cut. After any other refusal the row expires.
    EndFailed(&'e R, &'e E),
    /// The server refused a claim, or an attempt to become leader. It is tried again.
    Refused(&'e E),
    /// There was no connection for a claim, for an attempt to become leader, or for notifications.
    /// It is tried again.
    NoConnection(&'e E),
    /// The first success after `Refused` or `NoConnection`.
    Reconnected,
}

/// How a worker's body ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyOutcome<'e, E> {
    /// It returned `Ok`.
    Done,
    /// It returned an error with this text.
    Failed(&'e str),
    /// It panicked. The text has the message.
    Panicked(&'e str),
    /// Its row was lost, or could not be ended.
    Error(&'e E),
    /// It was dropped: with its worker, or at the end of the worker's grace.
    Dropped,
}

/// An [`Event`] of a row whose type the keeper does not know.
pub enum RowEvent<'e, E> {
    Renewed,
    RenewalFailed(&'e E),
    Lost,
    Ended { end: End, held: Duration },
    EndFailed(&'e E),
}

impl<'e, R, E> Event<'e, R, E> {
    pub(crate) const fn of(row: &'e R, event: &RowEvent<'e, E>) -> Self {
        match *event {
            RowEvent::Renewed => Self::Renewed(row),
            RowEvent::RenewalFailed(error) => Self::RenewalFailed(row, error),
            RowEvent::Lost => Self::Lost(row),
            RowEvent::Ended { end, held } => Self::Ended { row, end, held },
            RowEvent::EndFailed(error) => Self::EndFailed(row, error),
        }
    }
}

/// Is called with each event.
pub(crate) type Observer<R, E> = Arc<dyn Fn(Event<'_, R, E>) + Send + Sync>;

/// Calls the observer, whose panic is caught: rows are renewed and ended whatever it does.
pub(crate) fn tell<R, E>(observer: Option<&Observer<R, E>>, event: Event<'_, R, E>) {
    if let Some(observer) = observer {
        drop(catch_unwind(AssertUnwindSafe(|| observer(event))));
    }
}
