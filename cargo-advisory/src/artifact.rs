//! Which lock sites does a file hold?
//!
//! Nothing is run: the records are flat bytes in a section of their own. The file can be anything, so every answer is a result.

use std::path::Path;
use std::{fmt, fs};

use advisory_pattern::{Record, RecordError};
use object::read::archive::ArchiveFile;
use object::read::macho::{FatArch, MachOFatFile32, MachOFatFile64};
use object::{File, FileKind, Object, ObjectSection};

use crate::failure::Failure;

/// The records' section in ELF, in Mach-O (behind its segment) and in PE or COFF.
const SECTIONS: [&str; 3] = [".advisory", "__advisory", ".advsry"];

/// How files start that hold a program's bytes, but no sections that can be found: Rust's metadata, LLVM's bitcode, WebAssembly.
const COMPILED: [&[u8]; 3] = [b"rust", b"BC\xC0\xDE", b"\0asm"];

/// Why a file's lock sites cannot be told.
enum Trouble {
    /// Something starts like a record, and is none.
    Record(RecordError),
    /// A known format that is not kept to.
    Damaged(object::Error),
    /// No program at all.
    Foreign,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(error) => error.fmt(f),
            Self::Damaged(error) => write!(f, "the file is cut short or damaged: {error}"),
            Self::Foreign => f.write_str(
                "no program, library or object file (ELF, Mach-O, PE or an archive of them)",
            ),
        }
    }
}

impl From<RecordError> for Trouble {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

impl From<object::Error> for Trouble {
    fn from(error: object::Error) -> Self {
        Self::Damaged(error)
    }
}

/// Reads the file's lock sites, each once.
pub(crate) fn read(path: &Path) -> Result<Vec<Record>, Failure> {
    let bytes = fs::read(path).map_err(|error| Failure::unread(path, error))?;
    sites(&bytes).map_err(|trouble| Failure::file(path, trouble))
}

/// Reads the lock sites of a file's bytes, each once, and checks that this version understands all of each.
fn sites(bytes: &[u8]) -> Result<Vec<Record>, Trouble> {
    let mut found = Vec::new();
    let is_whole = match sections(bytes, 0, &mut found) {
        Err(Trouble::Foreign) if COMPILED.iter().any(|start| bytes.starts_with(start)) => false,
        seen => seen?,
    };
    if !is_whole {
        scan(bytes, &mut found)?;
    }
    found.sort();
    found.dedup();
    for site in &found {
        site.locks()?;
    }
    Ok(found)
}

/// Reads the records' sections; tells whether there is nothing else to look at.
fn sections(bytes: &[u8], depth: u8, found: &mut Vec<Record>) -> Result<bool, Trouble> {
    let kind = FileKind::parse(bytes).map_err(|_| Trouble::Foreign)?;
    match kind {
        // No compiler puts archives into archives.
        FileKind::Archive if depth == 0 => members(bytes, found),
        FileKind::MachOFat32 if depth == 0 => {
            slices(bytes, MachOFatFile32::parse(bytes)?.arches(), found)
        }
        FileKind::MachOFat64 if depth == 0 => {
            slices(bytes, MachOFatFile64::parse(bytes)?.arches(), found)
        }
        _ => object(bytes, found),
    }
}

fn object(bytes: &[u8], found: &mut Vec<Record>) -> Result<bool, Trouble> {
    let file = File::parse(bytes)?;
    let mut is_named = false;
    for section in file.sections() {
        is_named = true;
        if section.name().is_ok_and(|name| SECTIONS.contains(&name)) {
            scan(section.data()?, found)?;
        }
    }
    Ok(is_named)
}

fn members(bytes: &[u8], found: &mut Vec<Record>) -> Result<bool, Trouble> {
    let mut is_whole = true;
    for member in ArchiveFile::parse(bytes)?.members() {
        let data = member?.data(bytes)?;
        is_whole &= match sections(data, 1, found) {
            Err(Trouble::Record(error)) => return Err(error.into()),
            // Bitcode, or whatever else the archive's owner keeps there.
            seen => seen.unwrap_or(false),
        };
    }
    Ok(is_whole)
}

fn slices(bytes: &[u8], arches: &[impl FatArch], found: &mut Vec<Record>) -> Result<bool, Trouble> {
    let mut is_whole = true;
    for arch in arches {
        is_whole &= match arch.data(bytes)? {
            archive if archive.starts_with(b"!<arch>") => members(archive, found)?,
            program => object(program, found)?,
        };
    }
    Ok(is_whole)
}

/// Reads the records wherever they stand.
fn scan(bytes: &[u8], found: &mut Vec<Record>) -> Result<(), RecordError> {
    found.extend(Record::find_all(bytes)?);
    Ok(())
}
