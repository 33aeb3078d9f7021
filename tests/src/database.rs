//! A test's own database, and the connections to it.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use diesel::dsl::sql;
use diesel::r2d2::{self, ConnectionManager};
use diesel::sql_types::Integer;
use diesel::{Connection, PgConnection};
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod, bb8, deadpool,
};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{interval, timeout};
use tokio_postgres::{Client, NoTls};

use crate::HarnessError;
use crate::administrator;
use crate::observe::TIMEOUT;
use crate::server::Server;

/// One fresh database, dropped with this value, and an observer: a separate connection that tests
/// do not use otherwise.
pub struct Database {
    name: String,
    url: String,
    server: &'static Server,
    observer: Client,
    connection: JoinHandle<()>,
    timeout: Duration,
}

impl Database {
    /// Creates a fresh database, and starts the process's server if this is its first.
    pub async fn create() -> Self {
        match Self::try_create().await {
            Ok(database) => database,
            Err(error) => panic!("{error}"),
        }
    }

    /// Creates a fresh database, and starts the process's server if this is its first.
    pub async fn try_create() -> Result<Self, HarnessError> {
        let server = spawn_blocking(Server::shared)
            .await
            .map_err(|error| HarnessError::new(format!("starting PostgreSQL: {error}")))??;
        let name = unique_name();
        administrator::create(server, name.clone()).await?;
        let url = with_database(server.url(), &name);
        let (observer, connection) = open(&url).await?;
        Ok(Self {
            name,
            url,
            server,
            observer,
            connection,
            timeout: TIMEOUT,
        })
    }

    /// Sets how long the `until_…` methods wait, by default less than a minute: for a state that must
    /// not occur.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The address of this database, in the form that `AsyncPgConnection::establish`, pools and
    /// `psql` accept.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A new connection.
    pub async fn connect(&self) -> AsyncPgConnection {
        AsyncPgConnection::establish(&self.url)
            .await
            .expect("a connection to the test's database")
    }

    /// A pool of at most `size` connections; none is open yet.
    pub fn deadpool(&self, size: usize) -> deadpool::Pool<AsyncPgConnection> {
        Self::deadpool_at(&self.url, size)
    }

    /// Like [`Self::deadpool`], for another address, such as that of a pooler.
    pub fn deadpool_at(url: impl Into<String>, size: usize) -> deadpool::Pool<AsyncPgConnection> {
        let manager = AsyncDieselConnectionManager::new(url);
        let pool = deadpool::Pool::builder(manager).max_size(size).build();
        pool.expect("a pool without timeouts")
    }

    /// A pool of one connection, which it hands out without a query.
    pub fn unchecked_deadpool_at(url: impl Into<String>) -> deadpool::Pool<AsyncPgConnection> {
        let mut config = ManagerConfig::default();
        config.recycling_method = RecyclingMethod::Fast;
        let manager = AsyncDieselConnectionManager::new_with_config(url, config);
        let pool = deadpool::Pool::builder(manager).max_size(1).build();
        pool.expect("a pool without timeouts")
    }

    /// A pool of at most `size` connections.
    pub async fn bb8(&self, size: u32) -> bb8::Pool<AsyncPgConnection> {
        Self::bb8_at(&self.url, size).await
    }

    /// Like [`Self::bb8`], for another address, such as that of a proxy.
    pub async fn bb8_at(url: impl Into<String>, size: u32) -> bb8::Pool<AsyncPgConnection> {
        let manager = AsyncDieselConnectionManager::new(url);
        let pool = bb8::Pool::builder().max_size(size).build(manager).await;
        pool.expect("a pool on the test's database")
    }

    /// A new connection of blocking Diesel.
    pub fn establish(&self) -> PgConnection {
        PgConnection::establish(&self.url).expect("a connection to the test's database")
    }

    /// A pool of at most `size` connections of blocking Diesel; none is open yet.
    pub fn r2d2(&self, size: u32) -> r2d2::Pool<ConnectionManager<PgConnection>> {
        Self::r2d2_at(&self.url, size)
    }

    /// Like [`Self::r2d2`], for another address, such as that of a pooler.
    pub fn r2d2_at(url: &str, size: u32) -> r2d2::Pool<ConnectionManager<PgConnection>> {
        r2d2::Pool::builder()
            .max_size(size)
            .min_idle(Some(0))
            .build(ConnectionManager::new(url))
            .expect("a pool without connections")
    }

    /// A pool of one connection, already open, that waits at most `limit` for it: the limit does
    /// not hit the opening, however slow the machine is.
    pub async fn impatient_r2d2(
        &self,
        limit: Duration,
    ) -> r2d2::Pool<ConnectionManager<PgConnection>> {
        let pool = r2d2::Pool::builder().max_size(1).connection_timeout(limit);
        let pool = pool.build_unchecked(ConnectionManager::new(&self.url));
        let opened = async {
            let mut tick = interval(Duration::from_millis(2));
            while pool.state().idle_connections == 0 {
                tick.tick().await;
            }
        };
        timeout(self.timeout, opened).await.expect("a connection");
        pool
    }

    /// Changes a setting of the database for sessions that begin later: `lock_timeout = '1s'`.
    pub async fn set(&self, setting: &str) {
        self.run(&format!("ALTER DATABASE {} SET {setting}", self.name))
            .await;
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn observer(&self) -> &Client {
        &self.observer
    }
}

impl Drop for Database {
    /// Drops the database, also if connections are still open. Best effort: our own server is
    /// deleted with the process.
    fn drop(&mut self) {
        self.connection.abort();
        administrator::drop_database(self.server, &self.name);
    }
}

/// The process id of the backend that serves `conn`.
pub async fn pid_of(conn: &mut AsyncPgConnection) -> i32 {
    diesel::select(sql::<Integer>("pg_catalog.pg_backend_pid()"))
        .get_result(conn)
        .await
        .expect("the backend's process id")
}

pub(crate) async fn open(url: &str) -> Result<(Client, JoinHandle<()>), HarnessError> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(|error| {
        HarnessError::new(format!("connecting to PostgreSQL: {}", chain(&error)))
    })?;
    // The connection's errors also reach the client's calls, which report them.
    Ok((client, tokio::spawn(async move { drop(connection.await) })))
}

/// An error with its causes: tokio-postgres prints only "db error" by itself.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// A name that is unique on the server, where other processes may create databases too.
fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos());
    format!(
        "advisory_{}_{started}_{}",
        process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// `url` with another database: in a key-value string a later key wins, and a URL has one place for
/// it.
pub(crate) fn with_database(url: &str, name: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return format!("{url} dbname={name}");
    };
    let (address, query) = rest
        .split_once('?')
        .map_or((rest, None), |(address, query)| (address, Some(query)));
    let host = address.split('/').next().unwrap_or_default();
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{scheme}://{host}/{name}{query}")
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn a_database_is_put_into_any_form_of_address() {
        assert_eq!(
            with_database("postgres://me@%2Ftmp%2Fx/postgres", "d"),
            "postgres://me@%2Ftmp%2Fx/d"
        );
        assert_eq!(
            with_database("postgresql://h:5433?sslmode=disable", "d"),
            "postgresql://h:5433/d?sslmode=disable"
        );
        assert_eq!(
            with_database("postgres://h/old?options=-c%20a%3Db", "d"),
            "postgres://h/d?options=-c%20a%3Db"
        );
        assert_eq!(
            with_database("host=/tmp dbname=old", "d"),
            "host=/tmp dbname=old dbname=d"
        );
    }
}
