//! Letters that are sent once, in batches, from a table whose columns have other names than the default ones.

use advisory_runtime::claim::{self, Claim};
use diesel::prelude::*;
use lets_store::schema::outbox;
use lets_store::{Pool, Result};

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = outbox)]
#[claim(
    order = "id",
    ttl = "30s",
    locked_until = taken_until,
    locked_by = taken_by,
    completed_at = sent_at,
    failed_at = "none",
    error_message = "none"
)]
pub struct Letter {
    pub id: i64,
    pub address: String,
    pub subject: String,
}

/// Sends what is waiting; a letter that could not be sent is given back.
pub async fn send(pool: &Pool, worker: &str, send: impl Fn(&Letter) -> bool) -> Result<usize> {
    let mut conn = pool.get().await?;
    let mut sent = 0;
    for letter in claim::next_batch::<Letter, _>(&mut conn, worker, 20).await? {
        if send(&letter) {
            claim::complete(&mut conn, &letter).await?;
            sent += 1;
        } else {
            claim::release(&mut conn, &letter).await?;
        }
    }
    Ok(sent)
}
