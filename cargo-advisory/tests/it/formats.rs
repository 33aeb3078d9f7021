//! Records are found in every format that a compiler writes, not only this machine's.

use advisory_pattern::Record;
use object::write::{Object, pe};
use object::{Architecture, BinaryFormat, Endianness, SectionKind};
use proptest::prelude::*;

use crate::programs::{advisory, assert_has, assert_has_all, assert_starts, file, site};

/// Two records in a linker's layout: with padding between them.
fn records(version: &str) -> Vec<u8> {
    let site = |function: &str, number: &str| Record {
        version: version.to_owned(),
        ..site(
            "ported",
            function,
            7,
            &[number],
            &[&format!("number {number}")],
        )
    };
    let (first, second) = (site("first", "1"), site("second", "2"));
    let (first, second) = (first.encode(), second.encode());
    [first.as_bytes(), &[0; 16], second.as_bytes()].concat()
}

fn object(format: BinaryFormat, architecture: Architecture, endianness: Endianness) -> Vec<u8> {
    holding(&records("0.1.0"), format, architecture, endianness)
}

fn holding(
    records: &[u8],
    format: BinaryFormat,
    architecture: Architecture,
    endianness: Endianness,
) -> Vec<u8> {
    let (segment, section) = match format {
        BinaryFormat::MachO => ("__DATA", "__advisory"),
        BinaryFormat::Coff => ("", ".advsry"),
        _ => ("", ".advisory"),
    };
    let mut object = Object::new(format, architecture, endianness);
    let kind = SectionKind::ReadOnlyData;
    let text = object.add_section(Vec::new(), b".text".to_vec(), SectionKind::Text);
    object.append_section_data(text, &[0x90; 64], 16);
    let id = object.add_section(segment.into(), section.into(), kind);
    object.append_section_data(id, records, 1);
    object.write().unwrap()
}

fn elf() -> Vec<u8> {
    object(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little)
}

fn mach_o(architecture: Architecture) -> Vec<u8> {
    object(BinaryFormat::MachO, architecture, Endianness::Little)
}

fn coff() -> Vec<u8> {
    object(BinaryFormat::Coff, Architecture::X86_64, Endianness::Little)
}

/// A program for Windows with one section.
fn windows() -> Vec<u8> {
    let mut program = Vec::new();
    let mut writer = pe::Writer::new(true, 0x1000, 0x200, &mut program);
    let data = records("0.1.0");
    let length = u32::try_from(data.len()).unwrap();
    writer.reserve_dos_header_and_stub();
    writer.reserve_nt_headers(16);
    writer.reserve_section_headers(1);
    let flags = object::pe::IMAGE_SCN_CNT_INITIALIZED_DATA | object::pe::IMAGE_SCN_MEM_READ;
    let range = writer.reserve_section(*b".advsry\0", flags, length, length);
    writer.write_dos_header_and_stub().unwrap();
    writer.write_nt_headers(pe::NtHeaders {
        machine: object::pe::IMAGE_FILE_MACHINE_AMD64,
        time_date_stamp: 0,
        characteristics: object::pe::IMAGE_FILE_EXECUTABLE_IMAGE,
        major_linker_version: 0,
        minor_linker_version: 0,
        address_of_entry_point: 0,
        image_base: 0x1_4000_0000,
        major_operating_system_version: 0,
        minor_operating_system_version: 0,
        major_image_version: 0,
        minor_image_version: 0,
        major_subsystem_version: 0,
        minor_subsystem_version: 0,
        subsystem: object::pe::IMAGE_SUBSYSTEM_WINDOWS_CUI,
        dll_characteristics: object::pe::DllFlags::default(),
        size_of_stack_reserve: 0,
        size_of_stack_commit: 0,
        size_of_heap_reserve: 0,
        size_of_heap_commit: 0,
    });
    writer.write_section_headers();
    writer.write_section(range.file_offset, &data);
    program
}

/// One file with programs for two processors, as macOS ships them.
fn universal() -> Vec<u8> {
    let slices = [
        (0x0100_0007_u32, mach_o(Architecture::X86_64)),
        (0x0100_000c, mach_o(Architecture::Aarch64)),
    ];
    let mut header = [0xcafe_babe_u32, 2].map(u32::to_be_bytes).concat();
    let mut body = Vec::new();
    for (processor, slice) in slices {
        let at = 4096 + body.len();
        let numbers = [at, slice.len()].map(|number| u32::try_from(number).unwrap());
        for number in [processor, 0, numbers[0], numbers[1], 3] {
            header.extend(number.to_be_bytes());
        }
        body.extend(slice);
        body.resize(body.len().next_multiple_of(8), 0);
    }
    header.resize(4096, 0);
    [header, body].concat()
}

