//! A fencing token as a value of a `BIGINT` column.

use super::FencingToken;
use diesel::expression::AsExpression;
use diesel::pg::Pg;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::{BigInt, Nullable};

impl ToSql<BigInt, Pg> for FencingToken {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        ToSql::<BigInt, Pg>::to_sql(&self.0, out)
    }
}

impl ToSql<Nullable<BigInt>, Pg> for FencingToken {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        ToSql::<BigInt, Pg>::to_sql(self, out)
    }
}

impl AsExpression<BigInt> for FencingToken {
    type Expression = <i64 as AsExpression<BigInt>>::Expression;

    fn as_expression(self) -> Self::Expression {
        AsExpression::<BigInt>::as_expression(self.0)
    }
}

impl AsExpression<Nullable<BigInt>> for FencingToken {
    type Expression = <i64 as AsExpression<Nullable<BigInt>>>::Expression;

    fn as_expression(self) -> Self::Expression {
        AsExpression::<Nullable<BigInt>>::as_expression(self.0)
    }
}
