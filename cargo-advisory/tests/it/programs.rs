//! The programs that the command is tested on: the workspace `tests/fixtures`, built once.

use advisory_tests::futures::spawn_blocking;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{OnceLock, PoisonError, RwLock};

use advisory_pattern::{ClaimRecord, Record};
use advisory_tests::Database;

/// The output of a run of the command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn fine(self) -> Self {
        assert_eq!((self.code, &*self.err), (Some(0), ""), "{self:?}");
        self
    }
}

/// Read-locked by tests that use cargo's artifacts, and write-locked by those that rebuild a part
/// of them with other features, so that cargo replaces the program.
static BUILDS: RwLock<()> = RwLock::new(());

/// Runs the command in the fixtures' workspace, as cargo does.
pub(crate) fn advisory(words: &[&str]) -> Said {
    run(words, &[])
}

/// Like [`advisory`], with variables in the environment.
pub(crate) fn run(words: &[&str], variables: &[(&str, &str)]) -> Said {
    let _reads = BUILDS.read().unwrap_or_else(PoisonError::into_inner);
    said(words, variables, &fixtures())
}

/// Runs the command with a database, in a thread that may block.
pub(crate) async fn run_at(url: &str, words: &[&str]) -> Said {
    let url = url.to_owned();
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let running = move || {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        run(&words, &[("DATABASE_URL", &url)])
    };
    spawn_blocking(running).await.unwrap()
}

/// Like [`advisory`], in another folder with artifacts that no other test rebuilds.
pub(crate) fn advisory_in(folder: &Path, words: &[&str]) -> Said {
    said(words, &[], folder)
}

/// Like [`advisory`], for a command that rebuilds a part of the workspace.
pub(crate) fn run_alone(words: &[&str]) -> Said {
    let _replaces = BUILDS.write().unwrap_or_else(PoisonError::into_inner);
    said(words, &[], &fixtures())
}

/// The records in an artifact.
pub(crate) fn bytes(artifact: &str) -> Vec<u8> {
    let _reads = BUILDS.read().unwrap_or_else(PoisonError::into_inner);
    fs::read(artifact).unwrap()
}

fn said(words: &[&str], variables: &[(&str, &str)], folder: &Path) -> Said {
    let output = Command::new(env!("CARGO_BIN_EXE_cargo-advisory"))
        .arg("advisory")
        .args(words)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target())
        .env_remove("NO_COLOR")
        .env_remove("CARGO_TERM_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A program without a mistake: the three locks of a registry that a team kept by hand.
pub(crate) fn booking_service() -> String {
    built();
    program("booking-service")
}

/// A program with two libraries that can collide.
pub(crate) fn shop() -> String {
    built();
    program("shop")
}

/// The output of `cargo advisory build` for all of them.
pub(crate) fn built() -> &'static Said {
    static BUILT: OnceLock<Said> = OnceLock::new();
    BUILT.get_or_init(|| {
        // The versions that are already compiled.
        let lock = fixtures().join("../../Cargo.lock");
        fs::copy(lock, fixtures().join("Cargo.lock")).unwrap();
        advisory(&["build", "--workspace"])
    })
}

/// A file in a directory that tests may write to; its name has to be the test's own.
pub(crate) fn scratch(name: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    path.to_str().unwrap().to_owned()
}

/// Writes such a file.
pub(crate) fn file(name: &str, content: impl AsRef<[u8]>) -> String {
    let path = scratch(name);
    fs::write(&path, content).unwrap();
    path
}

/// The booking service's inventory, as JSON.
pub(crate) fn inventory() -> String {
    advisory(&["dump", "--format", "json", "--artifact", &booking_service()]).out
}

/// A file with these lock sites, in the form of a program's records.
pub(crate) fn program_of(name: &str, sites: &[Record]) -> String {
    let records: String = sites.iter().map(Record::encode).collect();
    file(name, format!("rust{records}"))
}

