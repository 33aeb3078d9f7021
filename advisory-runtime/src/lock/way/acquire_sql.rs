//! What acquires locks: a message, and for a try a query behind it; how they are sent, and whether they took the locks.

use crate::driver::Driver;
use crate::error::{Marker, is_interrupted};
use crate::lock::call::{Call, Phase};
use diesel::QueryResult;
use std::borrow::Cow;

/// What acquires locks: a message, and for a try a query.
#[derive(Debug)]
pub(super) struct AcquireSql {
    /// Waits for the locks, or prepares for the query; can be empty.
    pub(super) message: Cow<'static, str>,
    /// For a try.
    pub(super) try_query: Option<TryQuery>,
}

/// A query that takes locks without waiting, as a prepared statement, so that a miss does not write an error into the server's
/// log. It returns a row if it took them.
#[derive(Debug)]
pub(super) struct TryQuery {
    pub(super) sql: String,
    /// Undoes the message in front of it.
    pub(super) undo: Option<Cow<'static, str>>,
}

impl TryQuery {
    /// The comment that names the lock, and the `SELECT`.
    fn split(&self) -> (&str, &str) {
        let behind_comment = self.sql.find("*/;").map_or(0, |end| end + 3);
        self.sql.split_at(behind_comment)
    }

    /// The message and the query as one text, which fails with [`Marker::NotAvailable`] if a key is held. For a server that
    /// could not prepare the query: behind a pooler that does not track prepared statements, its name can be taken.
    fn by_text(&self, message: &str) -> String {
        let (comment, select) = self.split();
        let missed = Marker::NotAvailable.text();
        format!(
            "{comment}{message};SELECT CAST(CASE WHEN EXISTS({select}) THEN '1' ELSE '{missed}' END AS pg_catalog.int4)"
        )
    }

    /// Undoes the message after a miss. Comments repeat the lock's name and its first keys: as the session's last query they show what a
    /// call that polls waits for.
    fn undo_miss(&self) -> Option<String> {
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

impl AcquireSql {
    /// Asks for the locks, and measures the wait. Returns whether they were taken. The outer error is the message's, the inner one the
    /// query's.
    pub(super) async fn send<D: Driver>(
        self,
        conn: &mut D,
        call: &mut Call,
    ) -> QueryResult<QueryResult<bool>> {
        call.phase = Phase::Open;
        let Self { message, try_query } = self;
        let sent = match try_query {
            None => conn.execute(&message).await.map(|()| Ok(true)),
            Some(try_query) => Box::pin(try_query.send(&message, conn, call)).await,
        };
        call.record_time();
        sent
    }
}

impl TryQuery {
    async fn send<D: Driver>(
        &self,
        message: &str,
        conn: &mut D,
        call: &mut Call,
    ) -> QueryResult<QueryResult<bool>> {
        let source = match conn.execute_and_query(message, &self.sql).await? {
            Ok(rows) => {
                if rows == 0
                    && let Some(undo) = self.undo_miss()
                    && let Err(error) = conn.execute(&undo).await
                {
                    // The transaction may still be open, with some of several keys.
                    call.abandon(conn);
                    return Err(error);
                }
                // With permits, the number of rows is the position of the one taken.
                let last = rows.checked_sub(1);
                call.permit = last.and_then(|last| call.request.permits.get(last).copied());
                return Ok(Ok(last.is_some()));
            }
            Err(source) => source,
        };
        // Behind a pooler that does not track prepared statements, the statement's name can be taken (42P05), or the statement can be
        // gone before it is executed (26000).
        if is_interrupted(&source)
            && let Some(undo) = &self.undo
            && conn.execute(undo).await.is_ok()
        {
            let asked = conn.execute(&self.by_text(message)).await;
            return Ok(asked.map(|()| true));
        }
        Ok(Err(source))
    }
}

impl From<String> for AcquireSql {
    fn from(message: String) -> Self {
        Self {
            message: message.into(),
            try_query: None,
        }
    }
}
