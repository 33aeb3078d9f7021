//! Transaction-level locks inside an open transaction, under a savepoint.
//!
//! The savepoint has its own name. Diesel's savepoints stay behind when it rolls back to them, so rolling back to a name of Diesel's
//! could silently undo the caller's work.

use super::held::push_count;
use super::message::{Lasts, LockTimeout, Message, Scope, XACT_TIMEOUTS};
use super::{Acquisition, Question};
use crate::error::Marker;
use crate::{Request, Wait};
use std::num::NonZeroU32;

/// What is required of the outer transaction's snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Snapshot {
    /// The transaction must be READ COMMITTED. `SET TRANSACTION` does nothing there, and is refused at other levels (25001),
    /// whose snapshot is older than the lock: the body would not see what earlier holders wrote.
    Fresh,
    /// At another level, this transaction has held the keys since before its snapshot, or the level is READ UNCOMMITTED, which
    /// PostgreSQL treats as READ COMMITTED.
    HeldBefore,
}

/// Sets the savepoint and takes the keys, or asks for them.
pub(crate) fn begin(outer: NonZeroU32, request: &Request, snapshot: Snapshot) -> Acquisition {
    let mut message = open(outer, request, snapshot);
    let question = if request.budget() == Wait::Never {
        if request.max_hold.is_some() {
            message.select();
        }
        Some(Question {
            sql: Message::question(request, Scope::Xact, None),
            undo: Some(rollback(outer).into()),
        })
    } else {
        message.select_locks(request, Scope::Xact, LockTimeout::Restore, None);
        None
    };
    push_idle_timeout(&mut message, request);
    Acquisition {
        message: message.finish().into(),
        question,
    }
}

/// As [`begin`] for a lock without a body. A message that waits also releases the savepoint, so that the outer transaction holds the
/// keys.
pub(crate) fn lock(outer: NonZeroU32, request: &Request, snapshot: Snapshot) -> Acquisition {
    let mut acquisition = begin(outer, request, snapshot);
    if acquisition.question.is_none() {
        let message = acquisition.message.to_mut();
        message.push(';');
        message.push_str(&release(outer, false));
    }
    acquisition
}

fn open(outer: NonZeroU32, request: &Request, snapshot: Snapshot) -> Message {
    let mut message = Message::new(request);
    message.statement(&format!("SAVEPOINT advisory_savepoint_{outer}"));
    match snapshot {
        Snapshot::Fresh => message.statement("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"),
        Snapshot::HeldBefore => {
            let mut held = format!("{} OPERATOR(pg_catalog.=) ", request.keys.len());
            push_count(&mut held, &request.keys, request.mode);
            message.select();
            message.column(format_args!(
                "CAST(CASE WHEN pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read uncommitted' \
                 OR ({held}) THEN '1' ELSE '{}' END AS pg_catalog.int4)",
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
        message.select_client_check(Lasts::Transaction);
    }
    message
}

/// The settings that `max_hold` changes, and [`release`] restores.
const BOUNDING: [&str; 2] = [XACT_TIMEOUTS[0], "client_connection_check_interval"];

/// Bounds an idle client.
fn push_idle_timeout(message: &mut Message, request: &Request) {
    if let Some(max_hold) = request.max_hold {
        message.push_timeout(XACT_TIMEOUTS[0], max_hold, Lasts::Transaction);
    }
}

/// Keeps what the body did; the keys stay locked until the end of the outer transaction. The savepoint is released last, so that it can
/// still be rolled back if a setting cannot be restored.
pub(crate) fn release(outer: NonZeroU32, is_bounded: bool) -> String {
    let mut sql = String::new();
    if is_bounded {
        for setting in BOUNDING {
            put!(
                sql,
                "SELECT pg_catalog.set_config('{setting}',pg_catalog.current_setting('advisory.{setting}_{outer}'),true);"
            );
        }
    }
    put!(sql, "RELEASE SAVEPOINT advisory_savepoint_{outer}");
    sql
}

/// Undoes what the body did, and releases the keys that were taken under the savepoint.
pub(crate) fn rollback(outer: NonZeroU32) -> String {
    format!(
        "ROLLBACK TO SAVEPOINT advisory_savepoint_{outer};RELEASE SAVEPOINT advisory_savepoint_{outer}"
    )
}
