//! A statement on the lease table, which Diesel prepares once for each connection.

use super::sql::{Form, IS_STANDBY};
use super::{Error, Table};
use crate::driver::{Driver, Queries};
use crate::error::is_connection_lost;
use crate::rows::require_no_transaction;
use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::{Array, BigInt, Binary, Bool, Nullable, Text};
use std::borrow::Cow;
use std::marker::PhantomData;

/// One value of a statement.
#[derive(Clone, Debug)]
pub(super) enum Value<'v> {
    Hash([u8; 32]),
    Number(i64),
    Text(Option<&'v str>),
    Texts(&'v [String]),
    Hashes(Vec<Vec<u8>>),
    Numbers(Vec<i64>),
}

/// A statement, its values, and the SQL types of its columns. `NUMBER` is above zero for a text
/// that is always the same: Diesel then finds the prepared statement without the text.
pub(super) struct Statement<'s, Columns = (), const NUMBER: u8 = 0> {
    text: &'s str,
    values: &'s [Value<'s>],
    columns: PhantomData<fn() -> Columns>,
}

/// The columns of a row of the table.
pub(super) type RowColumns = (
    Binary,
    BigInt,
    Nullable<Text>,
    Nullable<Text>,
    Text,
    Nullable<Text>,
    Bool,
    BigInt,
    BigInt,
    BigInt,
);

/// The columns of the answer to an acquisition.
pub(super) type GrantColumns = (Nullable<BigInt>, BigInt, BigInt);

impl<'s, Columns, const NUMBER: u8> Statement<'s, Columns, NUMBER> {
    pub(super) const fn new(text: &'s str, values: &'s [Value<'s>]) -> Self {
        Self {
            text,
            values,
            columns: PhantomData,
        }
    }
}

/// The number of rows that a statement found or changed.
pub(super) async fn count<D: Queries>(
    conn: &mut D,
    text: &str,
    values: &[Value<'_>],
) -> QueryResult<usize> {
    let statement: Statement<'_> = Statement::new(text, values);
    conn.count(statement).await
}

impl<Columns: 'static, const NUMBER: u8> QueryId for Statement<'_, Columns, NUMBER> {
    type QueryId = Statement<'static, Columns, NUMBER>;
    const HAS_STATIC_QUERY_ID: bool = NUMBER > 0;
}

impl<Columns, const NUMBER: u8> Query for Statement<'_, Columns, NUMBER> {
    type SqlType = Columns;
}

impl<Columns, const NUMBER: u8> QueryFragment<Pg> for Statement<'_, Columns, NUMBER> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(self.text);
        let mut values = self.values.iter();
        values.try_for_each(|value| match value {
            Value::Hash(hash) => out.push_bind_param_value_only::<Binary, [u8]>(hash.as_slice()),
            Value::Number(number) => out.push_bind_param_value_only::<BigInt, i64>(number),
            Value::Text(text) => {
                out.push_bind_param_value_only::<Nullable<Text>, Option<&str>>(text)
            }
            Value::Texts(texts) => out.push_bind_param_value_only::<Array<Text>, [String]>(texts),
            Value::Hashes(hashes) => {
                out.push_bind_param_value_only::<Array<Binary>, [Vec<u8>]>(hashes)
            }
            Value::Numbers(numbers) => {
                out.push_bind_param_value_only::<Array<BigInt>, [i64]>(numbers)
            }
        })
    }
}

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
