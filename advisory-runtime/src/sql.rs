//! Every statement that this crate sends for a lock. Only these files contain `pg_advisory_*`.
//!
//! Functions, operators and types are qualified with `pg_catalog.`, so that neither the `search_path` nor a function of the same
//! name can change what runs. Statements contain only numbers and text made here; [`query_comment`](crate::query_comment) makes the
//! comment in front safe. There is one file for each way of holding a lock.

/// Appends formatted text.
macro_rules! put {
    ($sql:expr, $($text:tt)*) => {
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result = std::fmt::Write::write_fmt(&mut $sql, format_args!($($text)*));
    };
}

pub(crate) mod hand_over;
mod held;
mod message;
#[cfg(feature = "migrations")]
pub(crate) mod migrations;
pub(crate) mod nested;
pub(crate) mod probe;
pub(crate) mod session;
pub(crate) mod try_lock;
pub(crate) mod xact;

use crate::error::Marker;
use std::borrow::Cow;

/// A message, and perhaps a question, that takes locks.
#[derive(Debug)]
pub(crate) struct Acquisition {
    /// Waits for the locks, or prepares for the question; can be empty.
    pub(crate) message: Cow<'static, str>,
    /// For a try.
    pub(crate) question: Option<Question>,
}

/// A question that takes locks without waiting, as a prepared statement, so that a miss does not write an error into the server's
/// log. It returns a row if it took them.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) sql: String,
    /// Undoes the message in front of it.
    pub(crate) undo: Option<Cow<'static, str>>,
}

impl Question {
    /// The comment that names the lock, and the `SELECT`.
    fn split(&self) -> (&str, &str) {
        let behind_comment = self.sql.find("*/;").map_or(0, |end| end + 3);
        self.sql.split_at(behind_comment)
    }

    /// The message and the question as one text, which fails with [`Marker::NotAvailable`] if a key is held. For a server that
    /// could not prepare the question: behind a pooler that does not track prepared statements, its name can be taken.
    pub(crate) fn by_text(&self, message: &str) -> String {
        let (comment, select) = self.split();
        let missed = Marker::NotAvailable.text();
        format!(
            "{comment}{message};SELECT CAST(CASE WHEN EXISTS({select}) THEN '1' ELSE '{missed}' END AS pg_catalog.int4)"
        )
    }

    /// Undoes the message after a miss. Comments repeat the lock's name and its first keys: as the session's last query they show what a
    /// call that polls waits for.
    pub(crate) fn undo_miss(&self) -> Option<String> {
        let undo = self.undo.as_deref()?;
        let (comment, select) = self.split();
        let mut ends = select.match_indices(')').map(|(end, _)| end);
        let keys = ends.nth(KEYS_SHOWN).and_then(|end| select.get(..end));
        let keys = keys.unwrap_or(select);
        Some(format!("{comment}/*{keys}*/;{undo}"))
    }
}

/// How many keys a missed try shows at most.
const KEYS_SHOWN: usize = 8;

impl From<String> for Acquisition {
    fn from(message: String) -> Self {
        Self {
            message: message.into(),
            question: None,
        }
    }
}

/// Ends any open transaction; the server warns if none is open.
pub(crate) const ROLLBACK: &str = "ROLLBACK";

/// Ends the transaction and the session. If the role must not end its own session, as after a `SET ROLE`, the session is left in a
/// failed transaction: it holds no lock and refuses every statement. The level is named because a role's defaults can make a statement
/// wait for a snapshot.
#[cfg(feature = "diesel-async")]
pub(crate) const TERMINATE: &str = "ROLLBACK;\
     SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE;SELECT pg_catalog.pg_advisory_unlock_all();BEGIN;\
     SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid());\
     SELECT CAST('advisory:abandoned' AS pg_catalog.int4)";

/// Rolls back, and leaves the session in a failed transaction: it holds no lock and refuses every statement. The level is named as in
/// `TERMINATE`.
#[cfg(feature = "postgres")]
pub(crate) const POISON: &str = "ROLLBACK;\
     SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE;SELECT pg_catalog.pg_advisory_unlock_all();BEGIN;\
     SELECT CAST('advisory:abandoned' AS pg_catalog.int4)";
