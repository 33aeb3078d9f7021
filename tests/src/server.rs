//! The server that the tests of this process share.
//!
//! Not the crate `pgtemp`: it needs `sudo` when run as root, listens on TCP and outlives Ctrl-C.
//! Not `postgresql_embedded`: it needs a newer Rust than ours and downloads from release pages, not
//! a registry.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::HarnessError;
use crate::account::Account;
use crate::binaries::Binaries;
use crate::download;
use crate::lifeline::Lifeline;

/// A server to use instead of our own: a URL or key-value string of a user who may create
/// databases.
const URL: &str = "ADVISORY_TEST_DATABASE_URL";

/// The binaries for our own server: `download` for a registry's build, `download:16` for one of
/// this major version, or their folder.
const BINARIES: &str = "ADVISORY_TEST_SERVER";

/// The folder of a template that a process made which started this one.
const TEMPLATE: &str = "ADVISORY_TEST_TEMPLATE";

static IS_ON_DISK: AtomicBool = AtomicBool::new(false);

/// Makes the servers that this process starts from now on keep their data on a disk, even if there
/// is room in memory.
pub fn keep_data_on_disk() {
    IS_ON_DISK.store(true, Ordering::Relaxed);
}

/// A server: its address, and for our own one the value that ends it when dropped.
pub(crate) struct Server {
    url: String,
    /// The options that make `CREATE DATABASE` fast.
    strategy: &'static str,
    own: Option<Own>,
}

/// The binaries and the folder of our own server.
struct Own {
    lifeline: Lifeline,
    binaries: Binaries,
    account: Account,
}

