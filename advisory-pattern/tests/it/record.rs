//! A site's records are found among any other bytes, and nothing else is.

use advisory_pattern::{
    LockedKey, MODULE_PATH, MOST_PERMITS, Permits, RECORD_VERSION, Record, RecordError, decode_key,
    encode_key,
};
use proptest::prelude::*;

use crate::pattern;

/// The start of every record, in every release.
const START: &[u8] = b"\x1eadvisory lock site\x1f";

fn text() -> impl Strategy<Value = String> {
    // Everything but control characters: those become spaces.
    "[^\\p{Cc}]{0,12}"
}

fn permits() -> impl Strategy<Value = Permits> {
    prop_oneof![
        (1..=MOST_PERMITS).prop_map(Permits::Number),
        text().prop_map(|text| Permits::Expression(format!("self.{text}"))),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let texts = (
        text(),
        text(),
        text(),
        text(),
        text(),
        text(),
        text(),
        text(),
    );
    let optional = prop::array::uniform11(prop::option::of(text()));
    let keys = prop::collection::vec((text(), text()), 1..4);
    let overlaps = prop::collection::vec((text(), text()), 0..3);
    let numbers = (any::<u32>(), prop::option::of(permits()));
    let fields = (texts, optional, keys, overlaps, numbers);
    fields.prop_map(|(texts, optional, keys, allow_overlap, (line, permits))| {
        let (kind, derivation, scope, mode, module, function, file, krate) = texts;
        let [
            name,
            component,
            purpose,
            wait,
            poll,
            max_hold,
            isolation,
            allow_ambiguous,
            ttl,
            renew,
            keep,
        ] = optional;
        let (written, keys) = keys.into_iter().unzip();
        let with = allow_overlap.clone();
        let guards = allow_overlap.iter().map(|(name, _)| name.clone());
        Record {
            kind,
            name,
            component,
            purpose,
            written,
            keys,
            with,
            derivation,
            scope,
            mode,
            wait,
            poll,
            permits,
            max_hold,
            isolation,
            ttl,
            renew,
            keep,
            guards: guards.collect(),
            allow_overlap,
            allow_redundant: allow_ambiguous.clone(),
            allow_ambiguous,
            module,
            function,
            file,
            line,
            version: krate.clone(),
            krate,
        }
    })
}

/// Bytes that often look like the start of a record, its separators or its end.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..8),
        1 => prop::sample::select(vec![0x1a_u8, 0x1c, 0x1d, 0x1e, 0x1f]).prop_map(|byte| vec![byte]),
        1 => Just(START.to_vec()),
        1 => Just(b"1\x1fkind=fn\x1fline=7".to_vec()),
        1 => record().prop_map(|record| record.encode().into_bytes()),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

/// Bytes in which no record starts.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let noise = prop::collection::vec(any::<u8>(), 0..40);
    noise.prop_map(|bytes| bytes.into_iter().filter(|byte| *byte != 0x1e).collect())
}

