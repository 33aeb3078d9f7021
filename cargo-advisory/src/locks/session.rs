//! How is the database reached?
//!
//! Over diesel-async, which speaks PostgreSQL's protocol itself: the command needs no libpq. So what only libpq reads, such as
//! `~/.pgpass`, is not read.

use std::env;
use std::error::Error;
use std::time::Duration;

use diesel_async::AsyncPgConnection;
use tokio::time::timeout;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::address;
use crate::failure::Failure;
use crate::screen::one_line;

/// How long the server may take for an answer, unless the address says so for connecting.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to the database.
pub(crate) struct Session(AsyncPgConnection);

impl Session {
    /// Connects. No failure names the whole address, which may hold a password.
    pub(crate) async fn open(address: &str) -> Result<Self, Failure> {
        let (address, tls) = address::split(address);
        let mut config: Config = address.parse().map_err(|error: tokio_postgres::Error| {
            let why = one_line(&chain(&error));
            Failure::Input(format!(
                "the address of the database: {why}; write `postgres://user@host:5432/database`"
            ))
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            // libpq would try the folder that it was built with.
            let why = "the address of the database names no host: write `postgres://user@host:5432/database`, or the folder of a \
                       socket, `host=/var/run/postgresql dbname=database`";
            return Err(Failure::Input(why.to_owned()));
        }
        let (mode, connector) = tls.connector()?;
        // A socket of this machine needs none, as for libpq.
        let is_remote = |host: &Host| matches!(host, Host::Tcp(_));
        let is_remote = config.get_hosts().iter().any(is_remote);
        config.ssl_mode(if is_remote { mode } else { SslMode::Disable });
        config.application_name(crate::NAME);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(PATIENCE);
        }
        if config.get_password().is_none()
            && let Ok(password) = env::var("PGPASSWORD")
        {
            config.password(password);
        }
        let (client, connection) = bounded(Box::pin(config.connect(connector)))
            .await?
            .map_err(|error| {
                // That it is an error of the database is no news.
                let why = one_line(&chain(&error)).replace("db error: ", "");
                Failure::Input(format!("{}: {why}", called(&config)))
            })?;
        let conn = AsyncPgConnection::try_from_client_and_connection(client, connection).await;
        let conn = conn.map_err(|error| Failure::Input(one_line(&chain(&error))))?;
        Ok(Self(conn))
    }

    pub(crate) fn conn(&mut self) -> &mut AsyncPgConnection {
        &mut self.0
    }
}

/// The database by its name and its hosts alone: not even by these where an `@` in the password was not written `%40`, so that
/// the rest of it stands before the host.
fn called(config: &Config) -> String {
    let is_cut = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
    if config.get_hosts().iter().any(is_cut) {
        return "the database".to_owned();
    }
    let mut text = config.get_dbname().map_or_else(
        || "the database".to_owned(),
        |name| format!("the database `{name}`"),
    );
    for (at, host) in config.get_hosts().iter().enumerate() {
        let host = match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(folder) => folder.display().to_string(),
        };
        // One port is that of every host.
        let ports = config.get_ports();
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        let before = if at == 0 { " at" } else { "," };
        text = format!("{text}{before} `{host}:{port}`");
    }
    one_line(&text)
}

/// Waits for an answer, and not for ever.
pub(crate) async fn bounded<T>(answer: impl Future<Output = T>) -> Result<T, Failure> {
    let answer = timeout(PATIENCE, answer).await;
    answer.map_err(|_| {
        let seconds = PATIENCE.as_secs();
        Failure::Input(format!(
            "the server did not answer within {seconds} seconds"
        ))
    })
}

/// An error with its causes, none of them twice.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}