/// A lock site with these keys.
pub(crate) fn site(
    krate: &str,
    function: &str,
    line: u32,
    written: &[&str],
    keys: &[&str],
) -> Record {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Record {
        kind: "fn".into(),
        written: owned(written),
        keys: owned(keys),
        derivation: "sha256".into(),
        scope: "xact".into(),
        mode: "exclusive".into(),
        module: krate.into(),
        function: function.into(),
        file: "src/lib.rs".into(),
        line,
        krate: krate.into(),
        version: "1.0.0".into(),
        ..Record::default()
    }
}

/// A claim with these columns, by their arguments.
pub(crate) fn claim_record(table: &str, columns: &[(&str, &str)]) -> ClaimRecord {
    let columns = columns.iter();
    ClaimRecord {
        table: table.to_owned(),
        columns: columns
            .map(|(argument, column)| ((*argument).to_owned(), (*column).to_owned()))
            .collect(),
        module: "post".to_owned(),
        row: "Mail".to_owned(),
        krate: "post".to_owned(),
        ..ClaimRecord::default()
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// A lock site with one key, a pattern in canonical form. It is written without the shapes.
pub(crate) fn keyed(krate: &str, function: &str, line: u32, pattern: &str) -> Record {
    let mut written = String::new();
    for part in pattern.split_inclusive('>') {
        let (name, shape) = part.split_once(": ").unwrap_or((part, ""));
        written = written + name + if shape.is_empty() { "" } else { ">" };
    }
    let key = format!("pattern {pattern}");
    site(krate, function, line, &[&written], &[&key])
}

/// A lease with this key.
pub(crate) fn leased(function: &str, pattern: &str) -> Record {
    Record {
        scope: "lease".into(),
        ..keyed("svc", function, 7, pattern)
    }
}

fn program(name: &str) -> String {
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    let path = target().join("debug").join(file);
    path.to_str().unwrap().to_owned()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")
}

/// The target directory of the command's own tests, which contains most dependencies.
fn target() -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tmp.parent().unwrap().to_owned()
}

/// The words of a command line. None of them contains a space.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// The lines of a table of cases, split into their cells.
pub(crate) fn cases<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
    let cells =
        |line| <Vec<&str> as TryInto<[&str; N]>>::try_into(str::split(line, " | ").collect());
    table
        .lines()
        .map(move |line: &str| cells(line).unwrap_or_else(|_| panic!("{line}")))
}

#[track_caller]
pub(crate) fn assert_has(text: &(impl AsRef<str> + ?Sized), part: &str) {
    let text = text.as_ref();
    assert!(text.contains(part), "{part}: {text}");
}

#[track_caller]
pub(crate) fn assert_lacks(text: &(impl AsRef<str> + ?Sized), part: &str) {
    let text = text.as_ref();
    assert!(!text.contains(part), "{part}: {text}");
}

#[track_caller]
pub(crate) fn assert_starts(text: &(impl AsRef<str> + ?Sized), start: &str) {
    let text = text.as_ref();
    assert!(text.starts_with(start), "{start}: {text}");
}

#[track_caller]
pub(crate) fn assert_has_all(text: &(impl AsRef<str> + ?Sized), parts: &[&str]) {
    for part in parts {
        assert_has(text, part);
    }
}

#[track_caller]
pub(crate) fn assert_lacks_all(text: &(impl AsRef<str> + ?Sized), parts: &[&str]) {
    for part in parts {
        assert_lacks(text, part);
    }
}

/// pgbouncer with these settings; ends the test where it is not installed.
macro_rules! pooler {
    ($db:expr, $settings:expr) => {
        match advisory_tests::Bouncer::start($db, $settings).await {
            Ok(bouncer) => bouncer,
            Err(why) => return advisory_tests::left_out("pgbouncer", why),
        }
    };
}
pub(crate) use pooler;

/// The address of the database for another role.
pub(crate) fn url_as(db: &Database, role: &str) -> String {
    let (scheme, address) = db.url().split_once("://").unwrap();
    let address = address.rsplit_once('@').map_or(address, |(_, host)| host);
    format!("{scheme}://{role}@{address}")
}
