//! Transaction-level locks inside an open transaction, under a savepoint.
//!
//! The savepoint has a name of ours. Diesel leaves its own behind when it rolls back to one: to roll back to that name, where our
//! savepoint was never set, would silently undo work of the caller's.

use super::Acquisition;
use super::held::push_is_held;
use super::message::{LockTimeout, Message, Scope, XACT_TIMEOUTS};
use crate::error::Marker;
use crate::{Request, Wait};
use std::num::NonZeroU32;

/// Whether the snapshot of the transaction around the call is asked about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Snapshot {
    /// It has to be READ COMMITTED. `SET TRANSACTION` does nothing there, and is refused at the stricter levels (25001), whose
    /// snapshot is older than the lock: the body would not see what the holder before it wrote.
    Fresh,
    /// At a stricter level, this transaction has held the keys since before its snapshot.
    HeldBefore,
}

/// Sets the savepoint and takes the keys, or asks for them.
pub(crate) fn begin(outer: NonZeroU32, request: &Request, snapshot: Snapshot) -> Acquisition {
    let mut message = open(outer, request, snapshot);
    let question = if request.budget() == Wait::Never {
        if request.max_hold.is_some() {
            message.select();
        }
        Some(Message::question(request, Scope::Xact))
    } else {
        message.select_locks(request, Scope::Xact, LockTimeout::Restore);
        None
    };
    push_idle_timeout(&mut message, request);
    Acquisition {
        message: message.finish().into(),
        question,
    }
}

/// As [`begin`] for a lock without a body: where it waits, the savepoint is released in the same message, and the keys are left to the
/// transaction around it.
pub(crate) fn lock(outer: NonZeroU32, request: &Request, snapshot: Snapshot) -> Acquisition {
    let mut acquisition = begin(outer, request, snapshot);
    if acquisition.question.is_none() {
        let message = acquisition.message.to_mut();
        message.push(';');
        message.push_str(&release(outer, false));
    }
    acquisition
}

/// [`xact::try_by_text`](super::xact::try_by_text) under the savepoint.
pub(crate) fn try_by_text(outer: NonZeroU32, request: &Request, snapshot: Snapshot) -> Acquisition {
    let mut message = open(outer, request, snapshot);
    message.select_try_or_fail(request);
    push_idle_timeout(&mut message, request);
    message.finish().into()
}

fn open(outer: NonZeroU32, request: &Request, snapshot: Snapshot) -> Message {
    let mut message = Message::new(request);
    message.statement(&format!("SAVEPOINT advisory_savepoint_{outer}"));
    match snapshot {
        Snapshot::Fresh => message.statement("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"),
        Snapshot::HeldBefore => {
            let mut held = String::from("true");
            for key in &*request.keys {
                held.push_str(" AND ");
                push_is_held(&mut held, *key, request.mode);
            }
            message.select();
            message.column(format_args!(
                "CAST(CASE WHEN {held} THEN '1' ELSE '{}' END AS pg_catalog.int4)",
                Marker::StaleSnapshot.text()
            ));
        }
    }
    if request.max_hold.is_some() {
        message.select();
        for setting in BOUNDING {
            message.column(format_args!(
                "pg_catalog.set_config('advisory.{setting}_{outer}',pg_catalog.current_setting('{setting}'),true)"
            ));
        }
        message.select_client_check();
    }
    message
}

/// What `max_hold` changes, until [`release`] gives the transaction around the call its own values back.
const BOUNDING: [&str; 2] = [XACT_TIMEOUTS[0], "client_connection_check_interval"];

/// Bounds a client that is idle.
fn push_idle_timeout(message: &mut Message, request: &Request) {
    if let Some(max_hold) = request.max_hold {
        message.push_timeout(XACT_TIMEOUTS[0], max_hold, true);
    }
}

/// Keeps what the body did; the keys stay locked to the end of the transaction around it.
pub(crate) fn release(outer: NonZeroU32, is_bounded: bool) -> String {
    let mut sql = format!("RELEASE SAVEPOINT advisory_savepoint_{outer}");
    if is_bounded {
        for setting in BOUNDING {
            put!(
                sql,
                ";SELECT pg_catalog.set_config('{setting}',pg_catalog.current_setting('advisory.{setting}_{outer}'),true)"
            );
        }
    }
    sql
}

/// Undoes a try under the savepoint that found a key held.
pub(crate) fn undo_try(outer: NonZeroU32, request: &Request) -> String {
    Message::undo_try(request, &rollback(outer))
}

/// Undoes what the body did, and releases the keys that were taken under the savepoint.
pub(crate) fn rollback(outer: NonZeroU32) -> String {
    format!(
        "ROLLBACK TO SAVEPOINT advisory_savepoint_{outer};RELEASE SAVEPOINT advisory_savepoint_{outer}"
    )
}
