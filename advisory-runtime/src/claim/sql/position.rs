//! The position of a row in the order of the claims, and the condition on the rows from there on.
//!
//! Rows that were ended stay in the index until a vacuum, and every claim passes over them. There
//! are many if a long transaction prevents the vacuum. A worker therefore begins where its last
//! claim ended.

use super::form::{self, Form, Text};
use super::row_type::RowType;
use crate::claim::table::Claim;
use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::Text as SqlText;
use std::sync::Arc;

/// The condition that a row does not precede a position.
#[derive(Clone, Debug)]
pub(in crate::claim) struct FromPosition {
    text: Arc<Text>,
    position: String,
}

impl FromPosition {
    /// Returns `true` if rows in this order can be compared with a position.
    pub(in crate::claim) fn is_possible<T: Claim>() -> bool {
        let row = RowType::of::<T>();
        row.order.iter().all(|[_, direction]| direction.is_empty())
    }

    pub(in crate::claim) fn new<T: Claim>(position: String) -> Self {
        let text = form::text::<T>(Form::FromPosition);
        Self { text, position }
    }
}

impl QueryFragment<Pg> for FromPosition {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(self.text.first());
        for (_, sql) in self.text.values() {
            out.push_bind_param::<SqlText, _>(&self.position)?;
            out.push_sql(sql);
        }
        Ok(())
    }
}

/// Returns the columns of the order, each written by `of`.
pub(super) fn names(row: &RowType, of: impl Fn(&str) -> String) -> String {
    let columns = row.order_by(of).into_iter();
    let columns: Vec<_> = columns.map(|[column, _]| column).collect();
    columns.join(", ")
}
