//! The instructions that a program executes. `valgrind` counts those of user space, in a server's
//! session and in its client.

use advisory_tests::OwnServer;
use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

const SERVER: &str = "valgrind --tool=callgrind --quiet";
/// The part of the file's name before the process id.
const OUT: &str = "callgrind.out.";
/// How long a session may take to end and to write its counts.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that counts instructions for each session.
pub(crate) struct Counting {
    server: OwnServer,
    /// The folder for the counts.
    folder: PathBuf,
    seen: BTreeSet<PathBuf>,
}

/// The instructions of one run of a client, from start to end.
#[derive(Clone, Copy)]
pub(crate) struct Totals {
    pub(crate) server: i64,
    pub(crate) client: i64,
}

/// Whether valgrind is installed.
pub(crate) fn is_installed() -> io::Result<bool> {
    let mut version = Command::new("valgrind");
    version.arg("--version").stdout(Stdio::null());
    match version.status() {
        Ok(status) => Ok(status.success()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl Counting {
    pub(crate) async fn start() -> Result<Self, Box<dyn Error>> {
        let server = OwnServer::start_under(SERVER).await?;
        let log = server.file("log");
        let folder = log.parent().ok_or("the log is in a folder")?.to_owned();
        let seen = BTreeSet::new();
        Ok(Self {
            server,
            folder,
            seen,
        })
    }

    pub(crate) fn url(&self) -> &str {
        self.server.url()
    }

    /// Waits until these processes of the server have ended, and discards the counts of all that
    /// have ended so far.
    pub(crate) async fn forget(&mut self, processes: &[i32]) -> Result<(), Box<dyn Error>> {
        let start = Instant::now();
        for process in processes {
            let file = self.folder.join(format!("{OUT}{process}"));
            while !file.exists() || total(&file)?.is_none() {
                wait(start).await?;
            }
        }
        let written = self.written()?;
        self.seen.extend(written);
        Ok(())
    }

    /// Runs this program with `words`, under valgrind. It opens one session; no other program opens
    /// one.
    pub(crate) async fn totals(&mut self, words: Vec<String>) -> Result<Totals, Box<dyn Error>> {
        let file = env::temp_dir().join(format!("advisory-benches-{}.out", std::process::id()));
        let mut client = Command::new("valgrind");
        client.args(["--tool=callgrind", "--quiet"]);
        client.arg(format!("--callgrind-out-file={}", file.display()));
        client.arg(env::current_exe()?).args(words);
        run(client).await?;
        let client = total(&file)?.ok_or("valgrind wrote no total")?;
        fs::remove_file(&file)?;
        let start = Instant::now();
        loop {
            let unseen = self.unseen()?;
            if let [session] = unseen.as_slice() {
                if let Some(server) = total(session)? {
                    self.seen.extend(unseen);
                    return Ok(Totals { server, client });
                }
            } else if unseen.len() > 1 {
                return Err("more than one session ended: whose are the instructions?".into());
            }
            wait(start).await?;
        }
    }

    fn unseen(&self) -> io::Result<Vec<PathBuf>> {
        let written = self.written()?;
        Ok(written.difference(&self.seen).cloned().collect())
    }

    fn written(&self) -> io::Result<BTreeSet<PathBuf>> {
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default();
            if name.as_encoded_bytes().starts_with(OUT.as_bytes()) {
                found.insert(path);
            }
        }
        Ok(found)
    }
}

/// Runs this program with `words`, without valgrind.
pub(crate) async fn call(words: Vec<String>) -> Result<(), Box<dyn Error>> {
    let mut client = Command::new(env::current_exe()?);
    client.args(words);
    run(client).await
}

/// The runtime keeps running meanwhile: a proxy may be on it.
async fn run(mut command: Command) -> Result<(), Box<dyn Error>> {
    let Output { status, stderr, .. } = spawn_blocking(move || command.output()).await??;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{status}: {}", String::from_utf8_lossy(&stderr)).into())
    }
}

async fn wait(start: Instant) -> Result<(), Box<dyn Error>> {
    if start.elapsed() > PATIENCE {
        return Err("no session under valgrind has written what it counted".into());
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing tells that a file is written"
    )]
    sleep(Duration::from_millis(20)).await;
    Ok(())
}

/// `None` until it is completely written.
fn total(file: &Path) -> io::Result<Option<i64>> {
    let text = fs::read_to_string(file)?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    Ok(total.and_then(|total| total.trim().parse().ok()))
}
