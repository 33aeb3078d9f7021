//! The server's programs on this system.
//!
//! `PATH`, `pg_config --bindir`, then the places where packagers put them, newest major version
//! first.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::account::Account;

/// A folder with `initdb`, `pg_ctl` and `postgres` in it.
#[derive(Clone, Debug)]
pub(crate) struct Binaries {
    pub(crate) bin: PathBuf,
    /// For `LD_LIBRARY_PATH`: the libraries that come with a relocated build.
    pub(crate) lib: Option<PathBuf>,
    /// The server's major version.
    pub(crate) version: u32,
}

/// The oldest server that the library supports.
const OLDEST: u32 = 15;

/// `(folder, the start of the names below it, the rest of the path)`; the name ends in a version.
const PLACES: &[(&str, &str, &str)] = &[
    ("/usr/lib/postgresql", "", "bin"),         // Debian, Ubuntu
    ("/usr", "pgsql-", "bin"),                  // PostgreSQL's own RPMs
    ("/usr/lib", "postgresql", "bin"),          // openSUSE
    ("/usr/lib64", "postgresql", "bin"),        // Gentoo
    ("/usr/libexec", "postgresql", ""),         // Alpine
    ("/opt/homebrew/opt", "postgresql", "bin"), // Homebrew, Apple silicon
    ("/usr/local/opt", "postgresql", "bin"),    // Homebrew, Intel
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"), // Homebrew, Linux
    ("/opt/local/lib", "postgresql", "bin"),    // MacPorts
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"), // Postgres.app
    ("/Library/PostgreSQL", "", "bin"),         // EnterpriseDB's installer
];

/// Fedora, Arch and FreeBSD: usually in `PATH`, but not always in that of `cron` and `sudo`.
const PLAIN: &[&str] = &["/usr/bin", "/usr/local/bin"];

impl Binaries {
    /// A program in the folder of `pg_ctl`, or in the folder that `pg_ctl` links to.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let program = self.bin.join(name);
        let linked = self.bin.join("pg_ctl").canonicalize();
        match linked {
            Ok(linked) if !program.exists() => linked.with_file_name(name),
            _ => program,
        }
    }

    /// The programs in `bin`, if they are all there, of a supported version, and `account` can run
    /// them.
    pub(crate) fn at(bin: &Path, lib: Option<&Path>, account: Account) -> Option<Self> {
        if !["initdb", "pg_ctl", "postgres"]
            .iter()
            .all(|name| bin.join(name).is_file())
        {
            return None;
        }
        let mut postgres = account.command(bin.join("postgres"));
        if let Some(lib) = lib {
            postgres.env("LD_LIBRARY_PATH", lib);
        }
        let output = postgres
            .arg("--version")
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let version = String::from_utf8(output.stdout).ok()?;
        let version = major(version.rsplit(") ").next()?);
        let (bin, lib) = (bin.to_owned(), lib.map(Path::to_owned));
        (version >= OLDEST).then_some(Self { bin, lib, version })
    }

    /// The programs of a build that was unpacked into a folder, with its libraries.
    pub(crate) fn unpacked_at(bin: &Path, account: Account) -> Option<Self> {
        let bin = bin.canonicalize().ok()?;
        Self::at(&bin, Some(&bin.parent()?.join("lib")), account)
    }

    /// The first usable folder of this system.
    pub(crate) fn find(account: Account) -> Option<Self> {
        candidates()
            .iter()
            .find_map(|bin| Self::at(bin, None, account))
    }
}

fn candidates() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .collect();
    if let Ok(output) = Command::new("pg_config")
        .arg("--bindir")
        .stderr(Stdio::null())
        .output()
    {
        folders.push(String::from_utf8_lossy(&output.stdout).trim().into());
    }
    for (parent, prefix, suffix) in PLACES {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
        names.sort_by_key(|name| std::cmp::Reverse(major(name)));
        folders.extend(
            names
                .iter()
                .map(|name| Path::new(parent).join(name).join(suffix)),
        );
    }
    folders.extend(PLAIN.iter().map(PathBuf::from));
    folders
}

/// The first number in `text`: 17 of `17.2`, `postgresql@17` and `pgsql-17`; 0 if there is none.
fn major(text: &str) -> u32 {
    let digits = text
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit);
    digits.collect::<String>().parse().unwrap_or(0)
}
