//! The server's clock as an expression.

use diesel::expression::{AppearsOnTable, AsExpression, SelectableExpression, ValidGrouping};
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{Nullable, Timestamp, Timestamptz};
use diesel::{Expression, NullableExpressionMethods, QueryResult};

/// Returns an expression for the server's clock, which claims use: `pg_catalog.clock_timestamp()`.
///
/// It fits columns of the types `Timestamptz` and `Timestamp`, nullable or not. For a `Timestamp`
/// it is in UTC, as claims write it. Diesel's `now` is the time at which the transaction began.
///
/// ```
#[doc = example_of_jobs!()]
/// use advisory_runtime::claim;
/// use diesel::prelude::*;
///
/// // The jobs with a claim that has not expired.
/// let running = jobs::table.filter(jobs::locked_until.gt(claim::now()));
/// # let _ = running.select(jobs::id);
/// ```
#[must_use]
pub const fn now() -> Now {
    Now
}

macro_rules! clock {
    ($(#[$about:meta])* $clock:ident, $sql_type:ty, $sql:literal) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, QueryId, ValidGrouping)]
        pub struct $clock;

        impl QueryFragment<Pg> for $clock {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
                out.push_sql($sql);
                Ok(())
            }
        }

        impl Expression for $clock {
            type SqlType = $sql_type;
        }

        impl<S> AppearsOnTable<S> for $clock {}

        impl<S> SelectableExpression<S> for $clock {}

        impl AsExpression<Nullable<$sql_type>> for Now {
            type Expression = diesel::dsl::Nullable<$clock>;

            fn as_expression(self) -> Self::Expression {
                $clock.nullable()
            }
        }
    };
}

clock! {
    /// The expression that [`now`] returns.
    Now, Timestamptz, "pg_catalog.clock_timestamp()"
}

clock! {
    /// [`now`] in UTC, for columns of the type `Timestamp`.
    NowInUtc, Timestamp, "pg_catalog.timezone('UTC',pg_catalog.clock_timestamp())"
}

impl AsExpression<Timestamp> for Now {
    type Expression = NowInUtc;

    fn as_expression(self) -> NowInUtc {
        NowInUtc
    }
}
