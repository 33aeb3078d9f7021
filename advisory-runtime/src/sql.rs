//! Every statement that this crate sends for a lock; the only place that spells `pg_advisory_*`.
//!
//! Functions, operators and types are qualified with `pg_catalog.`, so that neither the `search_path` nor a function of the same
//! name can change what runs. Only numbers and text made here enter a statement; the comment in front is made safe by
//! [`query_comment`](crate::query_comment). A file for each way of holding a lock.

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
pub(crate) mod xact;

use crate::error::Marker;
use std::borrow::Cow;

/// What is sent to take locks.
#[derive(Debug)]
pub(crate) struct Acquisition {
    /// Waits for the locks, or prepares for the question; nothing where it is empty.
    pub(crate) message: Cow<'static, str>,
    /// Of a try.
    pub(crate) question: Option<Question>,
}

/// A question that takes locks without waiting, as a prepared statement, so that a miss is no error in the server's log. A row is
/// the answer that they were taken.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) sql: String,
    /// Undoes the message in front of it, so that it can be asked again by text.
    pub(crate) undo: Option<Cow<'static, str>>,
}

impl Question {
    /// The message and the question as one text, which fails with [`Marker::NotAvailable`] where a key is held. For a server that
    /// could not prepare the question: behind a pooler that does not track prepared statements, another program's can have its name.
    pub(crate) fn by_text(&self, message: &str) -> String {
        let behind_comment = self.sql.find("*/;").map_or(0, |end| end + 3);
        let (comment, select) = self.sql.split_at(behind_comment);
        let missed = Marker::NotAvailable.text();
        format!(
            "{comment}{message};SELECT CAST(CASE WHEN EXISTS({select}) THEN '1' ELSE '{missed}' END AS pg_catalog.int4)"
        )
    }
}

impl From<String> for Acquisition {
    fn from(message: String) -> Self {
        Self {
            message: message.into(),
            question: None,
        }
    }
}

/// Ends whatever transaction is open; the server warns where none is.
pub(crate) const ROLLBACK: &str = "ROLLBACK";

/// Ends the transaction and the session. Where the role may not end its own session, as after a `SET ROLE`, the session is left as
/// [`POISON`] leaves it.
#[cfg(feature = "diesel-async")]
pub(crate) const TERMINATE: &str = "ROLLBACK;SELECT pg_catalog.pg_advisory_unlock_all();BEGIN;\
     SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid());\
     SELECT CAST('advisory:abandoned' AS pg_catalog.int4)";

/// Rolls back, and leaves the session in a failed transaction: it holds no lock and refuses every statement.
#[cfg(feature = "postgres")]
pub(crate) const POISON: &str = "ROLLBACK;SELECT pg_catalog.pg_advisory_unlock_all();BEGIN;\
     SELECT CAST('advisory:abandoned' AS pg_catalog.int4)";
