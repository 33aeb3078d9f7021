//! distributed-lock-postgres: a session-level lock on a connection of its own pool. It does not
//! give its connection to the work, which uses a diesel-async connection here.

use crate::rivals::diesel_async::{connect, one};
use crate::side::{Open, Operation};
use diesel_async::AsyncPgConnection;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_postgres::PostgresLockProvider;

pub(crate) struct Lock {
    lock: <PostgresLockProvider as LockProvider>::Lock,
    conn: AsyncPgConnection,
}

impl Open for Lock {
    async fn open(url: &str, key: i64) -> Self {
        let provider = PostgresLockProvider::new(url).await.expect("a pool");
        Self {
            lock: provider.create_lock(&format!("bench:{key}")),
            conn: connect(url).await,
        }
    }
}

impl Operation for Lock {
    async fn operate(&mut self) {
        let held = self.lock.acquire(None).await.expect("the lock");
        one(&mut self.conn).await.expect("the query");
        held.release().await.expect("it was held");
    }
}
