//! A standby: a server that replicates another one.

use crate::own_server::done;
use crate::server::Server;

/// A server in recovery, which answers only queries. Dropping this stops it.
///
/// An empty `standby.signal` is enough: it waits for the changes of a primary that does not exist.
pub struct Standby(Server);

impl Standby {
    /// Starts it.
    pub async fn start() -> Self {
        Self(done(|| Server::start("standby", None, None)).await)
    }

    /// The address of its one database.
    pub fn url(&self) -> &str {
        self.0.url()
    }
}
