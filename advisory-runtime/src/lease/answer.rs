//! By which way a statement on the lease table goes, and what it means when it is refused.

use super::Table;
use super::sql::{Answer, IS_STANDBY, PREPARED_NAMES};
use super::statement::{Statement, Value};
use crate::Error;
use crate::driver::{Driver, depth};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::AsyncPgConnection;
use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;

/// How statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    Prepared = 1,
    Said = 2,
}

impl Table {
    pub(super) async fn rows<const N: usize>(
        &self,
        conn: &mut AsyncPgConnection,
        statement: Statement<'_, N>,
    ) -> Result<Vec<String>, DieselError> {
        let channel = self.channel(conn).await;
        statement.rows(conn, channel).await
    }

    /// Asked once, and only behind a pooler: whether it tracks prepared statements. One that does renames them.
    async fn channel(&self, conn: &mut AsyncPgConnection) -> Channel {
        let known = &self.0.channel;
        if known.load(Ordering::Relaxed) == Channel::Said as u8 {
            return Channel::Said;
        }
        if known.load(Ordering::Relaxed) == Channel::Prepared as u8
            || !crate::driver::cancel::is_pooled(&conn.cancel_token())
        {
            return Channel::Prepared;
        }
        // An answer that is an error would be the end of an open transaction.
        if !matches!(depth(conn), Ok(None)) {
            return Channel::Said;
        }
        let is_tracked = match conn.query_text(PREPARED_NAMES).await {
            Ok(Some(names)) => !names.split(',').any(is_own_name),
            Ok(None) | Err(_) => false,
        };
        let channel = if is_tracked {
            Channel::Prepared
        } else {
            Channel::Said
        };
        known.store(channel as u8, Ordering::Relaxed);
        channel
    }

    /// Whether a question has an answer.
    async fn is_so(&self, conn: &mut AsyncPgConnection, question: &str) -> bool {
        let rows = self.rows(conn, question_of(question)).await;
        rows.is_ok_and(|rows| !rows.is_empty())
    }

    /// What a refused statement means.
    pub(super) async fn explain(
        &self,
        conn: &mut AsyncPgConnection,
        error: DieselError,
        lock: Cow<'static, str>,
    ) -> Error {
        let DieselError::DatabaseError(kind, _) = &error else {
            return Error::Database(error);
        };
        match kind {
            DatabaseErrorKind::ReadOnlyTransaction if self.is_so(conn, IS_STANDBY).await => {
                Error::Standby { lock }
            }
            DatabaseErrorKind::Unknown if self.is_so(conn, &self.0.texts.is_missing).await => {
                let (table, source) = (self.name(), error);
                Error::MissingTable { table, source }
            }
            _ => Error::Database(error),
        }
    }
}

pub(super) fn question_of(text: &str) -> Statement<'_, 0> {
    Statement {
        text,
        values: [],
        answer: Answer::Rows,
        outcome: "",
    }
}

pub(super) fn flag<'s, const N: usize>(text: &'s str, values: [Value<'s>; N]) -> Statement<'s, N> {
    Statement {
        text,
        values,
        answer: Answer::Flag,
        outcome: "",
    }
}

/// Whether no transaction is open that could undo what was told to be done; a test's counts as none.
pub(super) fn lies_outside(
    conn: &mut AsyncPgConnection,
    lock: impl Fn() -> Cow<'static, str>,
) -> Result<(), Error> {
    match depth(conn) {
        Ok(None | Some(NonZeroU32::MIN)) if !conn.is_broken() => Ok(()),
        Ok(Some(_)) => Err(Error::InTransaction { lock: lock() }),
        _ => Err(Error::BrokenConnection { lock: lock() }),
    }
}

/// How tokio-postgres names what it prepares.
fn is_own_name(name: &str) -> bool {
    name.strip_prefix('s').is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
    })
}
