//! A tag that shows that an answer belongs to its query.
//!
//! Outside of a transaction, a pooler that does not track prepared statements can let one backend
//! prepare a query and another one execute it. There another client's statement can have the
//! query's name, and answers instead.

use crate::sql::try_lock::other_statement;
use diesel::QueryResult;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A text with which the answer begins, and that is in no other query.
pub(super) struct AnswerTag(pub(super) String);

impl AnswerTag {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanoseconds = now.unwrap_or_default().as_nanos();
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self(format!("advisory:{process}:{nanoseconds}:{count}:"))
    }

    /// The value after the tag.
    pub(super) fn read(&self, answer: Option<String>) -> QueryResult<String> {
        let read = answer.and_then(|answer| Some(answer.strip_prefix(&self.0)?.to_owned()));
        read.ok_or_else(other_statement)
    }
}
