//! The lock sites and claims in a file.
//!
//! Nothing is run: the records are flat bytes in a separate section. The file can contain anything.

use std::path::Path;
use std::{fmt, fs};

use advisory_pattern::{ClaimRecord, Record, RecordError};
use object::read::archive::ArchiveFile;
use object::read::macho::{FatArch, MachOFatFile32, MachOFatFile64};
use object::{File, FileKind, Object, ObjectSection};

use crate::failure::Failure;

const SECTIONS: [&str; 3] = [".advisory", "__advisory", ".advsry"];

const COMPILED: [&[u8]; 3] = [b"rust", b"BC\xC0\xDE", b"\0asm"];

#[derive(Default)]
pub(crate) struct Records {
    pub(crate) sites: Vec<Record>,
    pub(crate) claims: Vec<ClaimRecord>,
}

impl Records {
    pub(crate) fn is_empty(&self) -> bool {
        self.sites.is_empty() && self.claims.is_empty()
    }

    pub(crate) fn add(&mut self, others: Self) {
        self.sites.extend(others.sites);
        self.claims.extend(others.claims);
    }
}

enum ReadError {
    /// Bytes start like a record, but are not one.
    Record(RecordError),
    /// The file breaks the rules of its format.
    Damaged(object::Error),
    NotAProgram,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(error) => error.fmt(f),
            Self::Damaged(error) => write!(f, "truncated or damaged: {error}"),
            Self::NotAProgram => f.write_str(
                "not a program, library or object file (ELF, Mach-O, PE or an archive of them)",
            ),
        }
    }
}

impl From<RecordError> for ReadError {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

impl From<object::Error> for ReadError {
    fn from(error: object::Error) -> Self {
        Self::Damaged(error)
    }
}

pub(crate) fn read(path: &Path) -> Result<Records, Failure> {
    let bytes = fs::read(path).map_err(|error| Failure::unread(path, error))?;
    records(&bytes).map_err(|error| Failure::file(path, error))
}

fn records(bytes: &[u8]) -> Result<Records, ReadError> {
    let mut found = Records::default();
    let is_complete = match sections(bytes, 0, &mut found) {
        Err(ReadError::NotAProgram) if COMPILED.iter().any(|start| bytes.starts_with(start)) => {
            false
        }
        result => result?,
    };
    if !is_complete {
        scan(bytes, &mut found)?;
    }
    for site in &found.sites {
        site.locks()?;
    }
    Ok(found)
}

/// Reads the sections of records. Returns `true` if the file has sections, so that no records are
/// outside of them.
fn sections(bytes: &[u8], depth: u8, found: &mut Records) -> Result<bool, ReadError> {
    let kind = FileKind::parse(bytes).map_err(|_| ReadError::NotAProgram)?;
    match kind {
        // Compilers put no archive into an archive.
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

fn object(bytes: &[u8], found: &mut Records) -> Result<bool, ReadError> {
    let file = File::parse(bytes)?;
    let mut has_sections = false;
    for section in file.sections() {
        has_sections = true;
        if section.name().is_ok_and(|name| SECTIONS.contains(&name)) {
            scan(section.data()?, found)?;
        }
    }
    Ok(has_sections)
}

fn members(bytes: &[u8], found: &mut Records) -> Result<bool, ReadError> {
    let mut is_complete = true;
    for member in ArchiveFile::parse(bytes)?.members() {
        let data = member?.data(bytes)?;
        is_complete &= match sections(data, 1, found) {
            Err(ReadError::Record(error)) => return Err(error.into()),
            // Bitcode, or a file that is not a program.
            result => result.unwrap_or(false),
        };
    }
    Ok(is_complete)
}

fn slices(bytes: &[u8], arches: &[impl FatArch], found: &mut Records) -> Result<bool, ReadError> {
    let mut is_complete = true;
    for arch in arches {
        is_complete &= match arch.data(bytes)? {
            archive if archive.starts_with(b"!<arch>") => members(archive, found)?,
            program => object(program, found)?,
        };
    }
    Ok(is_complete)
}

fn scan(bytes: &[u8], found: &mut Records) -> Result<(), RecordError> {
    found.sites.extend(Record::find_all(bytes)?);
    found.claims.extend(ClaimRecord::find_all(bytes)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use advisory_pattern::{ClaimRecord, Record, site_collisions};
    use advisory_tests::fuzz;

    use super::records;
    use crate::inventory::{Inventory, claim_path, keys, path};

    fn corpus(name: &str) -> String {
        format!("{}/tests/corpus/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    fn are_kept(bytes: &[u8]) {
        let Ok(found) = records(bytes) else { return };
        let inventory = Inventory::of(found);
        for site in &inventory.sites {
            assert_eq!(
                Record::find_all(site.encode().as_bytes()),
                Ok(vec![site.clone()])
            );
            for key in keys(site) {
                let _ = (key.number(), key.pair(), key.space(), key.is_fixed());
            }
            assert!(!path(site).contains(char::is_control));
        }
        for claim in &inventory.claims {
            let encoded = claim.encode();
            assert_eq!(
                ClaimRecord::find_all(encoded.as_bytes()),
                Ok(vec![claim.clone()])
            );
            assert!(!claim_path(claim).contains(char::is_control));
        }
        drop((inventory.summary(), site_collisions(&inventory.sites)));
    }

    #[test]
    fn any_file_is_read() {
        fuzz(&corpus("artifact"), are_kept);
    }

    /// Like [`any_file_is_read`], for bytes that need no format around them.
    #[test]
    fn any_record_is_read() {
        fuzz(&corpus("record"), |input| {
            are_kept(&[b"rust", input].concat());
        });
    }
}
