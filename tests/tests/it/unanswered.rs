//! A session that did not answer a renewal in time is ended, so no later statement on it is
//! cancelled, whatever its pool does.

use crate::sync_job::{brief, database};
use advisory_runtime::claim;
use advisory_tests::{assert_matches, pid_of};
use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::future::pending;
use std::time::Duration;

/// A manager that considers every connection good.
struct Trusting(String);

impl bb8::ManageConnection for Trusting {
    type Connection = AsyncPgConnection;
    type Error = ConnectionError;

    async fn connect(&self) -> Result<AsyncPgConnection, ConnectionError> {
        AsyncPgConnection::establish(&self.0).await
    }

    async fn is_valid(&self, _: &mut AsyncPgConnection) -> Result<(), ConnectionError> {
        Ok(())
    }

    fn has_broken(&self, _: &mut AsyncPgConnection) -> bool {
        false
    }
}

#[tokio::test]
async fn an_unanswered_session_ends_even_if_its_pool_keeps_it() {
    let db = database(1).await;
    let pool = bb8::Pool::builder().max_size(1);
    let pool: bb8::Pool<Trusting> = pool.build(Trusting(db.url().to_owned())).await.unwrap();
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    let job = brief(&mut conn).await;
    let pid = pid_of(&mut pool.get().await.unwrap()).await;
    other
        .batch_execute("BEGIN; LOCK TABLE sync_jobs")
        .await
        .unwrap();
    let kept = claim::renew_while(&pool, &job, pending::<()>()).await;
    assert_matches!(kept, Err(claim::Error::Lost { .. }));
    let session = format!("SELECT query FROM pg_stat_activity WHERE pid = {pid}");
    db.until_empty(Duration::from_secs(15), "the session's end", &session)
        .await;
    drop(other);
}
