//! A real Odyssey, a pooler that numbers its clients at random and listens on TCP.

use std::env;

use crate::Database;
use crate::bouncer::socket_of;
use crate::lifeline::{Lifeline, free_port, shell};
use crate::server::owns_server;

/// The program to use instead of the installed `odyssey`.
const PROGRAM: &str = "ADVISORY_TEST_ODYSSEY";

/// An Odyssey in front of the process's own server. Dropping this stops it.
pub struct Odyssey {
    port: u16,
    _lifeline: Lifeline,
}

impl Odyssey {
    /// Starts one with these lines as the rules of every user, such as `pool "transaction"`; or
    /// returns why not: it is not installed, or the server is not ours.
    pub async fn start(database: &Database, rules: &str) -> Result<Self, &'static str> {
        if !owns_server() {
            return Err("the server is not our own");
        }
        let (socket, rules) = (socket_of(database.url()), rules.to_owned());
        let port = free_port().unwrap();
        let started = Lifeline::start_installed("Odyssey is not installed", move || {
            let mut shell = shell(include_str!("odyssey.sh"), "advisory-tests-odyssey")?;
            shell.arg(socket).arg(port.to_string()).arg(rules);
            shell.arg(env::var_os(PROGRAM).unwrap_or_else(|| "odyssey".into()));
            Ok(shell)
        });
        Ok(Self {
            port,
            _lifeline: started.await?,
        })
    }

    /// The address of a database through the pooler.
    pub fn url(&self, database: &Database) -> String {
        let (port, name) = (self.port, database.name());
        format!("postgres://postgres@127.0.0.1:{port}/{name}")
    }
}
