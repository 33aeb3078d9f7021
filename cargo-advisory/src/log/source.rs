//! Reads the lines of files and of standard input, which can still grow.

use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::reader::Reader;
use super::record::Record;
use crate::failure::{Failure, Result, bail};

/// The number of bytes that are read at once.
const PIECE: usize = 1 << 16;

pub(super) struct Source {
    input: Input,
    path: PathBuf,
    length: u64,
    rest: Vec<u8>,
    reader: Reader,
}

enum Input {
    File(File),
    /// Standard input, read to its end.
    Stdin,
    /// Standard input, read by a thread so that checking for input does not block.
    Pieces(Receiver<io::Result<Vec<u8>>>),
    Ended,
}

pub(super) fn open(files: &[PathBuf], follows: bool) -> Result<Vec<Source>> {
    let stdin = || {
        let input = if follows {
            Input::Pieces(pieces())
        } else {
            Input::Stdin
        };
        Source::new(input, Path::new("-"))
    };
    if files.is_empty() {
        if io::stdin().is_terminal() {
            bail!("no log: name its file, or pipe it in");
        }
        return Ok(vec![stdin()]);
    }
    let open = |path: &PathBuf| {
        if path.as_os_str() == "-" {
            return Ok(stdin());
        }
        let file = File::open(path).map_err(|error| Failure::unread(path, error))?;
        Ok(Source::new(Input::File(file), path))
    };
    files.iter().map(open).collect()
}

/// Reads standard input in the background.
fn pieces() -> Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        loop {
            let piece = piece(&mut io::stdin());
            let is_over = piece.as_ref().map_or(true, Vec::is_empty);
            // The receiver is dropped when the command ends.
            if sender.send(piece).is_err() || is_over {
                return;
            }
        }
    });
    receiver
}

/// Reads the available bytes; empty at the end.
fn piece(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; PIECE];
    loop {
        match input.read(&mut piece) {
            Ok(count) => {
                piece.truncate(count);
                return Ok(piece);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Source {
    fn new(input: Input, path: &Path) -> Self {
        Self {
            input,
            path: path.to_owned(),
            length: 0,
            rest: Vec::new(),
            reader: Reader::default(),
        }
    }

    /// Reads what is available, and passes on each complete record. Returns `false` if nothing was
    /// read.
    pub(super) fn read(&mut self, take: &mut impl FnMut(Record)) -> Result<bool> {
        let mut has_read = false;
        loop {
            let read = match &mut self.input {
                Input::File(file) => piece(file),
                Input::Stdin => piece(&mut io::stdin()),
                Input::Pieces(pieces) => match pieces.try_recv() {
                    Ok(piece) => piece,
                    Err(_) => return Ok(has_read),
                },
                Input::Ended => return Ok(has_read),
            };
            let piece = read.map_err(|error| Failure::unread(&self.path, error))?;
            if piece.is_empty() {
                if let Input::Pieces(_) = self.input {
                    self.input = Input::Ended;
                }
                return Ok(has_read);
            }
            has_read = true;
            self.length += piece.len() as u64;
            self.rest.extend_from_slice(&piece);
            self.lines(take);
        }
    }

    fn lines(&mut self, take: &mut impl FnMut(Record)) {
        let mut start = 0;
        while let Some(length) = self.rest[start..].iter().position(|byte| *byte == b'\n') {
            let line = &self.rest[start..start + length];
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
            self.reader.line(&line, take);
            start += length + 1;
        }
        self.rest.drain(..start);
    }

    /// Passes on the last line, even without a line break, and the last record.
    pub(super) fn finish(&mut self, take: &mut impl FnMut(Record)) {
        if !self.rest.is_empty() {
            self.rest.push(b'\n');
            self.lines(take);
        }
        self.pause(take);
    }

    /// Passes on the record that could have been continued by another line. The server writes a
    /// message in one piece, so after a pause it is complete.
    pub(super) fn pause(&mut self, take: &mut impl FnMut(Record)) {
        if let (true, Some(record)) = (self.rest.is_empty(), self.reader.flush()) {
            take(record);
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.input, Input::Ended)
    }

    /// Continues with the file at the path if it is another one than before, or was truncated.
    pub(super) fn rotate(&mut self, take: &mut impl FnMut(Record)) -> Result<()> {
        let Input::File(old) = &self.input else {
            return Ok(());
        };
        // After the renaming of a file there is none until the next one is created.
        let (Ok(read), Ok(now)) = (old.metadata(), fs::metadata(&self.path)) else {
            return Ok(());
        };
        if is_same(&read, &now) && now.len() >= self.length {
            return Ok(());
        }
        let Ok(new) = File::open(&self.path) else {
            return Ok(());
        };
        // The old file can have grown after the last read.
        self.read(take)?;
        self.finish(take);
        *self = Self::new(Input::File(new), &self.path.clone());
        Ok(())
    }
}

#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// On other systems only a file that has become shorter is noticed.
#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}
