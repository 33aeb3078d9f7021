//! The pooler between a program and its server: a real pgbouncer.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::Database;
use crate::lifeline::{Lifeline, shell};
use crate::server::owns_server;

/// The program to use instead of the installed `pgbouncer`.
const PROGRAM: &str = "ADVISORY_TEST_PGBOUNCER";

/// A pgbouncer in front of the process's own server. Dropping this stops it.
pub struct Bouncer(Lifeline);

impl Bouncer {
    /// [`start`](Self::start), if the program tracks prepared statements, as pgbouncer does since
    /// 1.21.
    pub async fn start_tracking(database: &Database, settings: &str) -> Result<Self, &'static str> {
        if minor_version().is_none_or(|minor| minor < 21) {
            return Err(
                "there is no pgbouncer of 1.21 or newer; ADVISORY_TEST_PGBOUNCER can name one",
            );
        }
        Self::start(database, settings).await
    }

    /// Starts one with these lines in its settings, such as `pool_mode = transaction`; or returns
    /// why not: it is not installed, or the server is not ours.
    pub async fn start(database: &Database, settings: &str) -> Result<Self, &'static str> {
        if !owns_server() {
            return Err("the server is not our own, so its password is unknown");
        }
        Self::before(database.url(), settings).await
    }

    /// Like [`start`](Self::start), in front of a server that a test started itself: the one at
    /// this address.
    pub async fn before(url: &str, settings: &str) -> Result<Self, &'static str> {
        let socket = socket_of(url);
        let settings = settings.to_owned();
        let started = Lifeline::start_installed("pgbouncer is not installed", move || {
            let mut shell = shell(include_str!("bouncer.sh"), "advisory-tests-bouncer")?;
            shell.arg(socket).arg(settings).arg(program());
            Ok(shell)
        });
        Ok(Self(started.await?))
    }

    /// The address of a database through the pooler.
    pub fn url(&self, database: &Database) -> String {
        self.address(database.name())
    }

    /// The address of the database of this name through the pooler.
    pub fn address(&self, name: &str) -> String {
        self.0.url(name, None)
    }
}

/// The folder of the socket that our own server listens on.
pub(crate) fn socket_of(url: &str) -> PathBuf {
    let server: Config = url.parse().expect("the server's address");
    let Some(Host::Unix(socket)) = server.get_hosts().first().cloned() else {
        panic!("our own server listens on a socket");
    };
    socket
}

fn program() -> OsString {
    env::var_os(PROGRAM).unwrap_or_else(|| "pgbouncer".into())
}

/// The minor version: the 25 of `PgBouncer 1.25.2`.
fn minor_version() -> Option<u32> {
    let path = env::var("PATH").unwrap_or_default();
    let mut asked = Command::new("sh");
    asked.args(["-c", "\"$0\" --version"]).arg(program());
    asked.env("PATH", format!("{path}:/usr/sbin:/usr/local/sbin"));
    let said = asked.output().ok()?.stdout;
    let version = String::from_utf8(said).ok()?;
    let minor = version.strip_prefix("PgBouncer 1.")?.split('.').next()?;
    minor.parse().ok()
}
