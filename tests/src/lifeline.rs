//! How does a program that we start vanish with the process?
//!
//! A small shell (`server.sh`, `bouncer.sh`) starts it and waits on a pipe that only we hold: once we are gone, in whatever
//! way (return, panic, Ctrl-C, `kill -9`), the pipe closes and the shell stops the program and removes its folder.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};

/// A program that listens on a socket in a folder of its own, and the pipe whose end is its end.
pub(crate) struct Lifeline {
    folder: String,
    _pipe: Option<ChildStdin>,
}

impl Lifeline {
    /// Runs a shell's command that says `ready FOLDER` and stays. The error is what it says else.
    pub(crate) fn start(mut shell: Command) -> Result<Self, String> {
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG"))
        {
            shell.env_remove(name);
        }
        // A group of its own: the terminal's Ctrl-C and a test runner's kill reach us, and it outlives us by a moment.
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

    /// Where the program's files are.
    pub(crate) fn folder(&self) -> &str {
        &self.folder
    }

    /// The address of a database behind the program's socket.
    pub(crate) fn url(&self, database: &str, port: Option<u16>) -> String {
        let folder = self.folder.replace('%', "%25").replace('/', "%2F");
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("postgres://postgres@{folder}{port}/{database}")
    }
}
