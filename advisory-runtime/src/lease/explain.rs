//! What the error of a statement on the lease table means.

use super::sql::{Form, IS_STANDBY};
use super::statement::{Statement, Value, count};
use super::{Error, Table};
use crate::driver::{Driver, Queries};
use crate::error::is_connection_lost;
use crate::rows::require_no_transaction;
use diesel::QueryResult;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::{Bool, Nullable};
use std::borrow::Cow;

/// Refuses a transaction, which could undo the statement.
pub(super) fn outside_transaction<D: Driver>(
    conn: &mut D,
    lock: impl Fn() -> Cow<'static, str>,
) -> Result<(), Error> {
    let in_transaction = || Error::InTransaction { lock: lock() };
    let is_closed = || Error::BrokenConnection { lock: lock() };
    require_no_transaction(conn, in_transaction, is_closed)
}

/// The rights without which a statement fails.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rights {
    Unchecked = 0,
    Grant = 1,
    MoveSequence = 2,
}

impl Table {
    /// Returns `true` if the statement found or changed a row.
    pub(super) async fn affects<D: Queries>(
        &self,
        conn: &mut D,
        form: Form,
        values: &[Value<'_>],
        lock: impl FnOnce() -> Cow<'static, str> + Send,
    ) -> Result<bool, Error> {
        let counted = count(conn, self.texts.get(form), values).await;
        Ok(self.explained(conn, counted, lock).await? > 0)
    }

    /// The answer, or what its error means.
    pub(super) async fn explained<T, D: Queries>(
        &self,
        conn: &mut D,
        answer: QueryResult<T>,
        lock: impl FnOnce() -> Cow<'static, str> + Send,
    ) -> Result<T, Error> {
        match answer {
            Ok(answer) => Ok(answer),
            // Boxed, since it is rare and would make every statement's future larger.
            Err(error) => Err(Box::pin(self.explain(conn, error, lock(), Rights::Unchecked)).await),
        }
    }

    /// Asks the server what an error means of a statement that always needs these rights.
    pub(super) async fn explain<D: Queries>(
        &self,
        conn: &mut D,
        source: DieselError,
        lock: Cow<'static, str>,
        rights: Rights,
    ) -> Error {
        let asked = match &source {
            DieselError::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => {
                match count(conn, IS_STANDBY, &[]).await {
                    Ok(1..) => return Error::Standby { lock },
                    asked => asked.map(|_| None),
                }
            }
            DieselError::DatabaseError(DatabaseErrorKind::Unknown, _) => {
                let (text, values) = (self.texts.get(Form::Lacks), [rights as i64]);
                let values = values.map(Value::Number);
                let question = Statement::<Nullable<Bool>>::new(text, &values);
                let asked: QueryResult<Vec<Option<bool>>> = conn.load(question).await;
                asked.map(|lacks| lacks.into_iter().flatten().next())
            }
            _ => Ok(None),
        };
        let table = self.name();
        match asked {
            Ok(Some(true)) => Error::MissingTable { table, source },
            Ok(Some(false)) => Error::MissingRights { table, source },
            // The server has ended the session.
            Err(lost) if is_connection_lost(&lost) => Error::Database(lost),
            Ok(None) | Err(_) => Error::Database(source),
        }
    }
}
