//! The output: where it goes, how wide it can be, and whether it has colours.
//!
//! Styles are always written; `anstream` removes them in a pipe, in a file, with `NO_COLOR`, or as
//! `--color` says.

use std::fmt::{Display, Write as _};
use std::fs;
use std::io::{self, Write as _};
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anstyle::{AnsiColor, Style};

use crate::failure::{Failure, bail};

pub(crate) const PLAIN: Style = Style::new();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const KEY: Style = AnsiColor::Green.on_default();
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
pub(crate) const FRAME: Style = AnsiColor::Blue.on_default().bold();

/// A text from outside of this program, on one line and without characters that control a terminal.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        let letter = if controls_terminal(letter) {
            ' '
        } else {
            letter
        };
        // Queries have several lines, and indentation.
        if !(letter == ' ' && line.ends_with(' ')) {
            line.push(letter);
        }
    }
    line.trim().to_owned()
}

/// Returns whether a character controls a terminal instead of being displayed: control characters,
/// and those that change the direction of the text after them or are invisible.
pub(crate) fn controls_terminal(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A text from outside of this program, in which nothing controls a terminal: unlike [`one_line`],
/// with all its spaces and lines.
pub(crate) fn printable(text: &str) -> String {
    text.replace(|letter| letter != '\n' && controls_terminal(letter), " ")
}

/// A word for a shell, in a command that people copy.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ":_-./@".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// `1 lock`, `2 locks`.
pub(crate) fn plural(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// The items, with a separator between them.
pub(crate) fn joined(items: impl IntoIterator<Item = impl Display>, separator: &str) -> String {
    let mut text = String::new();
    for (nth, item) in items.into_iter().enumerate() {
        let separator = if nth > 0 { separator } else { "" };
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{separator}{item}");
    }
    text
}

/// `` `booking`, `room` ``: names from outside of this program.
pub(crate) fn in_backticks(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names = names.into_iter();
    joined(
        names.map(|name| format!("`{}`", one_line(name.as_ref()))),
        ", ",
    )
}

/// Writes to the file, and creates its folder, or to the standard output.
pub(crate) fn write(to: Option<&Path>, text: &str) -> Result<(), Failure> {
    if let Some(path) = to {
        let text = anstream::adapter::strip_str(text).to_string();
        let folder = path.parent().unwrap_or(Path::new(""));
        if !path.exists() && path.to_string_lossy().contains(['*', '?', '[']) {
            let why =
                "this pattern matches no file: write the path of the file, or create it first";
            return Err(Failure::file(path, why));
        }
        let fails = |what, path: &Path, error: io::Error| {
            Failure::Input(format!("cannot {what} `{}`: {error}", path.display()))
        };
        fs::create_dir_all(folder).map_err(|error| fails("create the folder", folder, error))?;
        return replace(path, &text).map_err(|error| fails("write", path, error));
    }
    print(text).map(drop)
}

/// Replaces the file as a whole, so that a write that fails leaves it as it was. A device or a pipe
/// is written to.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut path = path.to_owned();
    let mut new = tempfile::Builder::new();
    new.prefix(".advisory-");
    // The mode of a new file, before the process's mask.
    #[cfg(unix)]
    new.permissions(fs::Permissions::from_mode(0o666));
    let before = match fs::metadata(&path) {
        Ok(there) if !there.is_file() => return fs::write(path, text),
        Ok(there) => {
            // The target of a link, if it may be written.
            path = fs::canonicalize(path)?;
            fs::OpenOptions::new().write(true).open(&path)?;
            Some(there.permissions())
        }
        Err(_) => None,
    };
    // No file can be created in its folder, or renamed to it, as in a container that mounts only
    // this file.
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

/// Writes to the standard output; returns whether it is still open for reading, unlike with
/// `cargo advisory dump | head`.
pub(crate) fn print(text: &str) -> Result<bool, Failure> {
    let mut output = anstream::stdout();
    // After the last line break there can be what clears the rest of a terminal.
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        Ok(()) => Ok(true),
        Err(error) if is_gone(&error) => Ok(false),
        Err(error) => bail!("standard output: {error}"),
    }
}

/// Returns whether the other end of the standard output is gone: nobody reads the pipe, or the
/// terminal was closed, which a write reports as an input/output error.
fn is_gone(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    error.kind() == io::ErrorKind::BrokenPipe || cfg!(unix) && error.raw_os_error() == Some(EIO)
}

/// Returns whether the other end of the standard output is gone, also if nothing has been written
/// since. It never is for a file.
#[cfg(unix)]
pub(crate) fn is_closed() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let output = io::stdout();
    let mut watched = [PollFd::new(&output, PollFlags::empty())];
    let changed = poll(&mut watched, Some(&Timespec::default()));
    let events = PollFlags::ERR | PollFlags::HUP;
    changed.is_ok() && watched[0].revents().intersects(events)
}

/// Elsewhere only a write notices it.
#[cfg(not(unix))]
pub(crate) fn is_closed() -> bool {
    false
}

/// Writes a message for people, to the standard error.
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

/// The lines that a terminal on the standard output shows at once.
pub(crate) fn height() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(_, height)| usize::from(height.0))
}

#[cfg(test)]
mod tests {
    use super::{one_line, printable, shell_word};

    #[test]
    fn what_others_wrote_is_one_word_of_a_command() {
        assert_eq!(shell_word("webhook:42"), "webhook:42");
        assert_eq!(shell_word("<id>"), "'<id>'");
        assert_eq!(shell_word("a'; rm -rf ."), "'a'\\''; rm -rf .'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn what_others_wrote_steers_no_terminal() {
        assert_eq!(
            one_line("\u{1b}[2Jrm\n\t -rf\u{9b}31m \u{202e}gnirts\u{7f}"),
            "[2Jrm -rf 31m gnirts"
        );
        assert_eq!(one_line("naïve 日本"), "naïve 日本");
        assert_eq!(printable("a  b\n\u{9b}31m\u{202e}日本"), "a  b\n 31m 日本");
    }
}