/// An archive of these files.
fn archive(members: &[&[u8]]) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (nth, member) in members.iter().enumerate() {
        let name = format!("{nth}.o/");
        let size = member.len();
        archive
            .extend(format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644).bytes());
        archive.extend(*member);
        archive.resize(archive.len().next_multiple_of(2), b'\n');
    }
    archive
}

fn holds_both(name: &str, program: &[u8]) {
    let said = advisory(&["dump", "--artifact", &file(name, program)]).exits(0);
    assert_has_all(
        &said.out,
        &[
            "ported::first",
            "ported::second",
            "2 lock sites in 1 crate: ported 0.1.0 (2)",
        ],
    );
}

#[test]
fn elf_of_either_byte_order() {
    holds_both("elf.o", &elf());
    let big = object(BinaryFormat::Elf, Architecture::S390x, Endianness::Big);
    holds_both("elf-big.o", &big);
}

#[test]
fn mach_o_of_one_or_more_processors() {
    holds_both("mach.o", &mach_o(Architecture::Aarch64));
    holds_both("universal", &universal());
}

#[test]
fn coff_and_pe() {
    holds_both("coff.obj", &coff());
    holds_both("windows.exe", &windows());
}

#[test]
fn archives_and_what_holds_no_sections() {
    holds_both(
        "mixed.a",
        &archive(&[b"BC\xc0\xde bitcode", &elf(), &mach_o(Architecture::X86_64)]),
    );
    let metadata = [b"rust\0\0\0\x09", &records("0.1.0")[..]].concat();
    holds_both("library.rmeta", &metadata);
    holds_both(
        "bitcode.rlib",
        &archive(&[b"BC\xc0\xde bitcode", &metadata]),
    );
}

#[test]
fn two_versions_of_a_crate_are_one_lock_and_two_crates_are_not() {
    let program = |name: &str, records: &[u8]| {
        let (format, architecture) = (BinaryFormat::Elf, Architecture::X86_64);
        let program = holding(records, format, architecture, Endianness::Little);
        file(name, program)
    };
    let old = program("version-old.o", &records("0.1.0"));
    let new = program("version-new.o", &records("0.2.0"));
    advisory(&["check", "--artifact", &old, "--artifact", &new]).exits(0);
    let copied = String::from_utf8(records("0.1.0")).unwrap();
    let copied = program(
        "copied.o",
        copied.replace("crate=ported", "crate=copied").as_bytes(),
    );
    let said = advisory(&["check", "--artifact", &old, "--artifact", &copied]);
    assert_has(&said.out, "error: 2 findings");
}

#[test]
fn an_unknown_record_is_refused_with_the_files_name() {
    let known = String::from_utf8(records("0.1.0")).unwrap();
    let metadata = |name: &str, from: &str, to: &str| {
        let records = known.replace(from, to);
        file(name, format!("rust{records}"))
    };
    let cut = metadata("cut.rmeta", "\u{1d}", "");
    let derivation = metadata("derivation.rmeta", "=sha256", "=crc32");
    let key = metadata("key.rmeta", "keys=number 1", "keys=colour 1");
    for (path, why) in [
        (&cut, "cut short"),
        (&derivation, "`crc32`"),
        (&key, "`colour 1`"),
    ] {
        let said = advisory(&["dump", "--artifact", path]).exits(2);
        assert_starts(&said.err, &format!("error: `{path}`: "));
        assert_has(&said.err, why);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Damage anywhere gives an error or a result, never a panic.
    #[test]
    fn damage_is_survived(
        which in 0..6_usize,
        cut in prop::option::of(any::<prop::sample::Index>()),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
    ) {
        let mut program = match which {
            0 => elf(),
            1 => mach_o(Architecture::X86_64),
            2 => coff(),
            3 => windows(),
            4 => universal(),
            _ => archive(&[&elf(), &coff()]),
        };
        for (at, byte) in damage {
            // Most errors are in the headers.
            let at = at.index(program.len().min(2048));
            program[at] = byte;
        }
        if let Some(cut) = cut {
            program.truncate(cut.index(program.len()));
        }
        let path = file("damaged", &program);
        let said = advisory(&["dump", "--artifact", &path]);
        match said.code {
            Some(0) => prop_assert_eq!(said.err, ""),
            Some(2) => {
                prop_assert!(said.err.starts_with(&format!("error: `{path}`: ")), "{}", said.err);
                prop_assert_eq!(said.out, "");
            }
            code => prop_assert!(false, "{:?}: {}", code, said.err),
        }
    }
}
