//! Ends rows that have no attempt left, many at a time, so that they do not stay first in the
//! order.

use super::Error;
use super::conflicts::change;
use super::end::send::is_of_row;
use super::sql::{Form, SpentWay, Statement, Value, Wanted};
use super::table::Claim;
use crate::driver::{Queries, depth};
use diesel::sql_types::Untyped;

/// The number of rows that one statement reads.
const MANY: u32 = 1_000;

/// Fails these rows, and others among the first ones that have no attempt left. Returns `true` if
/// any was changed: another session may have locked them.
///
/// If a row refuses its end, for example because the text does not fit its column, the statement is
/// sent without the text, and then for one row alone. A row that cannot fail at all is claimed, so
/// that it does not block the queue.
pub(super) async fn fail_spent<T: Claim, D: Queries>(
    conn: &mut D,
    worker: &str,
    met: &[T],
    wanted: Wanted<'_>,
) -> Result<bool, Error> {
    let is_outside = matches!(depth(conn), Ok(None));
    let mut ways = [
        (MANY, SpentWay::Fails),
        (MANY, SpentWay::FailsWithoutText),
        (1, SpentWay::Fails),
        (1, SpentWay::FailsWithoutText),
        (1, SpentWay::Parks),
    ]
    .into_iter()
    .peekable();
    while let Some((limit, way)) = ways.next() {
        let form = Form::Spent {
            limit,
            way,
            has_position: wanted.position.is_some(),
        };
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let statement = Statement::<Untyped>::of::<T>(form)
            .keys(met.iter().take(most))
            .claim::<T>(worker, true, wanted)
            .with("failed", Value::Changes(Box::new(T::failed())));
        match change(conn, &statement).await {
            Err(Error::Database(error))
                if is_outside && is_of_row(&error) && ways.peek().is_some() => {}
            ended => return ended,
        }
    }
    Ok(false)
}
