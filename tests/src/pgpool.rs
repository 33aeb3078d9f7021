//! A real Pgpool-II, which gives each client a server session of its own, and sends statements that
//! only read to a standby.

use std::path::PathBuf;

use tokio::task::spawn_blocking;

use crate::account::Account;
use crate::bouncer::socket_of;
use crate::lifeline::Lifeline;
use crate::server::temp_folder;
use crate::{Database, OwnServer, Standby, owns_server};

/// A Pgpool-II in front of servers of our own. Dropping this stops it.
pub struct Pgpool(Lifeline);

impl Pgpool {
    /// Starts one in front of the process's own server; or returns why not: it is not installed, or
    /// the server is not ours.
    ///
    /// # Panics
    ///
    /// If it is installed and does not start.
    pub async fn start(database: &Database) -> Result<Self, &'static str> {
        if !owns_server() {
            return Err("the server is not our own");
        }
        Self::before(socket_of(database.url()), None).await
    }

    /// Starts one that sends statements that only read to a standby, with these lines in its
    /// settings.
    ///
    /// # Panics
    ///
    /// If it is installed and does not start.
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
    ///
    /// # Panics
    ///
    /// If it is installed and does not start.
    pub async fn in_front_of(url: &str) -> Result<Self, &'static str> {
        Self::before(socket_of(url), None).await
    }

    async fn before(
        primary: PathBuf,
        standby: Option<(PathBuf, &'static str)>,
    ) -> Result<Self, &'static str> {
        let started = spawn_blocking(move || start(primary, standby)).await;
        match started.expect("starting Pgpool-II") {
            Ok(lifeline) => Ok(Self(lifeline)),
            Err(why) if why.trim() == "missing" => Err("Pgpool-II is not installed"),
            Err(why) => panic!("Pgpool-II did not start: {why}"),
        }
    }

    /// The address of the database of this name through Pgpool-II.
    #[must_use]
    pub fn address(&self, name: &str) -> String {
        self.0.url(name, None)
    }

    /// The address of a database through Pgpool-II.
    #[must_use]
    pub fn url(&self, database: &Database) -> String {
        self.address(database.name())
    }
}

fn start(primary: PathBuf, standby: Option<(PathBuf, &'static str)>) -> Result<Lifeline, String> {
    let account = Account::find().map_err(|error| error.to_string())?;
    let folder = temp_folder(account).map_err(|error| error.to_string())?;
    let mut shell = account.command("sh");
    shell.args(["-c", include_str!("pgpool.sh"), "advisory-tests-pgpool"]);
    shell.arg(folder).arg(primary);
    if let Some((standby, settings)) = standby {
        shell.arg(standby).arg(settings);
    }
    Lifeline::start(shell)
}
