//! The output: its destination, its width and its colours.
//!
//! Styles are always written. `anstream` removes them in a pipe, in a file, with `NO_COLOR`, or as
//! `--color` says.

use std::fs;
use std::io::{self, Write as _};
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anstyle::{AnsiColor, Style};

use crate::failure::{Failure, Result, bail};

pub(crate) const PLAIN: Style = Style::new();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const KEY: Style = AnsiColor::Green.on_default();
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
pub(crate) const FRAME: Style = AnsiColor::Blue.on_default().bold();

/// Writes to the file, and creates its folder. Without a file, writes to the standard output.
pub(crate) fn write(to: Option<&Path>, text: &str) -> Result<()> {
    let Some(path) = to else {
        return print(text).map(drop);
    };
    let text = anstream::adapter::strip_str(text).to_string();
    let folder = path.parent().unwrap_or(Path::new(""));
    if !path.exists() && path.to_string_lossy().contains(['*', '?', '[']) {
        let why = "this pattern matches no file: write the path of the file, or create it first";
        return Err(Failure::file(path, why));
    }
    let fails = |what, path: &Path, error: io::Error| {
        Failure::Input(format!("cannot {what} `{}`: {error}", path.display()))
    };
    fs::create_dir_all(folder).map_err(|error| fails("create the folder", folder, error))?;
    replace(path, &text).map_err(|error| fails("write", path, error))
}

/// Replaces the file as a whole, so that a write that fails does not change it. A device or a pipe
/// is written directly.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut path = path.to_owned();
    let mut new = tempfile::Builder::new();
    new.prefix(".advisory-");
    // The mode of a new file, to which the mask of the process applies.
    #[cfg(unix)]
    new.permissions(fs::Permissions::from_mode(0o666));
    let before = match fs::metadata(&path) {
        Ok(there) if !there.is_file() => return fs::write(path, text),
        Ok(there) => {
            // The target of a link is replaced, if it may be written.
            path = fs::canonicalize(path)?;
            fs::OpenOptions::new().write(true).open(&path)?;
            Some(there.permissions())
        }
        Err(_) => None,
    };
    // For example, in a container that mounts only this file, no file can be created next to it, or
    // renamed to it.
    let directly = || fs::write(&path, text);
    let Ok(mut file) = new.tempfile_in(path.with_file_name("")) else {
        return directly();
    };
    file.write_all(text.as_bytes())?;
    if let Some(permissions) = before {
        file.as_file().set_permissions(permissions)?;
    }
    file.persist(&path).map(drop).or_else(|_| directly())
}

/// Writes to the standard output. Returns `false` if nobody reads it, as with
/// `cargo advisory dump | head`.
pub(crate) fn print(text: &str) -> Result<bool> {
    const EIO: i32 = 5;
    let mut output = anstream::stdout();
    // The code that clears the rest of a terminal can follow the last line break.
    let written = output.write_all(text.as_bytes());
    match written.and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        // A terminal that was closed is an input/output error.
        Err(error) if cfg!(unix) && error.raw_os_error() == Some(EIO) => Ok(false),
        Err(error) => bail!("standard output: {error}"),
    }
}

/// Returns `true` if the other end of the standard output is gone, even if nothing has been written
/// since. Returns `false` for a file.
#[cfg(unix)]
pub(crate) fn is_closed() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let output = io::stdout();
    let mut watched = [PollFd::new(&output, PollFlags::empty())];
    let changed = poll(&mut watched, Some(&Timespec::default()));
    let events = PollFlags::ERR | PollFlags::HUP;
    changed.is_ok() && watched[0].revents().intersects(events)
}

/// On other systems only a write notices it.
#[cfg(not(unix))]
pub(crate) fn is_closed() -> bool {
    false
}

pub(crate) fn note(text: &str) {
    // There is nowhere to report a failure.
    drop(anstream::stderr().write_all(text.as_bytes()));
}

/// The columns that a table on the standard output can use; `None` for a file, or if the standard
/// output is not a terminal.
pub(crate) fn width(to: Option<&Path>) -> Option<usize> {
    let width = terminal_size::terminal_size_of(io::stdout()).filter(|_| to.is_none());
    width.map(|(width, _)| usize::from(width.0))
}

pub(crate) fn height() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(_, height)| usize::from(height.0))
}
