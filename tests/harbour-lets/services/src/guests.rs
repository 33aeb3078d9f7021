//! Merging two records of one person: stays and points.

use diesel_async::AsyncConnection;
use lets_bookings::guests;
use lets_domain::GuestId;
use lets_payments::loyalty;
use lets_store::{Pool, Result};

/// In one transaction; the second lock waits for the first's end where somebody earns points meanwhile.
pub async fn merge(pool: &Pool, kept: GuestId, gone: GuestId) -> Result<(usize, i64)> {
    let mut conn = pool.get().await?;
    conn.transaction(async |conn| {
        let stays = guests::merge(conn, kept, gone).await?;
        let points = loyalty::merge(conn, kept, gone).await?;
        Ok((stays, points))
    })
    .await
}
