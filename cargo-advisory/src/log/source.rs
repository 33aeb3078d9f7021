//! The lines of files and of the standard input, also while they grow.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use super::record::{Reader, Record};
use crate::failure::Failure;

/// How much is read at once.
const PIECE: usize = 1 << 16;

/// A file, or the standard input.
pub(super) struct Source {
    input: Input,
    path: PathBuf,
    /// How much was read.
    length: u64,
    /// What is behind the last end of a line.
    rest: Vec<u8>,
    reader: Reader,
}

enum Input {
    File(File),
    /// Read to its end.
    Stdin,
    /// Read by a thread, so that it can be asked whether there is something.
    Pieces(Receiver<io::Result<Vec<u8>>>),
    Ended,
}

/// Opens the files; without one, and for `-`, the standard input.
pub(super) fn open(files: &[PathBuf], follows: bool) -> Result<Vec<Source>, Failure> {
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
            let why = "no log: name its file, or pipe it in";
            return Err(Failure::Input(why.to_owned()));
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

/// Reads the standard input in the background.
fn pieces() -> Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        loop {
            let piece = piece(&mut io::stdin());
            let is_over = piece.as_ref().map_or(true, Vec::is_empty);
            // Nobody listens once the command ends.
            if sender.send(piece).is_err() || is_over {
                return;
            }
        }
    });
    receiver
}

/// What there is; empty at the end.
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

    /// Reads what is available, and passes on each complete record; returns whether anything was read.
    pub(super) fn read(&mut self, take: &mut impl FnMut(Record)) -> Result<bool, Failure> {
        let mut has_read = false;
        loop {
            let read = match &mut self.input {
                Input::File(file) => piece(file),
                Input::Stdin => piece(&mut io::stdin()),
                Input::Pieces(pieces) => match pieces.try_recv() {
                    Ok(Ok(piece)) if piece.is_empty() => {
                        self.input = Input::Ended;
                        return Ok(has_read);
                    }
                    Ok(piece) => piece,
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => return Ok(has_read),
                },
                Input::Ended => return Ok(has_read),
            };
            let piece = read.map_err(|error| Failure::unread(&self.path, error))?;
            if piece.is_empty() {
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
            if let Some(record) = self.reader.line(&line) {
                take(record);
            }
            start += length + 1;
        }
        self.rest.drain(..start);
    }

    /// Takes the last line too, and the record that waits for another.
    pub(super) fn finish(&mut self, take: &mut impl FnMut(Record)) {
        if !self.rest.is_empty() {
            self.rest.push(b'\n');
            self.lines(take);
        }
        self.pause(take);
    }

    /// Takes the record that waits for another line: the server writes a message in one piece, so none comes after a pause.
    pub(super) fn pause(&mut self, take: &mut impl FnMut(Record)) {
        if let (true, Some(record)) = (self.rest.is_empty(), self.reader.flush()) {
            take(record);
        }
    }

    /// Whether nothing will come any more.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.input, Input::Ended)
    }

    /// Starts with the file that has replaced this one, or from the beginning of this one if it was truncated.
    pub(super) fn rotate(&mut self) {
        let is_shorter = fs::metadata(&self.path).is_ok_and(|now| now.len() < self.length);
        if let (Input::File(_), true) = (&self.input, is_shorter)
            && let Ok(file) = File::open(&self.path)
        {
            *self = Self::new(Input::File(file), &self.path.clone());
        }
    }
}
