//! Requests that were answered once get the same answer again.

use advisory_runtime::advisory_lock;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_store::schema::idempotency_keys;
use lets_store::{Pool, Result};

/// Answers a request once; `answer` is not called where there is an answer.
#[advisory_lock(key = "request:<key>", wait = "10s", component = "IdempotencyService")]
pub async fn once<F>(conn: &mut AsyncPgConnection, key: &str, answer: F) -> Result<String>
where
    F: AsyncFnOnce(&mut AsyncPgConnection) -> Result<String>,
{
    let found = idempotency_keys::table
        .find(key)
        .select(idempotency_keys::answer);
    if let Some(answer) = found.first(conn).await.optional()? {
        return Ok(answer);
    }
    let answer = answer(conn).await?;
    let in_a_day = diesel::dsl::sql::<diesel::sql_types::Timestamptz>("now() + interval '1 day'");
    diesel::insert_into(idempotency_keys::table)
        .values((
            idempotency_keys::key.eq(key),
            idempotency_keys::answer.eq(&answer),
            idempotency_keys::expires_at.eq(in_a_day),
        ))
        .execute(conn)
        .await?;
    Ok(answer)
}

/// Cleanup scheduler coordination
#[advisory_lock(
    key = 42424242,
    name = "idempotency-cleanup",
    scope = "session",
    wait = "never",
    on_held = Ok(None),
    component = "IdempotencyService",
    conn = pool.get().await?
)]
pub async fn clean_up(pool: &Pool) -> Result<Option<usize>> {
    let old = idempotency_keys::table.filter(idempotency_keys::expires_at.lt(diesel::dsl::now));
    Ok(Some(diesel::delete(old).execute(conn).await?))
}
