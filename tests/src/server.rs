//! How is the process's one server started, and how does it vanish with the process?
//!
//! A small shell (`server.sh`) starts it and waits on a pipe that only we hold: once we are gone, in whatever
//! way (return, panic, Ctrl-C, `kill -9`), the pipe closes and the shell stops the server and removes its folder.
//!
//! Not the crate `pgtemp`: it needs `sudo` when run as root, listens on TCP and outlives Ctrl-C. Not
//! `postgresql_embedded`: it needs a newer Rust than ours and downloads from release pages, not a registry.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::sync::OnceLock;

use crate::HarnessError;
use crate::account::Account;
use crate::binaries::Binaries;
use crate::download;

/// A server to use instead of our own: a URL or key-value string of a user who may create databases.
const URL: &str = "ADVISORY_TEST_DATABASE_URL";

/// Which binaries our own server runs: `download` for a registry's build, or the folder that they are in.
const BINARIES: &str = "ADVISORY_TEST_SERVER";

/// What a socket's path may have, less PostgreSQL's own `/.s.PGSQL.5432.lock` and our `/advisory-XXXXXX`.
const LONGEST_FOLDER: usize = 103 - 20 - 16;

/// The shared server: where to connect, and for our own one the pipe whose end is its end.
pub(crate) struct Server {
    url: String,
    /// What makes `CREATE DATABASE` quick.
    strategy: &'static str,
    _lifeline: Option<ChildStdin>,
}

impl Server {
    /// The process's one server, started at the first call. Blocks meanwhile.
    pub(crate) fn shared() -> Result<&'static Self, HarnessError> {
        static SHARED: OnceLock<Result<Server, HarnessError>> = OnceLock::new();
        SHARED
            .get_or_init(Self::open)
            .as_ref()
            .map_err(Clone::clone)
    }

    /// The address of a database that is there from the start, to create others through.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The statement that makes a database on this server.
    pub(crate) fn create_database(&self, name: &str) -> String {
        // Nobody is ever connected to template0, so that tests may copy it at the same time.
        format!(
            "CREATE DATABASE {name} TEMPLATE template0 {}",
            self.strategy
        )
    }

    fn open() -> Result<Self, HarnessError> {
        if let Ok(url) = env::var(URL) {
            return Ok(Self {
                url,
                strategy: "",
                _lifeline: None,
            });
        }
        let account = Account::find()?;
        let binaries = match env::var_os(BINARIES) {
            Some(choice) if choice == "download" => download::fetch(account)?,
            Some(folder) => Binaries::unpacked_at(Path::new(&folder), account).ok_or_else(|| {
                HarnessError::new(format!(
                    "{BINARIES}: no initdb, pg_ctl and postgres 14 or newer that we may run in {}",
                    Path::new(&folder).display()
                ))
            })?,
            None => match Binaries::find(account) {
                Some(binaries) => binaries,
                None => download::fetch(account)?,
            },
        };
        Self::start(&binaries, account)
    }

    fn start(binaries: &Binaries, account: Account) -> Result<Self, HarnessError> {
        let mut shell = account.command("sh");
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG"))
        {
            shell.env_remove(name);
        }
        if let Some(lib) = &binaries.lib {
            shell.env("LD_LIBRARY_PATH", lib);
        }
        shell.args(["-c", include_str!("server.sh"), "advisory-tests-server"]);
        shell.arg(&binaries.bin).arg(temp_folder(account)?);
        // A group of its own: the terminal's Ctrl-C and a test runner's kill reach us, and it outlives us by a moment.
        shell
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let failed = |why: &dyn std::fmt::Display| {
            HarnessError::new(format!(
                "PostgreSQL of {} did not start: {why}\nuse another one with {BINARIES}=<folder of its programs>, \
                 or a running server with {URL}=<url>",
                binaries.bin.display()
            ))
        };
        let mut child = shell.spawn().map_err(|error| failed(&error))?;
        let mut answer = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        answer
            .read_line(&mut line)
            .map_err(|error| failed(&error))?;
        let Some(folder) = line.trim_end().strip_prefix("ready ") else {
            answer
                .read_to_string(&mut line)
                .map_err(|error| failed(&error))?;
            return Err(failed(&line));
        };
        let url = format!(
            "postgres://postgres@{}/postgres",
            folder.replace('%', "%25").replace('/', "%2F")
        );
        Ok(Self {
            url,
            // Since 15 the default spares the disk by writing a log instead; with `fsync = off` copying is ten times faster.
            strategy: if binaries.version >= 15 {
                "STRATEGY file_copy"
            } else {
                ""
            },
            _lifeline: child.stdin.take(),
        })
    }
}

/// Whether the server is ours alone, so that a test may harm it.
#[must_use]
pub fn owns_server() -> bool {
    env::var_os(URL).is_none()
}

/// The first folder for temporary files that is open to `account` and short enough for a socket.
fn temp_folder(account: Account) -> Result<PathBuf, HarnessError> {
    let mut folders = [env::temp_dir(), "/tmp".into(), "/var/tmp".into()].into_iter();
    folders
        .find(|folder| {
            folder.is_absolute()
                && folder.as_os_str().len() <= LONGEST_FOLDER
                && account.can_write(folder)
        })
        .ok_or_else(|| {
            HarnessError::new(
                "no folder for the server: make /tmp writable, or set TMPDIR to a short path",
            )
        })
}
