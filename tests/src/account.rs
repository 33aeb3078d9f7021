//! The user that runs the server. PostgreSQL refuses to run as root.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::HarnessError;

/// The maximum length of a socket's path, less PostgreSQL's own `/.s.PGSQL.5432.lock` and our
/// `/advisory-XXXXXX`.
const LONGEST_FOLDER: usize = 103 - 20 - 16;

/// The user that the server's programs run as: this user, or another one if this is root.
#[derive(Clone, Copy)]
pub(crate) struct Account {
    other: Option<(u32, u32)>,
}

impl Account {
    /// This user; as root, `postgres`, else `nobody`.
    pub(crate) fn find() -> Result<Self, HarnessError> {
        if id(&["-u"]) != Some(0) {
            return Ok(Self { other: None });
        }
        let other = ["postgres", "nobody"]
            .iter()
            .find_map(|name| Some((id(&["-u", name])?, id(&["-g", name])?)));
        match other {
            Some(ids) => Ok(Self { other: Some(ids) }),
            None => Err(HarnessError::new(
                "PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as: \
                 run this as an ordinary user, or set ADVISORY_TEST_DATABASE_URL",
            )),
        }
    }

    pub(crate) fn is_other(self) -> bool {
        self.other.is_some()
    }

    /// A command that runs as this user.
    pub(crate) fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some((uid, gid)) = self.other {
            command.uid(uid).gid(gid);
        }
        // The other user may not have access to the current folder.
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    /// Returns whether this user may create files in `folder`.
    fn can_write(self, folder: &Path) -> bool {
        let test = "test -d \"$0\" && test -w \"$0\" && test -x \"$0\"";
        self.command("sh")
            .args(["-c", test])
            .arg(folder)
            .status()
            .is_ok_and(|status| status.success())
    }

    /// The first folder for temporary files that it can use and that is short enough for a socket.
    pub(crate) fn temp_folder(self) -> Result<PathBuf, HarnessError> {
        let mut folders = [env::temp_dir(), "/tmp".into(), "/var/tmp".into()].into_iter();
        let fits = |folder: &PathBuf| {
            folder.is_absolute()
                && folder.as_os_str().len() <= LONGEST_FOLDER
                && self.can_write(folder)
        };
        folders.find(fits).ok_or_else(|| {
            HarnessError::new(
                "no folder for the server: make /tmp writable, or set TMPDIR to a short path",
            )
        })
    }
}

fn id(args: &[&str]) -> Option<u32> {
    let output = Command::new("id")
        .args(args)
        .stderr(Stdio::null())
        .output()
        .ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
