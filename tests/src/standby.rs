//! A standby: a server that replicates another one.

use tokio::task::spawn_blocking;

use crate::HarnessError;
use crate::server::Server;

/// A server in recovery, which answers only queries. Dropping this stops it.
///
/// An empty `standby.signal` is enough: it waits for the changes of a primary that does not exist.
pub struct Standby(Server);

impl Standby {
    /// Starts it.
    ///
    /// # Panics
    ///
    /// If no server is available: the text says what to do.
    pub async fn start() -> Self {
        let started = spawn_blocking(|| Server::start("standby", None, None)).await;
        match started.map_err(|error| HarnessError::new(format!("starting a standby: {error}"))) {
            Ok(Ok(server)) => Self(server),
            Ok(Err(error)) | Err(error) => panic!("{error}"),
        }
    }

    /// The address of its one database.
    #[must_use]
    pub fn url(&self) -> &str {
        self.0.url()
    }
}
