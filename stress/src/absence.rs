//! Bodies that outlast their ttl, and whether they still hold their row after that.

use crate::clock::{block_runtime, pass};
use crate::history::Log;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The duration of a grant: shorter than a fault, so that stopped and cut-off holders outlive their
/// leases.
pub(crate) const TTL: Duration = Duration::from_millis(600);

/// How long a body blocks its runtime, or lingers: no claim lasts for so long without a renewal.
pub(crate) const ABSENT: Duration = TTL.saturating_mul(3);

/// The ttl of a lease whose body lingers.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// How a body outlasts its ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// It blocks every thread of its runtime.
    Blocks,
    /// It waits, while the network has lost its connections.
    Lingers,
}

/// What the next body has to do, for leases or for jobs.
#[derive(Default)]
pub(crate) struct NextAbsence(Mutex<Option<Absence>>);

impl NextAbsence {
    pub(crate) fn set(&self, absence: Absence) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(absence);
    }

    pub(crate) fn take(&self) -> Option<Absence> {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        next.take()
    }
}

/// The record of an absence. A body that is dropped meanwhile has lost its row.
struct Record<'l> {
    log: &'l Log,
    op: i64,
    is_held: bool,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        self.log.absent(self.op, self.is_held);
    }
}

impl Absence {
    /// Takes two ttl or more, and records whether the row is still held.
    pub(crate) async fn run(self, log: &Log, op: i64, is_held: impl Fn() -> bool) {
        let mut record = Record {
            log,
            op,
            is_held: false,
        };
        match self {
            Self::Blocks => block_runtime(ABSENT),
            Self::Lingers => pass(LINGER * 2).await,
        }
        record.is_held = is_held();
    }
}