impl Server {
    /// The process's one server, started at the first call, which blocks.
    pub(crate) fn shared() -> Result<&'static Self, HarnessError> {
        static SHARED: OnceLock<Result<Server, HarnessError>> = OnceLock::new();
        SHARED
            .get_or_init(Self::open)
            .as_ref()
            .map_err(Clone::clone)
    }

    /// The address of a database that always exists, for creating others.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The statement that creates a database on this server, as a copy of another one.
    pub(crate) fn create_database(&self, name: &str, template: &str) -> String {
        format!(
            "CREATE DATABASE {name} TEMPLATE {template} {}",
            self.strategy
        )
    }

    /// Returns whether only this process uses it.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    fn open() -> Result<Self, HarnessError> {
        if let Ok(url) = env::var(URL) {
            return Ok(Self {
                url,
                strategy: "",
                own: None,
            });
        }
        Self::start("primary", None, None)
    }

    /// Starts a server of our own: a `primary`, or a `standby` without a primary. With a port it
    /// also listens on TCP. With a command, that command runs it.
    pub(crate) fn start(
        kind: &str,
        port: Option<u16>,
        command: Option<&str>,
    ) -> Result<Self, HarnessError> {
        let template = match kind {
            "primary" | "standby" => template()?,
            // It has the files of another one, or is the template.
            _ => None,
        };
        let account = Account::find()?;
        let choice = env::var_os(BINARIES);
        let download = choice
            .as_ref()
            .and_then(|choice| choice.to_str()?.strip_prefix("download"));
        let binaries = match (download, &choice) {
            (Some(version), _) => {
                let major = version.strip_prefix(':').and_then(|major| major.parse().ok());
                download::fetch(major, account)?
            }
            (None, Some(folder)) => Binaries::unpacked_at(Path::new(&folder), account).ok_or_else(|| {
                HarnessError::new(format!(
                    "{BINARIES}: no initdb, pg_ctl and postgres 15 or newer that we may run in {}",
                    Path::new(&folder).display()
                ))
            })?,
            (None, None) => match Binaries::find(account) {
                Some(binaries) => binaries,
                None => download::fetch(None, account)?,
            },
        };
        let mut shell = account.command("sh");
        if let Some(lib) = &binaries.lib {
            shell.env("LD_LIBRARY_PATH", lib);
        }
        shell.args(["-c", include_str!("server.sh"), "advisory-tests-server"]);
        let folder = account.temp_folder()?;
        if IS_ON_DISK.load(Ordering::Relaxed) {
            shell.env("TMPDIR", &folder);
        }
        shell.env("TEMPLATE", template.unwrap_or_default());
        shell
            .arg(&binaries.bin)
            .arg(folder)
            .arg(kind)
            .arg(port.map(|port| port.to_string()).unwrap_or_default())
            .args(command);
        let lifeline = Lifeline::start(shell).map_err(|why| {
            HarnessError::new(format!(
                "PostgreSQL of {} did not start: {why}\nuse another one with {BINARIES}=<folder of its programs>, \
                 or a running server with {URL}=<url>",
                binaries.bin.display()
            ))
        })?;
        Ok(Self {
            url: lifeline.url("postgres", port),
            // Since 15 the default writes a log instead of the files; with `fsync = off` copying is
            // ten times faster.
            strategy: if binaries.version >= 15 {
                "STRATEGY file_copy"
            } else {
                ""
            },
            own: Some(Own {
                lifeline,
                binaries,
                account,
            }),
        })
    }

    fn own(&self) -> Result<&Own, HarnessError> {
        let own = self.own.as_ref();
        own.ok_or_else(|| HarnessError::new("the server is not our own"))
    }

    /// A file in the folder of our own server.
    pub(crate) fn file(&self, name: &str) -> Result<PathBuf, HarnessError> {
        Ok(Path::new(self.own()?.lifeline.folder()).join(name))
    }

    /// Reads a file in the folder of our own server, such as `log`, or `password` for TCP.
    pub(crate) fn read(&self, name: &str) -> Result<String, HarnessError> {
        let file = self.file(name)?;
        let text = fs::read(&file)
            .map_err(|error| HarnessError::new(format!("{}: {error}", file.display())))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Makes our own server a standby from its next start on.
    pub(crate) fn note_standby(&self) -> Result<(), HarnessError> {
        let signal = self.file("data/standby.signal")?;
        let touched = self.own()?.account.command("touch").arg(signal).status();
        match touched {
            Ok(status) if status.success() => Ok(()),
            other => Err(HarnessError::new(format!("standby.signal: {other:?}"))),
        }
    }

    /// Runs an action of `pg_ctl` on our own server.
    pub(crate) fn control(&self, arguments: &[&str]) -> Result<(), HarnessError> {
        let log = self.file("log")?;
        let log = log.to_string_lossy();
        let options = ["-l", &log, "-w", "-t", "60"];
        self.run("pg_ctl", &[&options, arguments].concat())
    }

    /// Returns whether the server came with this program.
    pub(crate) fn has(&self, program: &str) -> bool {
        let own = self.own.as_ref();
        own.is_some_and(|own| own.binaries.program(program).exists())
    }

    /// Runs one of the server's programs on the data of our own server.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Result<(), HarnessError> {
        let own = self.own()?;
        let mut run = own.account.command(own.binaries.program(program));
        if let Some(lib) = &own.binaries.lib {
            run.env("LD_LIBRARY_PATH", lib);
        }
        let (data, output) = (self.file("data")?, self.file("output")?);
        // The processes that it starts would keep a pipe open.
        let said = File::create(&output).map_err(|error| HarnessError::new(error.to_string()))?;
        run.stdout(Stdio::null()).stderr(said);
        let status = run.arg("-D").arg(data).args(arguments).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            other => Err(HarnessError::new(format!(
                "{program} {arguments:?}: {other:?}: {}",
                fs::read_to_string(output).unwrap_or_default()
            ))),
        }
    }

    /// Makes our own stopped server a standby of another one that was promoted meanwhile. Changes
    /// that only this server has are lost.
    pub(crate) fn rewind(&self, primary: &Path) -> Result<(), HarnessError> {
        let primary = format!("host={} user=postgres dbname=postgres", primary.display());
        let settings = self.read("data/postgresql.conf")?;
        self.run(
            "pg_rewind",
            &["--no-sync", &format!("--source-server={primary}")],
        )?;
        let write = |name: &str, text: String| {
            let file = self.file(name)?;
            fs::write(&file, text)
                .map_err(|error| HarnessError::new(format!("{}: {error}", file.display())))
        };
        // The other server's settings came with its files.
        write("data/postgresql.conf", settings)?;
        let own = self.read("data/postgresql.auto.conf")?;
        write(
            "data/postgresql.auto.conf",
            format!("{own}primary_conninfo = '{primary}'\n"),
        )?;
        self.note_standby()
    }
}

/// The folder with the files of a new server, made when this process starts its second one.
fn template() -> Result<Option<String>, HarnessError> {
    static HAS_STARTED: AtomicBool = AtomicBool::new(false);
    match env::var(TEMPLATE) {
        Ok(folder) => Ok(Some(folder)),
        Err(_) if !HAS_STARTED.swap(true, Ordering::Relaxed) => Ok(None),
        Err(_) => made_template().map(|folder| Some(folder.to_owned())),
    }
}

fn made_template() -> Result<&'static str, HarnessError> {
    static MADE: OnceLock<Result<Server, HarnessError>> = OnceLock::new();
    let made = MADE.get_or_init(|| Server::start("template", None, None));
    Ok(made
        .as_ref()
        .map_err(Clone::clone)?
        .own()?
        .lifeline
        .folder())
}

/// Lets a process that a test starts copy the files of its servers from this one, which takes a
/// tenth of the time.
pub fn share_template(child: &mut Command) {
    if owns_server() && env::var_os(TEMPLATE).is_none() {
        let folder = made_template().unwrap_or_else(|error| panic!("{error}"));
        child.env(TEMPLATE, folder);
    }
}

/// Returns whether only this process uses the server, so that a test may damage it.
pub fn owns_server() -> bool {
    env::var_os(URL).is_none()
}
