//! The table of leases, and what tests do with its rows.

use crate::Database;
use advisory_runtime::Wait;
use advisory_runtime::lease::{
    Error, Event, FencingToken, Lease, LeaseGuard, Leases, Request, Store, Table,
};
use diesel::dsl::sql;
use diesel::sql_types::BigInt;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, deadpool};
use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncPgConnection, RunQueryDsl, TransactionManager,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{interval, timeout};

/// The last number before the tokens of a server that was never promoted.
pub const FIRST: i64 = 1 << 40;

/// How long a state may take on a busy machine.
pub const GENEROUS: Duration = Duration::from_secs(60);

/// The time between two renewals, where a test waits for them.
pub const BRIEF: Duration = Duration::from_millis(20);

/// Longer than any test.
pub const HOUR: Duration = Duration::from_secs(3600);

/// A pool of these tests.
pub type Pool = deadpool::Pool<AsyncPgConnection>;

/// A database with the table, and with its sequence at the server's timeline, as after the first
/// grant.
pub async fn database() -> Database {
    let db = Database::create().await;
    Table::new().set_up(&mut db.connect().await).await.unwrap();
    db.run(&format!("SELECT setval('advisory_lease_token', {FIRST})"))
        .await;
    db
}

/// Leases on at most so many connections to this address.
#[must_use]
pub fn leases_at(url: &str, size: usize) -> Leases<Pool> {
    Leases::new(Database::deadpool_at(url, size))
}

/// A pool of one connection, which is in a transaction, like every further one that is opened.
#[must_use]
pub fn in_transaction(url: &str, is_test: bool) -> Pool {
    let mut config = ManagerConfig::default();
    config.custom_setup = Box::new(move |url| {
        Box::pin(async move {
            let mut conn = AsyncPgConnection::establish(url).await?;
            let begun = if is_test {
                conn.begin_test_transaction().await
            } else {
                AnsiTransactionManager::begin_transaction(&mut conn).await
            };
            begun.map_err(diesel::ConnectionError::CouldntSetupConfiguration)?;
            Ok(conn)
        })
    });
    let manager = AsyncDieselConnectionManager::new_with_config(url, config);
    Pool::builder(manager).max_size(1).build().unwrap()
}

/// A request for a key that does not wait.
pub fn key(text: &str) -> Request {
    Request::text(text).wait(Wait::Never)
}

/// A grant that ends at once: it is released or, if the request has a `keep`, done.
pub async fn once(leases: &Leases<impl Store>, request: Request) -> Result<FencingToken, Error> {
    let held = leases.acquire(request).await?;
    let token = held.lease().token();
    held.finish(Ok(token)).await
}

/// Ends a lease whose body has succeeded.
pub async fn finish(held: LeaseGuard) -> Result<(), Error> {
    held.finish(Ok(())).await
}

/// Checks the lease in a transaction.
pub async fn fence(conn: &mut AsyncPgConnection, lease: &Lease) -> Result<(), Error> {
    crate::bookings::in_transaction(conn, async |conn| lease.fence(conn).await).await
}

/// Grants a lease that nothing renews or ends, like one of a dead process.
pub async fn orphan(url: &str, table: &Table, request: Request) -> Lease {
    let leases = leases_at(url, 1).table(table.clone());
    let held = leases.acquire(request.clone()).await.unwrap();
    let mut conn = AsyncPgConnection::establish(url).await.unwrap();
    let lease = table.take_over(&mut conn, request, held.lease().token());
    let lease = lease.await.unwrap().unwrap();
    // The key belongs to another grant now.
    held.finish(Ok::<_, Error>(())).await.unwrap_err();
    lease
}

/// Makes every lease expire.
pub async fn expire(db: &Database) {
    db.run("UPDATE advisory_lease SET expires_at = pg_catalog.clock_timestamp()")
        .await;
}

/// Waits until every lease has expired or was released.
pub async fn until_free(db: &Database) {
    let held = "SELECT token FROM advisory_lease WHERE expires_at > clock_timestamp()";
    db.until_none("the end of every lease", held).await;
}

