//! Jobs by hand with columns for the holder: `UPDATE … FOR UPDATE SKIP LOCKED … RETURNING`, and
//! another `UPDATE`. Prepared, on tokio-postgres.

use crate::rivals::open_transaction::set_up;
use crate::rivals::tokio_postgres::client;
use crate::side::{Open, Operation};
use tokio_postgres::{Client, Error, Statement};

/// A claim that expires, in the same table.
pub(crate) struct Columns {
    client: Client,
    claim: Statement,
    complete: Statement,
}

const CLAIM: &str = "UPDATE hand_jobs SET locked_until = now() + interval '5 minutes', locked_by = $1, attempts = attempts + 1 \
     WHERE id = (SELECT id FROM hand_jobs WHERE completed_at IS NULL AND run_at <= now() \
     AND (locked_until IS NULL OR locked_until <= now()) ORDER BY run_at, id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id";
const COMPLETE: &str = "UPDATE hand_jobs SET completed_at = now(), locked_until = NULL, locked_by = NULL \
     WHERE id = $1 AND locked_by = $2";

impl Columns {
    pub(crate) async fn new(client: Client) -> Result<Self, Error> {
        let claim = client.prepare(CLAIM).await?;
        let complete = client.prepare(COMPLETE).await?;
        Ok(Self {
            client,
            claim,
            complete,
        })
    }

    async fn once(&self) -> Result<u64, Error> {
        let job = self.client.query_one(&self.claim, &[&"bench"]).await?;
        let id: i64 = job.get(0);
        self.client.execute(&self.complete, &[&id, &"bench"]).await
    }
}

impl Operation for Columns {
    async fn operate(&mut self) {
        assert_eq!(self.once().await.expect("a job"), 1, "it is held");
    }
}

impl Open for Columns {
    async fn open(url: &str, _: i64) -> Self {
        let client = client(url).await.expect("a connection");
        for sql in set_up() {
            client.batch_execute(&sql).await.expect("the table");
        }
        Self::new(client).await.expect("the table")
    }
}
