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

/// Adds a value where it stands, or behind a text that has its number already.
pub(super) fn push_value<'b>(
    out: &mut AstPass<'_, 'b, Pg>,
    value: &'b Value<'_>,
    is_numbered: bool,
) -> QueryResult<()> {
    macro_rules! push {
        ($sql_type:ty, $rust:ty, $value:expr) => {
            if is_numbered {
                out.push_bind_param_value_only::<$sql_type, $rust>($value)
            } else {
                out.push_bind_param::<$sql_type, $rust>($value)
            }
        };
    }
    match value {
        Value::Hash(hash) => push!(Binary, [u8], hash.as_slice()),
        Value::Number(number) => push!(BigInt, i64, number),
        Value::Text(text) => push!(Nullable<Text>, Option<&str>, text),
    }
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
        let mut values = self.values.iter();
        values.try_for_each(|value| push_value(&mut out, value, true))
    }
}

#[cfg(feature = "postgres")]
impl<const N: usize, Columns> diesel::RunQueryDsl<diesel::PgConnection>
    for Statement<'_, N, Columns>
{
}
