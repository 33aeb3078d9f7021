//! Transaction-level locks: READ COMMITTED, outside of a transaction.

use super::columns::{
    LockTimeout, Scope, TryLocks, XACT_TIMEOUTS, push_timeout, select_client_check, select_locks,
};
use super::message::Message;
use crate::Request;
use crate::error::Marker;
use std::borrow::Cow;

/// Always names the level, since a role can have another default. `NOT DEFERRABLE` is refused inside a transaction that has run a
/// query, one that Diesel does not know of: this message must not become part of that (SQLSTATE 25001).
const SET_LEVEL: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE";

/// Opens a transaction that holds the keys, in one message.
///
/// A message of several statements is one implicit transaction, and the `BEGIN` at its end makes that an explicit one with its
/// locks. So an error on the way leaves the session idle, with nothing to roll back. The lock has a statement of its own: whatever
/// runs in one statement with it would read from a snapshot taken before the wait.
pub(crate) fn begin(request: &Request) -> String {
    let mut message = Message::new(request);
    message.statement(SET_LEVEL);
    if request.max_hold.is_some() {
        select_client_check(&mut message);
    }
    select_locks(&mut message, request, Scope::Xact, LockTimeout::Restore);
    push_timeouts(&mut message, request);
    message.statement("BEGIN");
    message.finish()
}

/// Opens the transaction that [`try_question`] asks in.
pub(crate) fn begin_try(request: &Request) -> Cow<'static, str> {
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE";
    if request.max_hold.is_none() {
        return begin.into();
    }
    let mut message = Message::empty();
    message.statement(begin);
    select_client_check(&mut message);
    push_timeouts(&mut message, request);
    message.finish().into()
}

/// Asks for the keys without waiting; a row is the answer that it took them.
pub(crate) fn try_question(request: &Request) -> String {
    let mut message = Message::new(request);
    message.select();
    message.column(format_args!("1 WHERE {}", TryLocks(request, Scope::Xact)));
    message.finish()
}

/// The same by text alone, as the server's answer to a question that it could not prepare: a miss is an error with
/// [`Marker::NotAvailable`]. Behind a pooler that does not track prepared statements, another program's can have our name.
pub(crate) fn try_by_text(request: &Request) -> String {
    let mut message = Message::new(request);
    message.statement(SET_LEVEL);
    select_try_or_fail(&mut message, request);
    push_timeouts(&mut message, request);
    message.statement("BEGIN");
    message.finish()
}

pub(super) fn select_try_or_fail(message: &mut Message, request: &Request) {
    message.select();
    message.column(format_args!(
        "CAST(CASE WHEN {} THEN '1' ELSE '{}' END AS pg_catalog.int4)",
        TryLocks(request, Scope::Xact),
        Marker::NotAvailable.text()
    ));
}

pub(super) fn push_timeouts(message: &mut Message, request: &Request) {
    if let Some(max_hold) = request.max_hold {
        for setting in XACT_TIMEOUTS {
            push_timeout(message, setting, max_hold, true);
        }
    }
}

/// Commits. In an aborted transaction, which a `COMMIT` alone answers with `ROLLBACK` and no error, the savepoint fails (25P02);
/// outside of a transaction too (25P01).
pub(crate) const COMMIT: &str = "SAVEPOINT advisory_alive;COMMIT";

#[cfg(test)]
mod tests {
    use super::{COMMIT, begin};
    use crate::Request;
    use advisory_pattern::Derivation;

    /// The guide's page is the snapshot of what one call sends.
    #[test]
    fn the_page_shows_what_is_sent() {
        let page = include_str!("../../docs/expansion.md");
        let shown = page.split("```sql").skip(1).map(|block| {
            let (statements, _) = block.split_once("```").unwrap_or_default();
            statements.split_whitespace().collect::<String>()
        });
        let key = Derivation::Sha256.key("room:7");
        let request = Request::one("room:<room>", key.into());
        let sent = [begin(&request), COMMIT.to_owned()];
        let sent = sent.map(|sent| sent.replace(' ', ""));
        assert_eq!(shown.collect::<Vec<_>>(), sent);
    }
}
