//! A connection to the database.
//!
//! It uses diesel-async, which does not need libpq. Files that only libpq reads, such as
//! `~/.pgpass`, are not read.

use std::env;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{address, literal};
use crate::failure::{Failure, Result, bail, chain};
use crate::text::one_line;

/// The time limit for the server's answers, and for connecting unless the address has a
/// `connect_timeout`.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the database. No failure shows the whole address, which can contain a password.
pub(crate) trait Connection: Sized {
    async fn open(address: &str) -> Result<Self>;

    /// Ends it after the answer to what was sent.
    async fn close(self);
}

/// A connection with Diesel.
pub(crate) type Session = AsyncPgConnection;

impl Connection for Session {
    async fn open(address: &str) -> Result<Self> {
        let (client, connection) = connect(address).await?;
        Ok(with_timeout(Self::try_from_client_and_connection(client, connection)).await??)
    }

    /// A session of a pooler outlives this and shows its last statement to everybody, so the last
    /// one is empty.
    async fn close(mut self) {
        drop(with_timeout(self.batch_execute("")).await);
    }
}

/// Begins a transaction that does not wait long for a locked table. The time limits end with it,
/// even if a pooler keeps the session. Two statements together stay below [`TIMEOUT`].
pub(crate) const BEGIN_READING: &str = "START TRANSACTION READ ONLY; SET LOCAL lock_timeout = '500ms'; SET LOCAL statement_timeout = '4s'";

/// Reads in a transaction that begins with [`BEGIN_READING`].
pub(crate) async fn read_bounded<T, E>(
    session: &mut Session,
    read: impl AsyncFnOnce(&mut Session) -> Result<T, E>,
) -> Result<Result<T, E>> {
    with_timeout(async {
        session.batch_execute(BEGIN_READING).await?;
        let answer = read(session).await;
        // A connection that is lost has been reported by the answer.
        drop(session.batch_execute("ROLLBACK").await);
        Ok(answer)
    })
    .await?
}

/// Like [`read_bounded`], for a table that may not exist. The outer failure is one of the connection.
pub(crate) async fn read_table<T, E>(
    session: &mut Session,
    table: &str,
    read: impl AsyncFnOnce(&mut Session) -> Result<T, E>,
) -> Result<Result<T, E>> {
    let exists = format!("SELECT CAST({} AS pg_catalog.regclass)", literal(table));
    let exists = with_timeout(session.batch_execute(&exists)).await?;
    if exists.is_ok() {
        return read_bounded(session, read).await;
    }
    // A table that does not exist cannot be locked, and `read` can find the cause of its error only
    // outside of a transaction.
    with_timeout(read(session)).await
}

pub(crate) struct Queries {
    pub(crate) client: Client,
    /// Drives the connection. The queries get its errors.
    task: JoinHandle<()>,
}

impl Connection for Queries {
    async fn open(address: &str) -> Result<Self> {
        let (client, connection) = connect(address).await?;
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { client, task })
    }

    async fn close(self) {
        drop(self.client);
        drop(with_timeout(self.task).await);
    }
}

type Driver =
    tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

async fn connect(address: &str) -> Result<(Client, Driver)> {
    let (rest, options) = address::split(address);
    if let Some(why) = options.refusal {
        bail!("{why}");
    }
    let mut config: Config = rest.parse().map_err(|error: tokio_postgres::Error| {
        Failure::Input(format!(
            "invalid database URL: {}; write `postgres://user@host:5432/database`",
            refusal(&chain(&error))
        ))
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        // libpq would use the directory set at its build.
        bail!(
            "the database URL has no host: write `postgres://user@host:5432/database`, or the folder of a socket, \
             `host=/var/run/postgresql dbname=database`"
        );
    }
    options.apply(&mut config);
    let (mode, connector) = options.tls.connector()?;
    if config.get_hosts().is_empty() {
        // The certificate is checked for the address.
        for address in config.get_hostaddrs().to_vec() {
            config.host(address.to_string());
        }
    }
    // As with libpq, a Unix-domain socket is not encrypted. With a `hostaddr`, the folder of a
    // socket is not used.
    let is_remote = |host: &Host| matches!(host, Host::Tcp(_));
    let is_remote = !config.get_hostaddrs().is_empty() || config.get_hosts().iter().any(is_remote);
    config.ssl_mode(if is_remote { mode } else { SslMode::Disable });
    config.application_name(crate::cli::NAME);
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(TIMEOUT);
    }
    if config.get_password().is_none()
        && let Ok(password) = env::var("PGPASSWORD")
    {
        config.password(password);
    }
    let mut opened = Box::pin(open(&config, connector.clone()));
    let opened = match timeout(POOLER_TIMEOUT, &mut opened).await {
        Ok(opened) => opened,
        Err(_) if is_pooler(&config, connector).await => bail!(
            "the pooler in front of {} gives no connection: all are in use. Connect to the server itself, with its own address as \
             `--database-url`",
            description(address, &config)
        ),
        Err(_) => with_timeout(opened).await?,
    };
    opened.map_err(|error| {
        // The prefixes add nothing here.
        let why = one_line(&chain(&error)).replace("db error: ", "");
        let why = why.replace("error connecting to server: ", "");
        let direct = if POOLER_ERRORS.iter().any(|part| why.contains(part)) {
            ". This is a pooler: connect to the server itself, with its own address as `--database-url`"
        } else {
            ""
        };
        Failure::Input(format!(
            "cannot connect to {}: {why}{direct}",
            description(address, &config)
        ))
    })
}

