//! Claims the first row, the first ones, or the one with a key.

use super::Error;
use super::claimed::{Answered, Claimed, claims_of};
use super::limit;
use super::retry::load;
use super::sql::{Statement, Wanted};
use super::table::{Claim, KeyValue, MaybePer};
use crate::driver::Queries;
use crate::renewal::Sent;
use diesel::expression::{AppearsOnTable, Expression, NonAggregate};
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use diesel::sql_types::BoolOrNullableBool;

pub(crate) async fn take_first<T: Claim, D: Queries>(
    conn: &mut D,
    worker: &str,
    wanted: Wanted<'_>,
) -> Result<Option<Claimed<T>>, Error> {
    let rows = take_batch(conn, worker, 1, wanted).await?;
    Ok(rows.into_iter().next())
}

pub(crate) async fn take_batch<T: Claim, D: Queries>(
    conn: &mut D,
    worker: &str,
    limit: u32,
    wanted: Wanted<'_>,
) -> Result<Vec<Claimed<T>>, Error> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    if T::Per::COLUMN.is_some() {
        return limit::take(conn, worker, limit, wanted).await;
    }
    take(conn, &Statement::next(worker, limit, wanted)).await
}

pub(crate) async fn take_by_key<T: Claim, D: Queries>(
    conn: &mut D,
    worker: &str,
    key: impl KeyValue<T::Key>,
) -> Result<Option<Claimed<T>>, Error> {
    if T::Per::COLUMN.is_some() {
        return limit::take_by_key(conn, worker, key).await;
    }
    let rows = take(conn, &Statement::by_key(worker, key.bound())).await?;
    Ok(rows.into_iter().next())
}

/// A condition on the rows to claim: one of Diesel's expressions over the table's columns, as its `filter` takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a condition on the rows of this table",
    label = "expected what Diesel's `filter` takes",
    note = "write an expression over the table's own columns, such as `jobs::kind.eq_any(kinds)`"
)]
pub trait Condition<Table>: QueryFragment<Pg> + Send + Sync {}

#[diagnostic::do_not_recommend]
impl<Table, E> Condition<Table> for E
where
    E: AppearsOnTable<Table> + NonAggregate + QueryFragment<Pg> + Send + Sync,
    E: Expression<SqlType: BoolOrNullableBool>,
{
}

async fn take<T: Claim, K: QueryFragment<Pg> + Send + Sync, D: Queries>(
    conn: &mut D,
    statement: &Statement<'_, T, K>,
) -> Result<Vec<Claimed<T>>, Error> {
    loop {
        let sent = Sent::now();
        let rows: Vec<Answered<T>> = load(conn, statement).await?;
        let (claimed, has_failed) = claims_of(rows, sent)?;
        // Only rows whose last attempt was over: others may be behind them.
        if !claimed.is_empty() || !has_failed {
            return Ok(claimed);
        }
    }
}
