//! sqlx: its transaction with the lock as a query, and its own session-level lock.

use crate::side::{Open, Operation};
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockKey};
use sqlx::{Connection, Error, PgConnection};

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("a connection")
}

pub(crate) struct Transaction {
    conn: PgConnection,
    key: i64,
}

impl Open for Transaction {
    async fn open(url: &str, key: i64) -> Self {
        let conn = connect(url).await;
        Self { conn, key }
    }
}

impl Operation for Transaction {
    async fn operate(&mut self) {
        let done = async {
            let mut tx = self.conn.begin().await?;
            sqlx::query("SELECT pg_advisory_xact_lock($1)")
                .bind(self.key)
                .execute(&mut *tx)
                .await?;
            let one: i32 = sqlx::query_scalar("SELECT 1").fetch_one(&mut *tx).await?;
            tx.commit().await?;
            Ok::<_, Error>(one)
        };
        done.await.expect("the lock");
    }
}

pub(crate) struct Lock {
    conn: PgConnection,
    lock: PgAdvisoryLock,
}

impl Open for Lock {
    async fn open(url: &str, key: i64) -> Self {
        Self {
            conn: connect(url).await,
            lock: PgAdvisoryLock::with_key(PgAdvisoryLockKey::BigInt(key)),
        }
    }
}

impl Operation for Lock {
    async fn operate(&mut self) {
        let done = async {
            let mut held = self.lock.acquire(&mut self.conn).await?;
            let one: i32 = sqlx::query_scalar("SELECT 1")
                .fetch_one(held.as_mut())
                .await?;
            held.release_now().await?;
            Ok::<_, Error>(one)
        };
        done.await.expect("the lock");
    }
}
