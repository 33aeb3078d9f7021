//! The test's own server, or two of them; faults never touch another.

use crate::clock::pass;
use crate::cluster::Cluster;
use crate::schema;
use advisory_runtime::lease::ADVISORY_LEASE_UP;
use advisory_tests::OwnServer;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// How long the server may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) enum Server {
    Alone(OwnServer),
    Cluster(Cluster),
}

/// A row as text; NULL is empty.
pub(crate) type Row = Vec<String>;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Server {
    pub(crate) async fn start() -> Self {
        Self::Alone(OwnServer::start().await)
    }

    /// A database for one run, with the tables that record its history.
    pub(crate) async fn create(&self, name: &str) -> Result<String, Failure> {
        let create = format!("CREATE DATABASE {name} TEMPLATE template0");
        self.rows(&self.url("postgres"), &create).await?;
        let url = self.url(name);
        let up = format!("{ADVISORY_LEASE_UP};{}", schema::up());
        self.rows(&url, &up).await?;
        Ok(url)
    }

    pub(crate) async fn drop_database(&self, name: &str) -> Result<(), Failure> {
        let drop = format!("DROP DATABASE {name} WITH (FORCE)");
        self.rows(&self.url("postgres"), &drop).await.map(|_| ())
    }

    /// The address of this database on the server.
    pub(crate) fn url(&self, name: &str) -> String {
        match self {
            Self::Alone(own) => {
                let url = own.url();
                let (server, _) = url.rsplit_once('/').unwrap_or((url, ""));
                format!("{server}/{name}")
            }
            Self::Cluster(cluster) => cluster.url(name),
        }
    }

    pub(crate) async fn restart(&self, mode: &str) {
        if let Self::Alone(own) = self {
            own.stop(mode).await;
            own.start_again().await;
        }
    }

    pub(crate) async fn fail_over(&self) -> Result<(), Failure> {
        match self {
            Self::Alone(_) => Err("there is no standby".into()),
            Self::Cluster(cluster) => cluster.fail_over().await,
        }
    }

    /// The rows that statements return, on a connection of their own.
    pub(crate) async fn rows(&self, url: &str, sql: &str) -> Result<Vec<Row>, Failure> {
        let client = connect(url).await?;
        rows(&client, sql).await
    }
}

/// Retries: the server may be starting, or have no room.
pub(crate) async fn connect(url: &str) -> Result<Client, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        match timeout(PATIENCE, tokio_postgres::connect(url, NoTls)).await? {
            Ok((client, connection)) => {
                // The proxy's errors also reach the calls of its client.
                drop(tokio::spawn(async move { drop(connection.await) }));
                return Ok(client);
            }
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => pass(Duration::from_millis(20)).await,
        }
    }
}

pub(crate) async fn rows(client: &Client, sql: &str) -> Result<Vec<Row>, Failure> {
    let messages = client.simple_query(sql).await?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let text = |index| row.get(index).unwrap_or_default().to_owned();
            Some((0..row.len()).map(text).collect())
        }
        _ => None,
    });
    Ok(rows.collect())
}
