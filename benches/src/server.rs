//! The server for the benchmarks, and its addresses: a socket, and TCP with a delay.

use crate::delay;
use crate::setting::Setting;
use advisory_tests::{Database, OwnServer};
use std::error::Error;
use std::time::Duration;
use tokio_postgres::Config;

pub(crate) struct Server {
    own: OwnServer,
    far: String,
}

impl Server {
    pub(crate) async fn start() -> Result<Self, Box<dyn Error>> {
        let (own, tcp) = OwnServer::start_on_a_port().await?;
        let config: Config = tcp.parse()?;
        let port = *config.get_ports().first().ok_or("it listens on a port")?;
        let far = delay::tcp(port, Duration::from_millis(1))?;
        let far = tcp.replacen(&format!(":{port}/"), &format!(":{far}/"), 1);
        Ok(Self { own, far })
    }

    /// Its address in this setting.
    pub(crate) fn url(&self, setting: &Setting) -> &str {
        match setting.delay_ms {
            0 => self.own.url(),
            _ => &self.far,
        }
    }
}

/// The default server version.
pub(crate) async fn version() -> Result<String, Box<dyn Error>> {
    let db = Database::try_create().await?;
    let (client, connection) = tokio_postgres::connect(db.url(), tokio_postgres::NoTls).await?;
    let driven = tokio::spawn(connection);
    let version: String = client.query_one("SHOW server_version", &[]).await?.get(0);
    drop(client);
    driven.await??;
    // Debian appends the package's version.
    Ok(version.split(' ').next().unwrap_or_default().to_owned())
}
