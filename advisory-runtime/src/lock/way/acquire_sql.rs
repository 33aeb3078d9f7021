//! The SQL that acquires locks: a message, and for a try a query after it.

use super::message::Message;
use crate::Request;
use crate::driver::{Driver, can_be_of_a_process};
use crate::error::{Marker, has_only_message};
use crate::lock::call::{Call, CallPhase};
use crate::random::random;
use crate::sql::fail_unless;
use crate::sql::try_lock::{TryLock, other_statement};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use std::borrow::Cow;

#[derive(Debug)]
pub(super) struct AcquireSql {
    /// Waits for the locks, or prepares for the query; can be empty.
    pub(super) message: Cow<'static, str>,
    pub(super) try_query: Option<TryQuery>,
}

/// The part of an acquisition that has failed.
#[derive(Debug)]
pub(super) enum AcquireError {
    /// The message; or what undoes it after a miss, and then the connection is abandoned.
    Message(DieselError),
    /// The query of a try. The transaction or savepoint of the message can still be open.
    Query(DieselError),
}

impl AcquireError {
    pub(super) fn into_source(self) -> DieselError {
        match self {
            Self::Message(source) | Self::Query(source) => source,
        }
    }
}

/// A query that takes locks without waiting, as a prepared statement, so that a miss does not write
/// an error into the server's log.
#[derive(Debug)]
pub(super) enum TryQuery {
    /// For the open transaction.
    Xact {
        /// Asks for one key at READ COMMITTED. Every key has one text, so that it is prepared once.
        one_key: Option<TryLock>,
        /// Undoes the message in front of it.
        undo: Cow<'static, str>,
    },
    /// For the session. It compares the call's process with the backend.
    Session,
}

/// The message and the query of a try as one text, which fails with [`Marker::NotAvailable`] if a
/// key is held. Used if the server could not prepare the query: a pooler that does not track
/// prepared statements may have given its name to another client's.
fn try_by_text(request: &Request, message: &str) -> String {
    let (comment, select) = (Message::comment(request), Message::xact_try_sql(request));
    let take = fail_unless(&format!("EXISTS({select})"), Marker::NotAvailable.text());
    format!("{comment}{message};{take}")
}

/// Undoes the message after a miss. Its comments repeat the lock's name and its first keys: they
/// are the session's last query, which shows the locks that a call polls for.
fn undo_miss(request: &Request, undo: &str) -> String {
    let (comment, select) = (Message::comment(request), Message::xact_try_sql(request));
    let mut ends = select.match_indices(')').map(|(end, _)| end);
    let keys = ends.nth(KEYS_SHOWN).map_or(&*select, |end| &select[..end]);
    format!("{comment}/*{keys}*/;{undo}")
}

/// The maximum number of keys that a missed try shows.
const KEYS_SHOWN: usize = 8;

impl AcquireSql {
    /// A try for the session, after a message that can be empty.
    pub(super) fn session_try(message: &'static str) -> Self {
        Self {
            message: message.into(),
            try_query: Some(TryQuery::Session),
        }
    }

    /// Asks for the locks, and measures the wait. Returns whether they were taken: a message that
    /// waits takes them, or fails.
    pub(super) async fn send<D: Driver>(
        self,
        conn: &mut D,
        call: &mut Call,
    ) -> Result<bool, AcquireError> {
        call.phase = CallPhase::Open;
        let message = &self.message;
        let sent = match &self.try_query {
            None => match conn.execute(message).await {
                Ok(()) => Ok(true),
                Err(source) => Err(AcquireError::Message(source)),
            },
            Some(TryQuery::Xact { one_key, undo }) => {
                Box::pin(send_xact_try(message, *one_key, undo, conn, call)).await
            }
            Some(TryQuery::Session) => Box::pin(send_session_try(message, conn, call)).await,
        };
        call.record_time();
        sent
    }
}

async fn send_xact_try<D: Driver>(
    message: &str,
    one_key: Option<TryLock>,
    undo: &str,
    conn: &mut D,
    call: &mut Call,
) -> Result<bool, AcquireError> {
    // A blocking connection does not show a pooler, and prepares each text.
    let is_direct = conn.startup_process_id().is_some_and(can_be_of_a_process);
    let answer = if let Some(query) = one_key.filter(|_| is_direct) {
        let sent = conn.execute_and_try(message, query).await;
        let answer = sent.map_err(AcquireError::Message)?;
        let taken = answer.and_then(|answer| query.is_taken(answer.as_deref()));
        taken.and_then(|taken| taken.map(usize::from).ok_or(DieselError::NotFound))
    } else {
        let query = Message::comment(&call.request) + &Message::xact_try_sql(&call.request);
        let sent = conn.execute_and_query(message, &query).await;
        sent.map_err(AcquireError::Message)?
    };
    let source = match answer {
        Ok(rows) => {
            if rows == 0 {
                let undo = undo_miss(&call.request, undo);
                if let Err(source) = conn.execute(&undo).await {
                    // The transaction may still be open, with some of several keys.
                    call.abandon(conn);
                    return Err(AcquireError::Message(source));
                }
            }
            return Ok(took(call, rows));
        }
        Err(source) => source,
    };
    // Behind a pooler that does not track prepared statements, the name can be taken (42P05), the
    // statement can be gone before it is executed (26000), or another client's can answer.
    let is_foreign = matches!(
        source,
        DieselError::DeserializationError(_) | DieselError::NotFound
    );
    if (is_foreign || has_only_message(&source)) && conn.execute(undo).await.is_ok() {
        let text = try_by_text(&call.request, message);
        let taken = conn.execute(&text).await.map(|()| true);
        return taken.map_err(AcquireError::Query);
    }
    Err(AcquireError::Query(source))
}

/// If another client's statement answers, that is an error: nothing can undo what it has done.
async fn send_session_try<D: Driver>(
    message: &str,
    conn: &mut D,
    call: &mut Call,
) -> Result<bool, AcquireError> {
    if !message.is_empty() {
        conn.execute(message).await.map_err(AcquireError::Message)?;
    }
    let tag = AnswerTag::new();
    let query = Message::session_try_sql(&call.request, call.process, &tag.0);
    let answer = conn.query_text(&query).await;
    let rows = answer.and_then(|answer| tag.read(answer)?.parse().map_err(|_| other_statement()));
    let taken = rows.map(|rows| took(call, rows));
    taken.map_err(AcquireError::Query)
}

/// Returns whether a try took the locks, and notes the permit that it took. With permits, `rows` is
/// its position.
fn took(call: &mut Call, rows: usize) -> bool {
    let last = rows.checked_sub(1);
    call.permit = last.and_then(|last| call.request.permits.get(last).copied());
    last.is_some()
}

/// A text with which the answer begins, and that is in no other query.
///
/// Outside of a transaction, a pooler that does not track prepared statements can let one backend
/// prepare a query and another one execute it. There another client's statement can have the
/// query's name, and answers instead.
pub(super) struct AnswerTag(pub(super) String);

impl AnswerTag {
    pub(super) fn new() -> Self {
        Self(format!("advisory:{}:", random()))
    }

    /// The value after the tag.
    pub(super) fn read(&self, answer: Option<String>) -> QueryResult<String> {
        let read = answer.and_then(|answer| Some(answer.strip_prefix(&self.0)?.to_owned()));
        read.ok_or_else(other_statement)
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
