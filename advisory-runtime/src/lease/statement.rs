//! How does a statement on the lease table reach the server? As one that Diesel prepares once for each connection.

use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Binary, Bool, Nullable, Text};
use diesel_async::{AsyncConnectionCore, AsyncPgConnection};
use std::marker::PhantomData;

/// One value of a statement.
#[derive(Clone, Debug)]
pub(super) enum Value<'v> {
    Hash([u8; 32]),
    Number(i64),
    Text(Option<&'v str>),
}

/// A statement, its values, and what its rows are made of.
pub(super) struct Statement<'s, const N: usize, Columns = ()> {
    text: &'s str,
    values: [Value<'s>; N],
    columns: PhantomData<fn() -> Columns>,
}

/// The columns of a row of the table.
pub(super) type RowColumns = (
    Binary,
    BigInt,
    Nullable<Text>,
    Nullable<Text>,
    Text,
    Bool,
    BigInt,
    BigInt,
    BigInt,
);

/// The columns of the answer to an acquisition.
pub(super) type GrantColumns = (Nullable<BigInt>, BigInt, BigInt);

impl<'s, const N: usize, Columns> Statement<'s, N, Columns> {
    pub(super) const fn new(text: &'s str, values: [Value<'s>; N]) -> Self {
        Self {
            text,
            values,
            columns: PhantomData,
        }
    }
}

/// How many rows a statement has found or changed.
pub(super) async fn count<const N: usize>(
    conn: &mut AsyncPgConnection,
    text: &str,
    values: [Value<'_>; N],
) -> QueryResult<usize> {
    let statement: Statement<'_, N> = Statement::new(text, values);
    conn.execute_returning_count(statement).await
}

impl<const N: usize, Columns> QueryId for Statement<'_, N, Columns> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<const N: usize, Columns> Query for Statement<'_, N, Columns> {
    type SqlType = Columns;
}

impl<const N: usize, Columns> QueryFragment<Pg> for Statement<'_, N, Columns> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(self.text);
        self.values.iter().try_for_each(|value| match value {
            Value::Hash(hash) => out.push_bind_param_value_only::<Binary, [u8]>(hash.as_slice()),
            Value::Number(number) => out.push_bind_param_value_only::<BigInt, i64>(number),
            Value::Text(text) => {
                out.push_bind_param_value_only::<Nullable<Text>, Option<&str>>(text)
            }
        })
    }
}

#[cfg(feature = "postgres")]
impl<const N: usize, Columns> diesel::RunQueryDsl<diesel::PgConnection>
    for Statement<'_, N, Columns>
{
}