/// The time limit for a pooler's first answer. The server itself may take longer.
const POOLER_TIMEOUT: Duration = Duration::from_millis(1_200);
/// The time limit for a pooler to identify itself.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// The message of pgbouncer if it has no connection.
const POOLER_ERRORS: [&str; 3] = [
    "max_client_conn",
    "query_wait_timeout",
    "pgbouncer cannot connect to server",
];

/// Connects, and waits until the server has answered an empty query, because a pooler accepts
/// connections even if it has none to the server.
async fn open(
    config: &Config,
    connector: MakeRustlsConnect,
) -> Result<(Client, Driver), tokio_postgres::Error> {
    let (client, mut connection) = config.connect(connector).await?;
    {
        let mut answer = pin!(client.batch_execute(""));
        poll_fn(|context| {
            // It carries the query.
            match Pin::new(&mut connection).poll(context) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                _ => answer.as_mut().poll(context),
            }
        })
        .await?;
    }
    Ok((client, connection))
}

/// Returns `true` if pgbouncer answers at the address: it has its own database, and its errors have
/// their own class.
async fn is_pooler(config: &Config, connector: MakeRustlsConnect) -> bool {
    let mut config = config.clone();
    config.dbname("pgbouncer");
    match timeout(PROBE_TIMEOUT, config.connect(connector)).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => error.code() == Some(&SqlState::PROTOCOL_VIOLATION),
        Err(_) => false,
    }
}

/// The reason why tokio-postgres refuses an address, without an unknown option or a character,
/// which can be a part of a password.
fn refusal(error: &str) -> String {
    let why = error.replace("invalid connection string: ", "");
    if why.starts_with("unknown option `") {
        return "unknown option".to_owned();
    }
    let why = why.split_once(" but got ").map_or(&*why, |(why, _)| why);
    one_line(why)
}

/// The name and the hosts of the database, without the password. If an `@` is where none belongs,
/// name and hosts are omitted too: perhaps the password contains an `@` that is not written as
/// `%40`, so the rest of it was parsed as a host, a name or an option.
fn description(address: &str, config: &Config) -> String {
    let is_cut = address::is_url(address) && address.matches('@').count() > 1;
    if is_cut || config.get_dbname().is_some_and(|name| name.contains('@')) {
        return "the database".to_owned();
    }
    let mut text = match config.get_dbname() {
        Some(name) => format!("the database `{name}`"),
        None => "the database".to_owned(),
    };
    for (at, host) in config.get_hosts().iter().enumerate() {
        let host = match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(folder) => folder.display().to_string(),
        };
        // A single port applies to all hosts.
        let ports = config.get_ports();
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        let before = if at == 0 { " at" } else { "," };
        text = format!("{text}{before} `{host}:{port}`");
    }
    one_line(&text)
}

/// Waits for an answer for at most [`TIMEOUT`].
pub(crate) async fn with_timeout<T>(answer: impl Future<Output = T>) -> Result<T> {
    match timeout(TIMEOUT, answer).await {
        Ok(answer) => Ok(answer),
        Err(_) => bail!(
            "the server did not answer within {} seconds",
            TIMEOUT.as_secs()
        ),
    }
}
