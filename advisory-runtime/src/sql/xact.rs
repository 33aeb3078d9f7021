//! Transaction-level locks: READ COMMITTED, outside of a transaction.

use super::message::{LockTimeout, Message, Scope};
use super::{Acquisition, ROLLBACK};
use crate::{Request, Wait};

/// Always names the level, since a role can have another default. `NOT DEFERRABLE` is refused inside a transaction that has run a
/// query, one that Diesel does not know of: this message must not become part of that (SQLSTATE 25001).
const SET_LEVEL: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE";

/// The same for a transaction that begins before its lock.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE";

/// Opens a transaction that holds the keys, in one message.
///
/// A message of several statements is one implicit transaction, and the `BEGIN` at its end makes that an explicit one with its
/// locks. So an error on the way leaves the session idle, with nothing to roll back. The lock has a statement of its own: whatever
/// runs in one statement with it would read from a snapshot taken before the wait.
///
/// A try asks inside the transaction, so that a miss is no error.
pub(crate) fn begin(request: &Request) -> Acquisition {
    if request.budget() == Wait::Never {
        return Acquisition {
            message: Message::bounded(BEGIN, request),
            question: Some(Message::question(request, Scope::Xact)),
        };
    }
    let mut message = Message::new(request);
    message.statement(SET_LEVEL);
    if request.max_hold.is_some() {
        message.select_client_check();
    }
    message.select_locks(request, Scope::Xact, LockTimeout::Restore);
    message.push_xact_timeouts(request);
    message.statement("BEGIN");
    message.finish().into()
}

/// A try by text alone, for a server that could not prepare the question: a miss is an error. Behind a
/// pooler that does not track prepared statements, another program's can have our name.
pub(crate) fn try_by_text(request: &Request) -> Acquisition {
    let mut message = Message::new(request);
    message.statement(SET_LEVEL);
    message.select_try_or_fail(request);
    message.push_xact_timeouts(request);
    message.statement("BEGIN");
    message.finish().into()
}

/// Ends the transaction of a try that found a key held.
pub(crate) fn undo_try(request: &Request) -> String {
    Message::undo_try(request, ROLLBACK)
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
        let sent = [begin(&request).message.into_owned(), COMMIT.to_owned()];
        let sent = sent.map(|sent| sent.replace(' ', ""));
        assert_eq!(shown.collect::<Vec<_>>(), sent);
    }
}
