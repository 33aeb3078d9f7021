//! Programs that end with the process that started them.
//!
//! A small shell script (`server.sh`, `bouncer.sh`) starts the program and reads from a pipe of
//! this process. However this process ends (return, panic, Ctrl-C, `kill -9`), the pipe closes, and
//! the shell stops the program and removes its folder.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};

use tokio::task::spawn_blocking;

use crate::HarnessError;
use crate::account::Account;

/// A program that listens on a socket in a folder of its own. Closing the pipe ends it.
pub(crate) struct Lifeline {
    folder: String,
    _pipe: Option<ChildStdin>,
}

impl Lifeline {
    /// Runs a shell command that prints `ready FOLDER` and keeps running. Any other output is the
    /// error.
    pub(crate) fn start(mut shell: Command) -> Result<Self, String> {
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG"))
        {
            shell.env_remove(name);
        }
        // In a process group of its own: the terminal's Ctrl-C or a test runner's kill must not end
        // it before it has cleaned up.
        shell
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = shell.spawn().map_err(|error| error.to_string())?;
        let mut answer = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut said = String::new();
        answer
            .read_line(&mut said)
            .map_err(|error| error.to_string())?;
        let Some(folder) = said.trim_end().strip_prefix("ready ") else {
            answer
                .read_to_string(&mut said)
                .map_err(|error| error.to_string())?;
            return Err(said);
        };
        Ok(Self {
            folder: folder.to_owned(),
            _pipe: child.stdin.take(),
        })
    }

    /// Like [`start`](Self::start), for a program that may be missing: the error is `missing` then.
    pub(crate) async fn start_installed(
        missing: &'static str,
        shell: impl FnOnce() -> Result<Command, HarnessError> + Send + 'static,
    ) -> Result<Self, &'static str> {
        let start = move || Self::start(shell().map_err(|error| error.to_string())?);
        match spawn_blocking(start).await.unwrap() {
            Ok(lifeline) => Ok(lifeline),
            Err(why) if why.trim() == "missing" => Err(missing),
            Err(why) => panic!("a pooler did not start: {why}"),
        }
    }

    /// The folder of the program's files.
    pub(crate) fn folder(&self) -> &str {
        &self.folder
    }

    /// The address of a database through the program's socket.
    pub(crate) fn url(&self, database: &str, port: Option<u16>) -> String {
        let folder = self.folder.replace('%', "%25").replace('/', "%2F");
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("postgres://postgres@{folder}{port}/{database}")
    }
}

/// A port that is free now. Nothing guarantees that it stays free until a program uses it.
pub(crate) fn free_port() -> Result<u16, HarnessError> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|one| one.local_addr());
    let free = free.map_err(|error| HarnessError::new(format!("a free port: {error}")))?;
    Ok(free.port())
}

/// Runs a script in a folder of its own, its first argument, and like the server not as root.
pub(crate) fn shell(script: &str, name: &str) -> Result<Command, HarnessError> {
    let account = Account::find()?;
    let mut shell = account.command("sh");
    shell.args(["-c", script, name]).arg(account.temp_folder()?);
    Ok(shell)
}
