//! A worker: it claims a chunk that is not synced yet, syncs it, and claims the next.

use std::time::Duration;

use advisory_runtime::claim::{self, Claim, Claimed, Error};
use advisory_runtime::{Pool as _, PoolError};
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

/// A chunk, claimed as long as its worker renews the claim. In production write `ttl = "2m", renew
/// = "30s"`.
#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = sync_checkpoints)]
#[claim(key = (matrix_id, chunk_hash), ttl = "3s", renew = "500ms")]
struct Checkpoint {
    matrix_id: i64,
    chunk_hash: String,
}

/// Works until each chunk of the matrix is synced. If a worker dies, another one takes over its
/// chunk when the claim expires.
pub(crate) async fn run(url: &str, worker: &str, matrix_id: i64) -> Result<(), Error> {
    let manager = AsyncDieselConnectionManager::new(url);
    let pool = Pool::builder(manager).max_size(3).build();
    let pool = pool.map_err(PoolError::new)?;
    claim::Worker::<Checkpoint, _>::new(&pool, worker)
        .poll(Duration::from_millis(100))
        .filter(is_unsynced(matrix_id))
        .until(all_synced(&pool, matrix_id))
        .run(async |chunk| sync(&pool, &chunk).await)
        .await
}

/// Ends when no worker has anything left to do.
async fn all_synced(pool: &Pool<AsyncPgConnection>, matrix_id: i64) {
    while unsynced(pool, matrix_id).await.is_none_or(|left| left > 0) {
        #[expect(clippy::disallowed_methods, reason = "between two looks passes time")]
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn unsynced(pool: &Pool<AsyncPgConnection>, matrix_id: i64) -> Option<i64> {
    let chunks = sync_checkpoints::table.filter(is_unsynced(matrix_id));
    let mut conn = pool.connection().await.ok()?;
    chunks.count().get_result(&mut conn).await.ok()
}

#[diesel::dsl::auto_type]
fn is_unsynced(matrix_id: i64) -> _ {
    let is_of_the_matrix = sync_checkpoints::matrix_id.eq(matrix_id);
    is_of_the_matrix.and(sync_checkpoints::last_synced_at.is_null())
}

/// Syncs a chunk, which is renewed in the background meanwhile. If the claim is lost, this is
/// dropped.
async fn sync(
    pool: &Pool<AsyncPgConnection>,
    checkpoint: &Claimed<Checkpoint>,
) -> Result<(), Error> {
    let mut conn = pool.connection().await?;
    let cells = read(&mut conn, &checkpoint.chunk_hash).await?;
    conn.transaction(async |conn| write(conn, checkpoint, cells).await)
        .await
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
    claim::end(checkpoint).set(done).complete(conn).await
}
