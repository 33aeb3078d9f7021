//! tokio-postgres by hand, with prepared statements: step by step, in as many round trips as ours,
//! and in a single one.

use crate::side::{Open, Operation};
use tokio_postgres::{Client, Error, NoTls, Statement};

pub(crate) async fn client(url: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // Its errors also reach the calls of its client.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

struct Prepared {
    client: Client,
    lock: Statement,
    one: Statement,
    key: i64,
}

impl Prepared {
    async fn open(url: &str, key: i64) -> Result<Self, Error> {
        let client = client(url).await?;
        let lock = client.prepare("SELECT pg_advisory_xact_lock($1)").await?;
        let one = client.prepare("SELECT 1").await?;
        Ok(Self {
            client,
            lock,
            one,
            key,
        })
    }

    /// The lock and then the transaction in one message, as in ours.
    fn lock_and_begin(&self) -> String {
        format!("SELECT pg_advisory_xact_lock({}); BEGIN", self.key)
    }
}

macro_rules! side {
    ($(#[$docs:meta])* $name:ident, |$prepared:ident| $operation:expr) => {
        $(#[$docs])*
        pub(crate) struct $name(Prepared);

        impl Open for $name {
            async fn open(url: &str, key: i64) -> Self {
                Self(Prepared::open(url, key).await.expect("a connection"))
            }
        }

        impl Operation for $name {
            async fn operate(&mut self) {
                let $prepared = &self.0;
                let done: Result<(), Error> = $operation.await;
                done.expect("the lock");
            }
        }
    };
}

side!(
    /// BEGIN, lock, query, COMMIT: four round trips.
    Sequential,
    |prepared| async {
        let client = &prepared.client;
        client.batch_execute("BEGIN").await?;
        client.query(&prepared.lock, &[&prepared.key]).await?;
        client.query_one(&prepared.one, &[]).await?;
        client.batch_execute("COMMIT").await
    }
);

side!(
    /// Lock and BEGIN, query, COMMIT: three, as in ours.
    Three,
    |prepared| async {
        let client = &prepared.client;
        client.batch_execute(&prepared.lock_and_begin()).await?;
        client.query_one(&prepared.one, &[]).await?;
        client.batch_execute("COMMIT").await
    }
);

side!(
    /// Everything in one message: the lower bound. A program whose next step depends on the
    /// previous one cannot do this.
    Pipelined,
    |prepared| async {
        let client = &prepared.client;
        let lock = prepared.lock_and_begin();
        let (locked, one, committed) = tokio::join!(
            client.batch_execute(&lock),
            client.query_one(&prepared.one, &[]),
            client.batch_execute("COMMIT"),
        );
        locked?;
        one?;
        committed
    }
);
