//! The server's clock as an expression.

use diesel::QueryResult;
use diesel::expression::{
    AppearsOnTable, AsExpression, Expression, SelectableExpression, ValidGrouping, is_aggregate,
};
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{Nullable, Timestamptz};

/// The server's clock, as claims read it: `pg_catalog.clock_timestamp()`, for columns that are nullable or not.
///
/// Diesel's `now` is the time at which the transaction began.
#[must_use]
pub const fn now() -> Now {
    Now
}

/// The expression that [`now`] returns.
#[derive(Clone, Copy, Debug, QueryId)]
pub struct Now;

impl QueryFragment<Pg> for Now {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("pg_catalog.clock_timestamp()");
        Ok(())
    }
}

impl Expression for Now {
    type SqlType = Timestamptz;
}

impl<S> AppearsOnTable<S> for Now {}

impl<S> SelectableExpression<S> for Now {}

impl ValidGrouping<()> for Now {
    type IsAggregate = is_aggregate::Never;
}

impl AsExpression<Nullable<Timestamptz>> for Now {
    type Expression = diesel::dsl::Nullable<Self>;

    fn as_expression(self) -> Self::Expression {
        diesel::NullableExpressionMethods::nullable(self)
    }
}
