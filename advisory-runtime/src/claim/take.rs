//! Claims the first rows, or the one with a key.

use super::Error;
use super::claimed::{Answer, Answered, Claimed};
use super::conflicts::load;
use super::key::KeyValue as _;
use super::limit;
use super::optional_column::MaybePer;
use super::spent::fail_spent;
use super::sql::{Form, Statement, Value, Wanted};
use super::table::Claim;
use crate::driver::Queries;
use crate::rows::Moment;
use diesel::expression::{AppearsOnTable, Expression, NonAggregate};
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use diesel::sql_types::{BoolOrNullableBool, Text, Untyped};

pub(crate) async fn take_first<T: Claim, D: Queries>(
    conn: &mut D,
    worker: &str,
    wanted: Wanted<'_>,
) -> Result<Option<Claimed<T>>, Error> {
    let claimed = if wanted.key.is_some() || T::Per::COLUMN.is_some() {
        take(conn, worker, 1, wanted).await?.0
    } else if wanted.conditions.is_empty() && wanted.changes.is_empty() {
        let statement = Statement::<Untyped, T, 1>::of::<T>(Form::First);
        repeat::<true, T, _, _, _>(conn, worker, statement, wanted).await?
    } else {
        let statement = Statement::<Untyped>::of::<T>(Form::First);
        repeat::<true, T, _, _, _>(conn, worker, statement, wanted).await?
    };
    Ok(claimed.into_iter().next())
}

/// Claims at most `limit` rows. Returns with them `true` if another claim may find rows at once.
pub(super) async fn take<T: Claim, D: Queries>(
    conn: &mut D,
    worker: &str,
    limit: u32,
    wanted: Wanted<'_>,
) -> Result<(Vec<Claimed<T>>, bool), Error> {
    let mut has_more = false;
    let claimed = match wanted.key {
        _ if limit == 0 => Vec::new(),
        Some(key) if T::Per::COLUMN.is_some() => {
            limit::take_by_key(conn, worker, key, wanted).await?
        }
        Some(key) => {
            let statement = Statement::<Untyped>::of::<T>(Form::ByKey).key(key);
            repeat::<true, T, _, _, _>(conn, worker, statement, wanted).await?
        }
        None if T::Per::COLUMN.is_some() => {
            let claimed;
            (claimed, has_more) = limit::take(conn, worker, limit, wanted).await?;
            claimed
        }
        None => {
            let form = Form::next(limit, wanted);
            let statement = Statement::<Untyped>::of::<T>(form);
            let statement = statement.with("limit", Value::Number(limit.into()));
            repeat::<false, T, _, _, _>(conn, worker, statement, wanted).await?
        }
    };
    let is_full = u32::try_from(claimed.len()).is_ok_and(|count| count >= limit);
    Ok((claimed, has_more || is_full))
}

/// A condition on the rows to claim: one of Diesel's expressions over the table's columns, as its
/// `filter` takes.
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

/// Returns the position of a row in the order of the claims; `None` if the row was deleted.
pub(super) async fn position_of<T: Claim, D: Queries>(
    conn: &mut D,
    job: &Claimed<T>,
) -> Result<Option<String>, Error> {
    let key = (**job).key().bound();
    let statement = Statement::<Text>::of::<T>(Form::Position).key(key);
    let mut positions: Vec<String> = load(conn, &statement).await?;
    Ok(positions.pop())
}

async fn repeat<'a, const IS_ONE: bool, T: Claim, Id: 'static, const N: u8, D: Queries>(
    conn: &mut D,
    worker: &str,
    statement: Statement<'a, Untyped, Id, N>,
    wanted: Wanted<'a>,
) -> Result<Vec<Claimed<T>>, Error> {
    let statement = statement.claim::<T>(worker, IS_ONE, wanted);
    loop {
        let before = Moment::now();
        let rows: Vec<Answered<T, IS_ONE>> = load(conn, &statement).await?;
        let Answer { claimed, spent } = Answer::of(rows, before)?;
        let Some(spent) = spent else {
            return Ok(claimed);
        };
        // Rows that have no attempt left may precede rows that can be claimed.
        let has_ended = fail_spent(conn, worker, &spent, wanted).await?;
        if !claimed.is_empty() || !has_ended || wanted.key.is_some() {
            return Ok(claimed);
        }
    }
}
