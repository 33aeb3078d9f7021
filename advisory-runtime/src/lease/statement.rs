//! A statement on the lease table, which Diesel prepares once for each connection.

use crate::driver::Queries;
use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Binary, Bool, Nullable, Text};
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
