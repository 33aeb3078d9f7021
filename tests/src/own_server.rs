//! A server that a test may stop or crash, and start again.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::HarnessError;
use crate::lifeline::free_port;
use crate::server::Server;

/// A server that only one test uses. Dropping this ends it.
pub struct OwnServer(Arc<Server>);

impl OwnServer {
    /// Starts it.
    pub async fn start() -> Self {
        Self(Arc::new(
            done(|| Server::start("primary", None, None)).await,
        ))
    }

    /// Starts one that also listens on TCP; its address there is the second value.
    pub async fn start_on_a_port() -> Result<(Self, String), HarnessError> {
        blocking(|| {
            let port = free_port()?;
            let server = Server::start("primary", Some(port), None)?;
            let password = server.read("password")?;
            let url = format!("postgres://postgres:{password}@127.0.0.1:{port}/postgres");
            Ok((Self(Arc::new(server)), url))
        })
        .await
    }

    /// Starts one with `postgres` run by `command`, such as `valgrind`, in the server's folder.
    pub async fn start_under(command: &str) -> Result<Self, HarnessError> {
        let command = command.to_owned();
        blocking(move || {
            let server = Server::start("primary", None, Some(&command))?;
            Ok(Self(Arc::new(server)))
        })
        .await
    }

    /// The address of its one database.
    pub fn url(&self) -> &str {
        self.0.url()
    }

    /// The server's log so far.
    pub fn log(&self) -> String {
        self.0.read("log").unwrap_or_else(|error| panic!("{error}"))
    }

    /// A file in its folder: `log`, or one below `data`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.file(name).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Stops it: `fast` ends every session and writes everything to disk, `immediate` is like a
    /// crash.
    pub async fn stop(&self, mode: &str) {
        let (server, mode) = (Arc::clone(&self.0), mode.to_owned());
        done(move || server.control(&["stop", "-m", &mode])).await;
    }

    /// Starts it again; it recovers if it has to.
    pub async fn start_again(&self) {
        self.control(vec!["start"]).await;
    }

    /// Stops it, and starts it again as a standby, which only reads.
    pub async fn become_standby(&self) {
        self.stop("fast").await;
        let server = Arc::clone(&self.0);
        done(move || server.note_standby()).await;
        self.start_again().await;
    }

    /// Starts a standby of it, which has everything that was committed so far and keeps
    /// replicating. Ends every session of this server: it is stopped while its files are copied.
    pub async fn follow(&self) -> Self {
        let folder = self.file("");
        let kind = format!("follows {}", folder.to_string_lossy().trim_end_matches('/'));
        Self(Arc::new(
            done(move || Server::start(&kind, None, None)).await,
        ))
    }

    /// Promotes a standby to a primary, with what it has received.
    pub async fn promote(&self) {
        self.control(vec!["promote"]).await;
    }

    /// Returns whether the server came with `pg_rewind`, which [`rejoin`](Self::rejoin) needs.
    pub fn can_rejoin(&self) -> bool {
        self.0.has("pg_rewind")
    }

    /// Makes this stopped server a standby of another one that was promoted meanwhile. Changes that
    /// only this server has are lost. Needs `wal_log_hints`, and a checkpoint of the other server.
    pub async fn rejoin(&self, primary: &Self) {
        let (server, primary) = (Arc::clone(&self.0), primary.file(""));
        done(move || server.rewind(&primary)).await;
        self.start_again().await;
    }

    async fn control(&self, arguments: Vec<&'static str>) {
        let server = Arc::clone(&self.0);
        done(move || server.control(&arguments)).await;
    }
}

/// The result of a call that blocks.
pub(crate) async fn done<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HarnessError> + Send + 'static,
) -> T {
    let done = blocking(work).await;
    done.unwrap_or_else(|error| panic!("{error}"))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HarnessError> + Send + 'static,
) -> Result<T, HarnessError> {
    spawn_blocking(work)
        .await
        .map_err(|error| HarnessError::new(format!("a server of a test's own: {error}")))?
}
