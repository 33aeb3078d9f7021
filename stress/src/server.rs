//! The test's own server, or two of them; faults never touch another.

use crate::cluster::Cluster;
use crate::connection::{Failure, Row, connect, rows};
use crate::schema;
use advisory_runtime::lease::ADVISORY_LEASE_UP;
use advisory_tests::OwnServer;

pub(crate) enum Server {
    Alone(OwnServer),
    Cluster(Cluster),
}

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

    pub(crate) async fn restart(&self, mode: &'static str) {
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
