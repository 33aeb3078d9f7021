//! The server for the benchmarks, and its addresses: two transports, with and without a delay.

use crate::delay::{self, Folder, Origin};
use crate::setting::{Setting, Transport};
use advisory_tests::{Database, OwnServer};
use std::error::Error;
use std::path::Path;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

pub(crate) struct Server {
    _own: OwnServer,
    _folder: Folder,
    unix: [String; 2],
    tcp: [String; 2],
}

impl Server {
    pub(crate) async fn start() -> Result<Self, Box<dyn Error>> {
        let (own, tcp) = OwnServer::start_on_a_port().await?;
        let unix = own.url().to_owned();
        let origin = origin(&unix)?;
        let folder = Folder::create()?;
        let each_way = Duration::from_millis(1);
        delay::unix(&folder.0, origin.clone(), each_way)?;
        let port = delay::tcp(origin.port, each_way)?;
        let far_unix = unix.replacen(&escaped(&origin.folder), &escaped(&folder.0), 1);
        let far_tcp = tcp.replacen(&format!(":{}/", origin.port), &format!(":{port}/"), 1);
        Ok(Self {
            _own: own,
            _folder: folder,
            unix: [unix, far_unix],
            tcp: [tcp, far_tcp],
        })
    }

    /// Its address in this setting.
    pub(crate) fn url(&self, setting: &Setting) -> &str {
        let [near, far] = match setting.transport {
            Transport::Unix => &self.unix,
            Transport::Tcp => &self.tcp,
        };
        if setting.delay_ms == 0 { near } else { far }
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

fn origin(url: &str) -> Result<Origin, Box<dyn Error>> {
    let config: Config = url.parse()?;
    match (config.get_hosts(), config.get_ports()) {
        ([Host::Unix(folder)], &[port]) => Ok(Origin {
            folder: folder.clone(),
            port,
        }),
        _ => Err("our own server listens on a socket, and on a port".into()),
    }
}

/// A host in the form that an address needs.
fn escaped(folder: &Path) -> String {
    let folder = folder.display().to_string();
    folder.replace('%', "%25").replace('/', "%2F")
}
