//! A worker: it claims a chunk that is not synced yet, syncs it, and takes the next.

use std::time::Duration;

use advisory_runtime::claim::{self, Claim, Claimed, Error};
use advisory_runtime::{Pool as _, PoolError};
use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};

diesel::table! {
    sync_checkpoints (matrix_id, chunk_hash) {
        matrix_id -> BigInt,
        chunk_hash -> Text,
        row_count -> Nullable<BigInt>,
        last_synced_at -> Nullable<Timestamptz>,
        locked_until -> Nullable<Timestamptz>,
        locked_by -> Nullable<Text>,
    }
}

diesel::table! {
    source (chunk_hash, cell) {
        chunk_hash -> Text,
        cell -> BigInt,
    }
}

diesel::table! {
    target (chunk_hash, cell) {
        chunk_hash -> Text,
        cell -> BigInt,
    }
}

/// A chunk, claimed as long as its worker renews the claim. In production write `ttl = "2m", renew = "30s"`.
#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = sync_checkpoints)]
#[claim(key = (matrix_id, chunk_hash), ttl = "3s", renew = "500ms")]
struct Checkpoint {
    matrix_id: i64,
    chunk_hash: String,
    last_synced_at: Option<DateTime<Utc>>,
}

/// Works until each chunk of the matrix is synced.
pub(crate) async fn run(url: &str, worker: &str, matrix_id: i64) -> Result<(), Error> {
    let manager = AsyncDieselConnectionManager::new(url);
    let pool = Pool::builder(manager).max_size(2).build();
    let pool = pool.map_err(PoolError::new)?;
    loop {
        let chunks = unsynced(&pool, matrix_id).await?;
        if chunks.is_empty() {
            return Ok(());
        }
        for chunk in chunks {
            match sync(&pool, worker, matrix_id, &chunk).await {
                // It was stopped for too long: another worker syncs the chunk.
                Err(Error::Lost { .. }) => {}
                synced => synced?,
            }
        }
        // Other workers have claimed the rest. If one of them has died, its claim expires.
        #[expect(clippy::disallowed_methods, reason = "between two looks passes time")]
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn unsynced(pool: &Pool<AsyncPgConnection>, matrix_id: i64) -> Result<Vec<String>, Error> {
    let chunks = sync_checkpoints::table
        .filter(sync_checkpoints::matrix_id.eq(matrix_id))
        .filter(sync_checkpoints::last_synced_at.is_null())
        .select(sync_checkpoints::chunk_hash);
    Ok(chunks.load(&mut pool.connection().await?).await?)
}

/// Syncs a chunk, unless another worker does or has done so.
async fn sync(
    pool: &Pool<AsyncPgConnection>,
    worker: &str,
    matrix_id: i64,
    chunk_hash: &str,
) -> Result<(), Error> {
    let mut conn = pool.connection().await?;
    let key = (matrix_id, chunk_hash);
    let claimed = claim::by_key::<Checkpoint, _>(&mut conn, worker, key).await?;
    let Some(checkpoint) = claimed else {
        return Ok(());
    };
    // A checkpoint can be claimed again when it is done: another worker may have synced it since it was read.
    if checkpoint.last_synced_at.is_some() {
        return claim::release(&mut conn, &checkpoint).await;
    }
    // Renewed in the background while this runs, and dropped if the claim is lost.
    claim::renew_while(pool, &checkpoint, async {
        let cells = read(&mut conn, chunk_hash).await?;
        conn.transaction(async |conn| write(conn, &checkpoint, cells).await)
            .await
    })
    .await?
}

async fn read(conn: &mut AsyncPgConnection, chunk_hash: &str) -> QueryResult<Vec<i64>> {
    let chunk = source::table.filter(source::chunk_hash.eq(chunk_hash));
    chunk.select(source::cell).load(conn).await
}

/// Writes the cells and completes the checkpoint, or neither if the claim was lost.
async fn write(
    conn: &mut AsyncPgConnection,
    checkpoint: &Claimed<Checkpoint>,
    cells: Vec<i64>,
) -> Result<(), Error> {
    let chunk_hash = &checkpoint.chunk_hash;
    let rows: Vec<_> = cells
        .into_iter()
        .map(|cell| (target::chunk_hash.eq(chunk_hash), target::cell.eq(cell)))
        .collect();
    let inserted = diesel::insert_into(target::table)
        .values(rows)
        .execute(conn)
        .await?;
    let done = (
        sync_checkpoints::row_count.eq(i64::try_from(inserted).ok()),
        sync_checkpoints::last_synced_at.eq(claim::now()),
    );
    claim::complete_with(conn, checkpoint, done).await
}