/// Waits until another session of this database has been refused a lease: a try is prepared, sent,
/// and sent again.
pub async fn until_refused(conn: &mut AsyncPgConnection) {
    let started = "SELECT (extract(epoch FROM query_start) * 1000000)::int8 FROM pg_stat_activity \
                   WHERE query LIKE 'WITH free AS%' AND pid <> pg_backend_pid() AND datname = current_database()";
    let refused = async {
        let mut tries = BTreeSet::new();
        let mut pause = interval(Duration::from_millis(2));
        while tries.len() < 4 {
            let seen: Vec<i64> = sql::<BigInt>(started).load(conn).await.unwrap();
            tries.extend(seen);
            pause.tick().await;
        }
    };
    timeout(GENEROUS, refused).await.expect("a refusal");
}

/// Waits until the lease has been renewed.
pub async fn until_renewed(lease: &Lease) {
    let renewed = async {
        let mut left = lease.remaining();
        let mut pause = interval(Duration::from_millis(2));
        while lease.remaining() <= left {
            left = lease.remaining();
            pause.tick().await;
        }
    };
    timeout(GENEROUS, renewed).await.expect("a renewal");
}

/// Waits until a statement with this text has been answered that began after now.
pub async fn until_answered(db: &Database, text: &str) {
    let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8";
    let since = db.count(now).await;
    let answered = format!(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() \
         AND query LIKE '%{text}%' AND pid <> pg_backend_pid() AND state = 'idle' \
         AND (extract(epoch FROM query_start) * 1000000)::int8 > {since}"
    );
    db.until_some(text, &answered).await;
}

/// Waits until this process knows that the lease is lost, released or done.
pub async fn until_over(lease: &Lease) {
    timeout(GENEROUS, lease.lost()).await.expect("the end");
}

/// The names of the events that leases with this observer have reported, in their order.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    /// For `observe`.
    pub fn observer(&self) -> impl Fn(Event<'_>) + Send + Sync + 'static {
        let Self(events) = self.clone();
        move |event| {
            let name = format!("{event:?}");
            let name = name.split(['(', ' ']).next().unwrap().to_owned();
            events.lock().unwrap().push(name);
        }
    }

    /// The events so far.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until one has this name.
    pub async fn until(&self, name: &str) {
        self.until_more(name, 0).await;
    }

    /// Waits until more than so many have this name.
    pub async fn until_more(&self, name: &str, seen: usize) {
        let reported = async {
            let mut pause = interval(Duration::from_millis(2));
            while self.count(name) <= seen {
                pause.tick().await;
            }
        };
        timeout(GENEROUS, reported).await.expect(name);
    }

    /// How many have this name.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        self.names().iter().filter(|event| *event == name).count()
    }
}

/// A role of its own that may use leases in a table.
#[derive(Debug)]
pub struct Role {
    /// Its name, which belongs to the whole server.
    pub name: String,
    /// Connects as this role.
    pub url: String,
}

impl Role {
    /// Creates a role with these rights on the table's sequence.
    pub async fn create(db: &Database, name: &str, table: &str, sequence: &str) -> Self {
        let name = format!("lease_{name}_{}", std::process::id());
        db.run(&format!(
            "CREATE ROLE {name} LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {name}; \
             GRANT {sequence} ON SEQUENCE {table}_token TO {name}"
        ))
        .await;
        let (scheme, address) = db.url().split_once("://").unwrap();
        let address = address.rsplit_once('@').map_or(address, |(_, host)| host);
        let url = format!("{scheme}://{name}@{address}");
        Self { name, url }
    }

    /// Drops it, and its rights.
    pub async fn drop(self, db: &Database) {
        let name = self.name;
        db.run(&format!("DROP OWNED BY {name}; DROP ROLE {name}"))
            .await;
    }
}

/// The least remaining time with which a body may run: the safety margin is a tenth of the ttl.
pub const NEAR: Duration = Duration::from_millis(50);

/// Runs like a body, and asserts repeatedly that the lease is held, on this process's clock and on
/// the server's.
pub async fn run_while_held(db: &Database, lease: &Lease) -> ! {
    let held =
        "SELECT count(*) FROM advisory_lease WHERE expires_at > pg_catalog.clock_timestamp()";
    let mut pause = interval(Duration::from_millis(10));
    loop {
        pause.tick().await;
        assert!(lease.remaining() > NEAR, "the body runs at the expiry");
        assert_eq!(db.count(held).await, 1, "the body runs after the expiry");
    }
}
