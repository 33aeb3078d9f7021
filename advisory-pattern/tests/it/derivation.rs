//! Each derivation gives the numbers that servers and other code give.

use advisory_pattern::{Derivation, Hasher, permit_key, sha256};
use proptest::prelude::*;

/// Inputs and their numbers, checked on six versions of PostgreSQL, in UTF8 databases.
const VECTORS: &str = include_str!("key-vectors.tsv");

/// The text of a JSON string, or of one repeated: `"a"*10240`.
fn input(json: &str) -> String {
    let (json, times) = match json.rsplit_once("\"*") {
        Some((json, times)) => (format!("{json}\""), times.parse().expect("a count")),
        None => (json.to_owned(), 1),
    };
    let mut units = Vec::new();
    let mut chars = json[1..json.len() - 1].chars();
    while let Some(c) = chars.next() {
        let c = match (c, if c == '\\' { chars.next() } else { None }) {
            (_, Some('u')) => {
                let digits: String = chars.by_ref().take(4).collect();
                units.push(u16::from_str_radix(&digits, 16).expect("four digits"));
                continue;
            }
            (_, Some('n')) => '\n',
            (_, Some('t')) => '\t',
            (_, Some(escaped)) => escaped,
            (plain, None) => plain,
        };
        units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16(&units)
        .expect("whole characters")
        .repeat(times)
}

/// A changed key un-locks a fleet that is half upgraded: these numbers never change.
#[test]
fn every_vector_has_its_number_under_every_derivation() {
    let mut lines = VECTORS.lines();
    let columns = [
        Derivation::Sha256,
        Derivation::Md5,
        Derivation::Hashtext,
        Derivation::Hashtextextended,
        Derivation::Fnv1a32,
        Derivation::Fnv1a64,
    ];
    assert_eq!(columns.len(), Derivation::ALL.len(), "each has vectors");
    let heading = "input_json\tutf8_bytes\tsha256_be8\tmd5_be8\thashtext\thashtextextended_0\tfnv1a32_utf16\tfnv1a64_utf8";
    assert_eq!(lines.next(), Some(heading));
    let mut checked = 0;
    for line in lines {
        let mut fields = line.split('\t');
        let text = input(fields.next().unwrap());
        assert_eq!(text.len().to_string(), fields.next().unwrap(), "{line}");
        for derivation in columns {
            let number: i64 = fields.next().unwrap().parse().unwrap();
            assert_eq!(derivation.key(&text), number, "{derivation:?} of {line}");
            // As the second half of a pair, a number of 32 bits is unchanged.
            if derivation.bits() == 32 {
                assert_eq!(i64::from(derivation.half(&text)), number, "{line}");
            }
            checked += 1;
        }
    }
    assert_eq!(checked, 16 * columns.len());
}

/// From the reference code's own test of 64-bit FNV-1a
/// (<http://www.isthe.com/chongo/src/fnv/test_fnv.c>).
#[test]
fn fnv1a64_gives_the_numbers_of_its_reference() {
    for (text, number) in [
        ("", 0xcbf2_9ce4_8422_2325_u64),
        ("a", 0xaf63_dc4c_8601_ec8c),
        ("foobar", 0x8594_4171_f739_67e8),
    ] {
        assert_eq!(
            Derivation::Fnv1a64.key(text),
            number.cast_signed(),
            "{text}"
        );
    }
}

/// These numbers never change: a program that computes others lets in more holders than there are
/// permits. On PostgreSQL they are
/// `('x'||left(encode(sha256('\xff'::bytea||convert_to('2:42','UTF8')),'hex'),16))::bit(64)::bigint`.
#[test]
fn every_permit_but_the_first_has_its_number() {
    for (key, permit, number) in [
        ("42", 2, -1_895_220_358_444_740_834),
        ("42", 3, -1_987_569_500_528_109_462),
        ("42", 1_000, 5_974_969_109_399_363_735),
        ("-4814109257161839213", 2, 8_086_344_897_746_956_085),
        ("(7, 3)", 2, 8_003_881_177_417_440_479),
    ] {
        assert_eq!(permit_key(key, permit), number, "{key}, {permit}");
    }
}

/// `select hashtext(left('aé日🔒bcdefghijklmnopqrstuvwxyz0123456789', chars)), …` on PostgreSQL 15:
/// the hash reads blocks of twelve bytes and treats each length of the rest on its own.
#[test]
fn hashtext_agrees_with_postgresql_at_every_length_of_a_block() {
    let text = "aé日🔒bcdefghijklmnopqrstuvwxyz0123456789";
    let mut rests = [0; 12];
    for line in include_str!("hashtext-by-length.tsv").lines().skip(1) {
        let fields: Vec<i64> = line
            .split('\t')
            .map(|field| field.parse().unwrap())
            .collect();
        let [chars, short, long] = fields[..] else {
            panic!("{line}");
        };
        let text: String = text.chars().take(usize::try_from(chars).unwrap()).collect();
        assert_eq!(Derivation::Hashtext.key(&text), short, "{text}");
        assert_eq!(Derivation::Hashtextextended.key(&text), long, "{text}");
        rests[text.len() % 12] += 1;
    }
    assert!(!rests.contains(&0), "{rests:?}");
}

#[test]
fn names_lead_back_to_their_derivations() {
    for derivation in Derivation::ALL {
        assert_eq!(Derivation::from_name(derivation.name()), Some(derivation));
        assert_eq!(derivation.variant(), format!("{derivation:?}"));
    }
    assert_eq!(Derivation::from_name("sha1"), None);
    assert_eq!(Derivation::default(), Derivation::Sha256);
}

#[test]
fn numbers_of_32_bits_fit_an_integer() {
    for derivation in Derivation::ALL {
        let key = derivation.key("a fairly common key");
        assert_eq!(
            derivation.bits() == 32,
            i32::try_from(key).is_ok(),
            "{derivation:?}"
        );
    }
}

#[test]
fn odds_follow_the_birthday_bound() {
    let one_in = |derivation: Derivation, keys| 1.0 / derivation.collision_odds(keys);
    assert!((8_590.0..8_610.0).contains(&one_in(Derivation::Hashtext, 1_000)));
    assert!((1.99..2.02).contains(&one_in(Derivation::Fnv1a32, 77_000)));
    assert!((3.6e7..3.8e7).contains(&one_in(Derivation::Sha256, 1_000_000)));
    for derivation in Derivation::ALL {
        assert!(derivation.collision_odds(0).abs() < f64::EPSILON);
        assert!(derivation.collision_odds(1).abs() < f64::EPSILON);
        assert!((derivation.collision_odds(u64::MAX) - 1.0).abs() < f64::EPSILON);
    }
}

proptest! {
    #[test]
    fn pieces_give_the_number_of_the_whole(pieces: Vec<String>) {
        for derivation in Derivation::ALL {
            let mut hasher = Hasher::new(derivation);
            for piece in &pieces {
                hasher.write(piece);
            }
            prop_assert_eq!(hasher.finish(), derivation.key(&pieces.concat()));
        }
    }
}

/// By `printf 'lease:1' | sha256sum`.
#[test]
fn a_lease_is_found_by_the_whole_digest_of_its_key() {
    let digest = sha256("lease:1").map(|byte| format!("{byte:02x}"));
    assert_eq!(
        digest.concat(),
        "3ac394534dbc34d06b1d6251ef88d36db120e0b02ff8b51bda42035209e01a9d"
    );
}
