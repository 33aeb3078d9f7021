//! What acquires locks: a message, and for a try a query behind it; how they are sent, and whether they took the locks.

use super::message::Message;
use crate::Request;
use crate::driver::{Driver, can_be_of_a_process};
use crate::error::{Marker, is_interrupted};
use crate::lock::call::{Call, Phase};
use crate::request::Scope;
use crate::sql::try_lock::TryLock;
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use std::borrow::Cow;

/// What acquires locks: a message, and for a try a query.
#[derive(Debug)]
pub(super) struct AcquireSql {
    /// Waits for the locks, or prepares for the query; can be empty.
    pub(super) message: Cow<'static, str>,
    /// For a try.
    pub(super) try_query: Option<TryQuery>,
}

/// A query that takes locks without waiting, as a prepared statement, so that a miss does not write an error into the server's log.
#[derive(Debug)]
pub(super) struct TryQuery {
    pub(super) scope: Scope,
    /// The session's own process, which a session-level try compares with the backend.
    pub(super) process: Option<i32>,
    /// Asks for a transaction-level key at READ COMMITTED with a text that is the same for each key, so that it is prepared once.
    pub(super) one_key: Option<TryLock>,
    /// Undoes the message in front of it.
    pub(super) undo: Option<Cow<'static, str>>,
}

/// The text of a try. It returns a row if it took the locks.
struct TryText(String);

impl TryText {
    /// The comment that names the lock, and the `SELECT`.
    fn split(&self) -> (&str, &str) {
        let behind_comment = self.0.find("*/;").map_or(0, |end| end + 3);
        self.0.split_at(behind_comment)
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
    fn undo_miss(&self, undo: &str) -> String {
        let (comment, select) = self.split();
        let mut ends = select.match_indices(')').map(|(end, _)| end);
        let keys = ends.nth(KEYS_SHOWN).and_then(|end| select.get(..end));
        let keys = keys.unwrap_or(select);
        format!("{comment}/*{keys}*/;{undo}")
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
    fn text(&self, request: &Request) -> TryText {
        TryText(Message::try_query(request, self.scope, self.process))
    }

    async fn send<D: Driver>(
        &self,
        message: &str,
        conn: &mut D,
        call: &mut Call,
    ) -> QueryResult<QueryResult<bool>> {
        // A blocking connection does not show a pooler, and prepares each text.
        let is_direct = conn.told_process_id().is_some_and(can_be_of_a_process);
        let answer = if let Some(query) = self.one_key.filter(|_| is_direct) {
            let answer = conn.execute_and_try(message, query).await?;
            let taken = answer.and_then(|answer| query.is_taken(answer.as_deref()));
            taken.and_then(|taken| taken.map(usize::from).ok_or(DieselError::NotFound))
        } else {
            let text = self.text(&call.request);
            conn.execute_and_query(message, &text.0).await?
        };
        let source = match answer {
            Ok(rows) => {
                if rows == 0
                    && let Some(undo) = self.undo.as_deref()
                    && let undo = self.text(&call.request).undo_miss(undo)
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
        // Behind a pooler that does not track prepared statements, the statement's name can be taken (42P05), the statement can be gone
        // before it is executed (26000), or another client's can answer.
        let is_foreign = matches!(
            source,
            DieselError::DeserializationError(_) | DieselError::NotFound
        );
        if (is_foreign || is_interrupted(&source))
            && let Some(undo) = &self.undo
            && conn.execute(undo).await.is_ok()
        {
            let text = self.text(&call.request).by_text(message);
            let asked = conn.execute(&text).await;
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
