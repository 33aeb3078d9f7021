//! The server's clock as an expression.

use diesel::QueryResult;
use diesel::expression::{
    AppearsOnTable, AsExpression, Expression, SelectableExpression, ValidGrouping, is_aggregate,
};
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{Nullable, Timestamp, Timestamptz};

/// The server's clock, as claims read it: `pg_catalog.clock_timestamp()`, for columns that are
/// nullable or not. In a column of the type `Timestamp` it is written in UTC, as claims do.
///
/// Diesel's `now` is the time at which the transaction began.
///
/// # Examples
///
/// ```
#[doc = example_of_jobs!()]
/// use advisory_runtime::claim;
/// use diesel::prelude::*;
///
/// // The jobs whose claim has not expired.
/// let running = jobs::table.filter(jobs::locked_until.gt(claim::now()));
/// # let _ = running.select(jobs::id);
/// ```
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

/// [`now`] in UTC, for columns of the type `Timestamp`.
#[derive(Clone, Copy, Debug, QueryId)]
pub struct NowInUtc;

impl QueryFragment<Pg> for NowInUtc {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("pg_catalog.timezone('UTC',pg_catalog.clock_timestamp())");
        Ok(())
    }
}

impl Expression for NowInUtc {
    type SqlType = Timestamp;
}

impl<S> AppearsOnTable<S> for NowInUtc {}

impl<S> SelectableExpression<S> for NowInUtc {}

impl ValidGrouping<()> for NowInUtc {
    type IsAggregate = is_aggregate::Never;
}

impl AsExpression<Timestamp> for Now {
    type Expression = NowInUtc;

    fn as_expression(self) -> NowInUtc {
        NowInUtc
    }
}

impl AsExpression<Nullable<Timestamp>> for Now {
    type Expression = diesel::dsl::Nullable<NowInUtc>;

    fn as_expression(self) -> Self::Expression {
        diesel::NullableExpressionMethods::nullable(NowInUtc)
    }
}
