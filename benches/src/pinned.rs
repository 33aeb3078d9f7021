//! Pinning of the client and its server to one processor.

use std::env;
use std::io;
use std::process::Command;

const IS_PINNED: &str = "ADVISORY_BENCHES_IS_PINNED";

/// Restarts this program on one processor, which its children inherit; `None` if it is pinned
/// already, or cannot be.
pub(crate) fn again() -> io::Result<Option<i32>> {
    if env::var_os(IS_PINNED).is_some() {
        return Ok(None);
    }
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", "0"]).arg(env::current_exe()?);
    command.args(env::args_os().skip(1)).env(IS_PINNED, "1");
    match command.status() {
        Ok(status) => Ok(Some(status.code().unwrap_or(1))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
