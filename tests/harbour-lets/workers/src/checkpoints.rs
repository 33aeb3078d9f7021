//! Chunks of the price matrix, which are repeatedly compared with other firms' prices.

use advisory_runtime::claim::{self, Claim};
use diesel::prelude::*;
use lets_store::schema::sync_checkpoints;
use lets_store::{Pool, Result};

#[derive(Debug, Queryable, Selectable, Claim)]
#[diesel(table_name = sync_checkpoints)]
#[claim(key = (matrix_id, chunk_hash), ttl = "2m", renew = "30s")]
pub struct Checkpoint {
    pub matrix_id: i64,
    pub chunk_hash: String,
    pub row_count: Option<i64>,
}

/// Compares a chunk; `None` where another worker is at it. `count` is dropped when the claim is lost.
pub async fn sync(
    pool: &Pool,
    worker: &str,
    matrix: i64,
    chunk: &str,
    count: impl Future<Output = Result<i64>>,
) -> Result<Option<i64>> {
    let mut conn = pool.get().await?;
    let claimed = claim::by_key::<Checkpoint, _>(&mut conn, worker, (matrix, chunk)).await?;
    drop(conn);
    let Some(checkpoint) = claimed else {
        return Ok(None);
    };
    let rows = claim::renew_while(pool, &checkpoint, count).await??;
    let mut conn = pool.get().await?;
    let changes = (
        sync_checkpoints::row_count.eq(rows),
        sync_checkpoints::last_synced_at.eq(claim::now()),
    );
    claim::complete_with(&mut conn, &checkpoint, changes).await?;
    Ok(Some(rows))
}
