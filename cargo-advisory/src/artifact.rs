//! The lock sites and claims in a file.
//!
//! Nothing is run: the records are flat bytes in a separate section. The file can contain anything.

use std::fs;
use std::path::PathBuf;

use advisory_pattern::{ClaimRecord, Record, RecordError};
use object::read::archive::ArchiveFile;
use object::read::macho::{FatArch, MachOFatFile32, MachOFatFile64};
use object::{File, FileKind, Object, ObjectSection};

use crate::failure::{Failure, Result, bail};
use crate::inventory::Inventory;

const SECTIONS: [&str; 3] = [".advisory", "__advisory", ".advsry"];

const COMPILED: [&[u8]; 3] = [b"rust", b"BC\xC0\xDE", b"\0asm"];

/// Reads artifacts. If `has_records`, an artifact without records is refused: it is not the program
/// that takes the locks, or its linker has left them out, so nothing would be checked.
pub(crate) fn read(files: &[PathBuf], has_records: bool) -> Result<Inventory> {
    let mut all = Inventory::default();
    for file in files {
        let bytes = fs::read(file).map_err(|error| Failure::unread(file, error))?;
        let pieces = pieces(&bytes).map_err(|why| Failure::file(file, why))?;
        let found = records(&pieces).map_err(|error| Failure::file(file, error))?;
        if has_records && found == Inventory::default() {
            bail!(
                "`{}` has no lock sites: name the program that takes the locks, or leave `--artifact` out",
                file.display()
            );
        }
        all = all.and(found);
    }
    Ok(all)
}

fn records(pieces: &[&[u8]]) -> Result<Inventory, RecordError> {
    let mut found = Inventory::default();
    for bytes in pieces {
        found.sites.extend(Record::find_all(bytes)?);
        found.claims.extend(ClaimRecord::find_all(bytes)?);
    }
    for site in &found.sites {
        site.locks()?;
    }
    Ok(found)
}

/// The parts of a file that can have records: its sections for them, or else the whole file.
fn pieces(bytes: &[u8]) -> Result<Vec<&[u8]>, String> {
    let mut found = Vec::new();
    if COMPILED.iter().any(|start| bytes.starts_with(start)) {
        return Ok(vec![bytes]);
    }
    let Ok(kind) = FileKind::parse(bytes) else {
        let kinds = "not a program, library or object file (ELF, Mach-O, PE or an archive of them)";
        return Err(kinds.to_owned());
    };
    // A file with sections has no records outside of them.
    let has_sections = match kind {
        FileKind::Archive => members(bytes, &mut found),
        FileKind::MachOFat32 => {
            MachOFatFile32::parse(bytes).and_then(|fat| slices(bytes, fat.arches(), &mut found))
        }
        FileKind::MachOFat64 => {
            MachOFatFile64::parse(bytes).and_then(|fat| slices(bytes, fat.arches(), &mut found))
        }
        _ => object(bytes, &mut found),
    };
    if !has_sections.map_err(|error| format!("truncated or damaged: {error}"))? {
        found.push(bytes);
    }
    Ok(found)
}

fn object<'f>(bytes: &'f [u8], found: &mut Vec<&'f [u8]>) -> Result<bool, object::Error> {
    let file = File::parse(bytes)?;
    let mut has_sections = false;
    for section in file.sections() {
        has_sections = true;
        if section.name().is_ok_and(|name| SECTIONS.contains(&name)) {
            found.push(section.data()?);
        }
    }
    Ok(has_sections)
}

fn members<'f>(bytes: &'f [u8], found: &mut Vec<&'f [u8]>) -> Result<bool, object::Error> {
    let mut is_complete = true;
    for member in ArchiveFile::parse(bytes)?.members() {
        // Compilers put no archive into an archive. A member can be bitcode, or no program.
        is_complete &= object(member?.data(bytes)?, found).unwrap_or(false);
    }
    Ok(is_complete)
}

fn slices<'f>(
    bytes: &'f [u8],
    arches: &[impl FatArch],
    found: &mut Vec<&'f [u8]>,
) -> Result<bool, object::Error> {
    let mut is_complete = true;
    for arch in arches {
        is_complete &= match arch.data(bytes)? {
            archive if archive.starts_with(b"!<arch>") => members(archive, found)?,
            program => object(program, found)?,
        };
    }
    Ok(is_complete)
}

#[cfg(test)]
mod tests {
    use advisory_pattern::{ClaimRecord, Record, site_collisions};
    use advisory_tests::fuzz;

    use super::{pieces, records};
    use crate::inventory::{claim_path, keys, path};

    fn are_kept(bytes: &[u8]) {
        let Ok(Ok(found)) = pieces(bytes).map(|pieces| records(&pieces)) else {
            return;
        };
        let inventory = found.sorted();
        for site in &inventory.sites {
            let read = Record::find_all(site.encode().as_bytes());
            assert_eq!(read, Ok(vec![site.clone()]));
            for key in keys(site) {
                let _ = (key.number(), key.pair(), key.space(), key.is_fixed());
            }
            assert!(!path(site).contains(char::is_control));
        }
        for claim in &inventory.claims {
            let read = ClaimRecord::find_all(claim.encode().as_bytes());
            assert_eq!(read, Ok(vec![claim.clone()]));
            assert!(!claim_path(claim).contains(char::is_control));
        }
        drop((inventory.summary(), site_collisions(&inventory.sites)));
    }

    #[test]
    fn any_file_is_read() {
        fuzz("tests/corpus/artifact", are_kept);
    }

    /// Like [`any_file_is_read`], for bytes that need no format around them.
    #[test]
    fn any_record_is_read() {
        fuzz("tests/corpus/record", |input| {
            are_kept(&[b"rust", input].concat());
        });
    }
}
