//! Transaction-level locks: READ COMMITTED, outside of a transaction.

use super::message::{Lasts, LockTimeout, Message, Scope};
use super::{Acquisition, Question, ROLLBACK};
use crate::{Request, Wait};

/// Names the level, since a role can have another default. `NOT DEFERRABLE` is refused (25001) inside a transaction that has run a
/// query: one that Diesel does not know of, and of which this message must not become part.
const SET_LEVEL: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE";

/// The same for a transaction that begins before its lock.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE";

/// Opens a transaction that holds the keys, in one message.
///
/// A message of several statements is one implicit transaction, and the `BEGIN` at its end makes that an explicit one with its
/// locks. So an error on the way leaves the session idle, with nothing to roll back. The lock has a statement of its own, because
/// anything else in that statement would read from a snapshot taken before the wait.
///
/// A try asks inside the transaction, so that a miss is not an error.
pub(crate) fn begin(request: &Request) -> Acquisition {
    if request.budget() == Wait::Never {
        return Acquisition {
            message: Message::bounded(BEGIN, request),
            question: Some(Question {
                sql: Message::question(request, Scope::Xact, None),
                undo: Some(ROLLBACK.into()),
            }),
        };
    }
    let mut message = Message::new(request);
    message.statement(SET_LEVEL);
    if request.max_hold.is_some() {
        message.select_client_check(Lasts::Transaction);
    }
    message.select_locks(request, Scope::Xact, LockTimeout::Restore, None);
    message.push_xact_timeouts(request);
    message.statement("BEGIN");
    message.finish().into()
}

/// Commits. The savepoint makes it fail in an aborted transaction (25P02), where `COMMIT` alone would roll back without an error, and
/// outside of a transaction (25P01).
pub(crate) const COMMIT: &str = "SAVEPOINT advisory_alive;COMMIT";

/// The statement of [`COMMIT`] that fails outside of a transaction.
pub(crate) const SAVEPOINT: &str = "SAVEPOINT advisory_alive";

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
