//! The key of a row that can be claimed: its columns, and values for them.

use diesel::expression::{AsExpression, TypedExpressionType};
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::serialize::ToSql;
use diesel::sql_types::{Array, HasSqlType, SqlType, is_nullable};
use diesel::{Column, QueryResult};
use std::marker::PhantomData;

/// The columns of a table's key.
pub trait KeyColumns<Table> {
    /// The columns' names.
    const NAMES: &'static [&'static str];
}

#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a column of the key can be NULL, and `= NULL` finds no row",
    label = "the key begins here",
    note = "make it `NOT NULL` in the table, and not `Nullable` in `diesel::table!`"
)]
pub trait NeverNull {}

impl NeverNull for is_nullable::NotNull {}

/// A key of one column.
#[derive(Clone, Copy, Debug)]
pub struct One<C>(pub C);

impl<Table, C: Column<Table = Table, SqlType: SqlType<IsNull: NeverNull>>> KeyColumns<Table>
    for One<C>
{
    const NAMES: &'static [&'static str] = &[C::NAME];
}

/// Values that Diesel takes for a key's columns: `42`, or `(matrix_id, &chunk_hash)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a value of the key `{K}`",
    label = "expected what Diesel takes for the key's column, or a tuple for several columns, in their order"
)]
pub trait KeyValue<K> {
    /// Returns the values as SQL, separated by commas.
    fn bound(self) -> impl QueryFragment<Pg> + Send + Sync;
}

impl<C, V> KeyValue<One<C>> for V
where
    C: Column<SqlType: SqlType + TypedExpressionType>,
    V: AsExpression<C::SqlType, Expression: QueryFragment<Pg> + Send + Sync>,
{
    fn bound(self) -> impl QueryFragment<Pg> + Send + Sync {
        self.as_expression()
    }
}

/// The key of a row. Several keys are bound as one array for each column.
pub trait RowKey<K>: KeyValue<K> + Sized {
    /// The arrays as functions that return rows, separated by commas.
    #[doc(hidden)]
    type Arrays: QueryFragment<Pg> + Send + Sync;
    #[doc(hidden)]
    fn arrays(keys: impl Iterator<Item = Self>) -> Self::Arrays;
}

impl<C, V> RowKey<One<C>> for V
where
    C: Column<SqlType: SqlType>,
    V: KeyValue<One<C>> + ToSql<C::SqlType, Pg> + Send + Sync,
    Pg: HasSqlType<C::SqlType>,
{
    type Arrays = KeyArray<C::SqlType, V>;

    fn arrays(keys: impl Iterator<Item = Self>) -> Self::Arrays {
        KeyArray(keys.collect(), PhantomData)
    }
}

/// The values of a key's column.
#[doc(hidden)]
pub struct KeyArray<S, V>(Vec<V>, PhantomData<fn() -> S>);

impl<S, V> QueryFragment<Pg> for KeyArray<S, V>
where
    S: 'static,
    V: ToSql<S, Pg>,
    Pg: HasSqlType<S>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("pg_catalog.unnest(");
        out.push_bind_param::<Array<S>, _>(&self.0)?;
        out.push_sql(")");
        Ok(())
    }
}

macro_rules! composite {
    ($($column:ident $value:ident $nth:tt),+) => {
        impl<Table, $($column: Column<Table = Table, SqlType: SqlType<IsNull: NeverNull>>),+> KeyColumns<Table>
            for ($($column),+)
        {
            const NAMES: &'static [&'static str] = &[$($column::NAME),+];
        }

        impl<$($column, $value),+> KeyValue<($($column),+)> for ($($value),+)
        where
            $(
                $column: Column<SqlType: SqlType + TypedExpressionType>,
                $value: AsExpression<
                    $column::SqlType,
                    Expression: QueryFragment<Pg> + Send + Sync,
                >,
            )+
        {
            fn bound(self) -> impl QueryFragment<Pg> + Send + Sync {
                ($(self.$nth.as_expression()),+)
            }
        }

        impl<$($column, $value),+> RowKey<($($column),+)> for ($($value),+)
        where
            Self: KeyValue<($($column),+)>,
            $(
                $column: Column<SqlType: SqlType>,
                $value: ToSql<$column::SqlType, Pg> + Send + Sync,
                Pg: HasSqlType<$column::SqlType>,
            )+
        {
            type Arrays = ($(KeyArray<$column::SqlType, $value>),+);

            fn arrays(keys: impl Iterator<Item = Self>) -> Self::Arrays {
                let mut arrays = ($(KeyArray::<$column::SqlType, $value>(Vec::new(), PhantomData)),+);
                for key in keys {
                    $(arrays.$nth.0.push(key.$nth);)+
                }
                arrays
            }
        }
    };
}

composite!(A V 0, B W 1);
composite!(A V 0, B W 1, C X 2);
composite!(A V 0, B W 1, C X 2, D Y 3);
