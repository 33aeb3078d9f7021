//! The monthly earnings of an owner.

use advisory_runtime::advisory_lock;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::locks::StatementLock;
use lets_domain::{Cents, OwnerId};
use lets_store::schema::statements;
use lets_store::{Refusal, Result};

/// Adds to a month that is not paid out.
#[advisory_lock(key = StatementLock { owner, month: month.to_owned() }, wait = "5s")]
pub async fn add(
    conn: &mut AsyncPgConnection,
    owner: OwnerId,
    month: &str,
    amount: Cents,
) -> Result<Cents> {
    let found = statements::table
        .find((owner.0, month))
        .select((statements::total, statements::paid_out));
    let (total, paid_out) = found
        .first::<(i64, bool)>(conn)
        .await
        .optional()?
        .unwrap_or((0, false));
    if paid_out {
        return Err(Refusal::WrongState.into());
    }
    let total = total + amount.0;
    diesel::insert_into(statements::table)
        .values((
            statements::owner_id.eq(owner.0),
            statements::month.eq(month),
            statements::total.eq(total),
        ))
        .on_conflict((statements::owner_id, statements::month))
        .do_update()
        .set(statements::total.eq(total))
        .execute(conn)
        .await?;
    Ok(Cents(total))
}

/// Closes a month: what it comes to.
#[advisory_lock(key = StatementLock { owner, month: month.to_owned() }, wait = "5s")]
pub async fn close(conn: &mut AsyncPgConnection, owner: OwnerId, month: &str) -> Result<Cents> {
    let open = statements::table
        .find((owner.0, month))
        .filter(statements::paid_out.eq(false));
    let total = diesel::update(open)
        .set(statements::paid_out.eq(true))
        .returning(statements::total)
        .get_result::<i64>(conn)
        .await
        .optional()?;
    Ok(Cents(total.ok_or(Refusal::AlreadyDone)?))
}
