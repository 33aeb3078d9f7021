//! A real Pgpool-II, which gives each client a server session of its own, and sends statements that
//! only read to a standby.

use std::path::PathBuf;

use crate::bouncer::socket_of;
use crate::lifeline::{Lifeline, shell};
use crate::{Database, OwnServer, Standby, owns_server};

/// A Pgpool-II in front of servers of our own. Dropping this stops it.
pub struct Pgpool(Lifeline);

impl Pgpool {
    /// Starts one in front of the process's own server; or returns why not: it is not installed, or
    /// the server is not ours.
    pub async fn start(database: &Database) -> Result<Self, &'static str> {
        if !owns_server() {
            return Err("the server is not our own");
        }
        Self::before(socket_of(database.url()), None).await
    }

    /// Starts one that sends statements that only read to a standby, with these lines in its
    /// settings.
    pub async fn balancing(
        primary: &OwnServer,
        standby: &Standby,
        settings: &'static str,
    ) -> Result<Self, &'static str> {
        let standby = (socket_of(standby.url()), settings);
        Self::before(socket_of(primary.url()), Some(standby)).await
    }

    /// Starts one in front of what listens at this address on a socket: a server, or another
    /// pooler.
    pub async fn in_front_of(url: &str) -> Result<Self, &'static str> {
        Self::before(socket_of(url), None).await
    }

    async fn before(
        primary: PathBuf,
        standby: Option<(PathBuf, &'static str)>,
    ) -> Result<Self, &'static str> {
        let started = Lifeline::start_installed("Pgpool-II is not installed", move || {
            let mut shell = shell(include_str!("pgpool.sh"), "advisory-tests-pgpool")?;
            shell.arg(primary);
            if let Some((standby, settings)) = standby {
                shell.arg(standby).arg(settings);
            }
            Ok(shell)
        });
        Ok(Self(started.await?))
    }

    /// The address of the database of this name through Pgpool-II.
    pub fn address(&self, name: &str) -> String {
        self.0.url(name, None)
    }

    /// The address of a database through Pgpool-II.
    pub fn url(&self, database: &Database) -> String {
        self.address(database.name())
    }
}