fn sorted(mut records: Vec<Record>) -> Vec<Record> {
    records.sort();
    records.dedup();
    records
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in bytes()) {
        if let Ok(records) = Record::find_all(&bytes) {
            for record in records {
                drop(record.locks());
            }
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written(record in record()) {
        prop_assert_eq!(Record::find_all(record.encode().as_bytes()), Ok(vec![record]));
    }

    #[test]
    fn adjacent_records_are_split_and_equal_ones_are_one(
        records in prop::collection::vec((noise(), record()), 0..5),
        after in noise(),
    ) {
        let mut bytes = Vec::new();
        for (noise, record) in &records {
            bytes.extend(noise);
            bytes.extend(record.encode().bytes());
            bytes.extend(record.encode().bytes());
        }
        bytes.extend(after);
        let records = records.into_iter().map(|(_, record)| record).collect();
        prop_assert_eq!(Record::find_all(&bytes), Ok(sorted(records)));
    }

    #[test]
    fn a_record_that_is_cut_swallows_no_neighbour(record in record(), neighbour in record()) {
        let whole = record.encode().into_bytes();
        let marker = START.len();
        for length in 0..whole.len() {
            let cut = &whole[..length];
            let alone = Record::find_all(cut);
            let joined = Record::find_all(&[cut, neighbour.encode().as_bytes()].concat());
            if length < marker {
                prop_assert_eq!(alone, Ok(Vec::new()));
                prop_assert_eq!(joined, Ok(vec![neighbour.clone()]));
            } else {
                prop_assert_eq!(alone, Err(RecordError::Truncated));
                prop_assert_eq!(joined, Err(RecordError::Truncated));
            }
        }
    }

    #[test]
    fn nothing_in_a_record_steers_a_terminal(field in "\\PC{0,3}[\\x00-\\x19\\x1b\\x7f-\\x9f]\\PC{0,3}") {
        let kind = format!("\u{1e}advisory lock site\u{1f}1\u{1f}kind={field}\u{1d}");
        for record in Record::find_all(kind.as_bytes()).unwrap() {
            prop_assert!(!record.kind.contains(char::is_control), "{:?}", record.kind);
        }
    }

    #[test]
    fn a_key_is_read_as_it_was_written(
        number in any::<i64>(),
        first in any::<Option<i32>>(),
        second in any::<Option<i32>>(),
    ) {
        for key in [LockedKey::BigInt(number), LockedKey::IntInt(first, second)] {
            prop_assert_eq!(decode_key(&encode_key(Some(&key))), Ok(Some(key)));
        }
    }

    #[test]
    fn any_text_is_a_key_or_none(key in "(pattern |number |number \\()?\\PC{0,12}") {
        drop(decode_key(&key));
    }
}

#[test]
fn a_pattern_is_read_as_it_was_written() {
    let key = LockedKey::Pattern(pattern("a<<b:<id: uuid>:<day*: date>|%"));
    assert_eq!(decode_key(&encode_key(Some(&key))), Ok(Some(key)));
    assert_eq!(decode_key(&encode_key(None)), Ok(None));
}

#[test]
fn the_module_is_the_compilers_to_fill_in() {
    let record = Record {
        module: MODULE_PATH.to_owned(),
        keys: vec!["?".to_owned()],
        written: vec!["id".to_owned()],
        ..Record::default()
    };
    let text = record.encode();
    assert_eq!(text.matches(MODULE_PATH).count(), 1);
    let filled = text.replace(MODULE_PATH, "shop::cart");
    let read = Record::find_all(filled.as_bytes()).unwrap();
    assert_eq!(read[0].module, "shop::cart");
}

#[test]
fn a_record_without_keys_is_read_without_keys() {
    let record = Record {
        module: MODULE_PATH.to_owned(),
        ..Record::default()
    };
    let read = Record::find_all(record.encode().as_bytes());
    assert_eq!(read, Ok(vec![record]));
}

/// More than the longest record: a program of a few hundred lock sites.
#[test]
fn every_record_is_found_however_many_there_are() {
    let records: Vec<Record> = (0..2_000)
        .map(|line| Record {
            line,
            purpose: Some("a purpose that makes the record as long as most are".to_owned()),
            ..Record::default()
        })
        .collect();
    let bytes: Vec<u8> = records
        .iter()
        .flat_map(|record| record.encode().into_bytes())
        .collect();
    assert!(bytes.len() > 200_000);
    let found = Record::find_all(&bytes).unwrap();
    let lines: Vec<u32> = found.iter().map(|record| record.line).collect();
    assert_eq!(lines, (0..2_000).collect::<Vec<_>>());
}

#[test]
fn control_characters_cannot_forge_a_field_or_a_record() {
    let record = Record {
        kind: "fn\u{1f}scope=lease\u{1d}\u{1e}advisory lock site\u{1f}1".to_owned(),
        scope: "xact".to_owned(),
        ..Record::default()
    };
    let read = Record::find_all(record.encode().as_bytes()).unwrap();
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].scope, "xact");
    assert_eq!(read[0].kind, "fn scope=lease  advisory lock site 1");
}

fn fields(fields: &str) -> Result<Vec<Record>, RecordError> {
    let text = format!("\u{1e}advisory lock site\u{1f}{fields}\u{1d}");
    Record::find_all(text.as_bytes())
}

#[test]
fn a_newer_format_is_refused_and_says_so() {
    let newer = (RECORD_VERSION + 1).to_string();
    assert_eq!(fields(&newer), Err(RecordError::Newer(newer.clone())));
    let message = RecordError::Newer(newer).to_string();
    assert!(message.contains("update"), "{message}");
}

#[test]
fn a_field_that_a_later_release_adds_is_skipped() {
    let read = fields("1\u{1f}kind=fn\u{1f}colour=green").unwrap();
    assert_eq!(read[0].kind, "fn");
}

#[test]
fn a_wrong_field_is_named() {
    for (wrong, named) in [
        ("x", "version `x`"),
        ("", "version ``"),
        ("1\u{1f}kind", "`kind`"),
        ("1\u{1f}line=x", "line `x`"),
        ("1\u{1f}permits=0", "permits `0`"),
        ("1\u{1f}permits=1001", "permits `1001`"),
    ] {
        assert_eq!(fields(wrong), Err(RecordError::Malformed(named.to_owned())));
    }
    let bytes = [START, b"1\x1fkind=\xff\x1d"].concat();
    assert!(matches!(
        Record::find_all(&bytes),
        Err(RecordError::Malformed(_))
    ));
}

#[test]
fn an_endless_record_is_not_accepted() {
    let mut bytes = START.to_vec();
    bytes.extend(vec![b'a'; 1 << 20]);
    bytes.push(0x1d);
    assert_eq!(Record::find_all(&bytes), Err(RecordError::Truncated));
}

#[test]
fn locks_are_the_keys_that_say_something() {
    let record = Record {
        written: vec!["<a>:<b>".to_owned(), "job.id".to_owned(), "7".to_owned()],
        keys: vec![
            "pattern <a: text>:<b: text>".to_owned(),
            "?".to_owned(),
            "number 7".to_owned(),
        ],
        derivation: "sha256".to_owned(),
        ..Record::default()
    };
    let locks = record.locks().unwrap();
    let written: Vec<&str> = locks.iter().map(|(written, _)| &written[..]).collect();
    assert_eq!(written, ["<a>:<b>", "7"]);
    let strange = Record {
        derivation: "crc32".to_owned(),
        ..record
    };
    assert!(matches!(strange.locks(), Err(RecordError::Malformed(why)) if why.contains("crc32")));
}

/// A reader of version 1 would not know the key, and so must say that it is too old. It reads all
/// other sites.
#[test]
fn a_derived_half_raises_the_version_of_its_own_record() {
    let site = |key: &str| Record {
        written: vec![key.to_owned()],
        keys: vec![key.to_owned()],
        derivation: "hashtext".to_owned(),
        ..Record::default()
    };
    for (key, version) in [
        ("half -23405 a:<x: text>", "2"),
        ("pattern a:<x: text>", "1"),
        ("number (7,?)", "1"),
    ] {
        let record = site(key);
        let text = record.encode();
        assert!(
            text.contains(&format!("lock site\u{1f}{version}\u{1f}")),
            "{text}"
        );
        assert_eq!(
            Record::find_all(text.as_bytes()).unwrap(),
            std::slice::from_ref(&record)
        );
        assert_eq!(record.locks().unwrap().len(), 1);
        let known = decode_key(key).unwrap();
        assert_eq!(encode_key(known.as_ref()), key);
    }
    let new = Record {
        derivation: "fnv1a64".to_owned(),
        ..site("pattern a:<x: text>")
    };
    assert!(new.encode().contains("lock site\u{1f}2\u{1f}"));
    for wrong in [
        "half 7",
        "half x <a: text>",
        "half 3000000000 <a: text>",
        "half 7 <a",
    ] {
        assert!(site(wrong).locks().is_err(), "{wrong}");
    }
    let wide = Record {
        derivation: "sha256".to_owned(),
        ..site("half 7 <x: text>")
    };
    assert!(matches!(wide.locks(), Err(RecordError::Malformed(why)) if why.contains("sha256")));
}
