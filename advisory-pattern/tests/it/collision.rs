//! Which two locks are one, never meet, or collide?

use advisory_pattern::{Collision, Derivation, Lock, LockedKey, Pattern, Shape};
use proptest::prelude::*;

use crate::pattern;

const SHA256: Derivation = Derivation::Sha256;

fn shaped(text: &str) -> Pattern {
    pattern(text).shaped(|_| Shape::Text)
}

fn lock(text: &str) -> Lock {
    Lock::new(LockedKey::Pattern(shaped(text)), SHA256, None, Vec::new())
}

fn named(text: &str, name: &str) -> Lock {
    let key = LockedKey::Pattern(shaped(text));
    Lock::new(key, SHA256, Some(name.to_owned()), Vec::new())
}

fn fixed(key: LockedKey) -> Lock {
    Lock::new(key, SHA256, None, Vec::new())
}

fn key() -> impl Strategy<Value = LockedKey> {
    let half = || prop::option::of(0..3_i32);
    let texts = [
        "a",
        "a:<x>",
        "<x>:<y>",
        "<x>",
        "a:b",
        "<x: uint>:b",
        "b:<x*>",
    ];
    prop_oneof![
        (0..3_i64).prop_map(LockedKey::BigInt),
        (half(), half()).prop_map(|(first, second)| LockedKey::IntInt(first, second)),
        prop::sample::select(texts.to_vec()).prop_map(|text| LockedKey::Pattern(shaped(text))),
    ]
}

fn any_lock() -> impl Strategy<Value = Lock> {
    let derivation = prop::sample::select(Derivation::ALL[..2].to_vec());
    let name = || prop::sample::select(vec!["here".to_owned(), "there".to_owned()]);
    let allowed = prop::collection::vec(name(), 0..2);
    (key(), derivation, prop::option::of(name()), allowed)
        .prop_map(|(key, derivation, name, allowed)| Lock::new(key, derivation, name, allowed))
}

proptest! {
    #[test]
    fn who_is_asked_makes_no_difference(here in any_lock(), there in any_lock()) {
        let (one, other) = (here.collision(&there), there.collision(&here));
        prop_assert_eq!(one.is_some(), other.is_some(), "{:?} {:?}", one, other);
    }

    #[test]
    fn equal_keys_collide_unless_they_say_that_they_are_one(key in key()) {
        let lock = |name: Option<&str>| {
            Lock::new(key.clone(), SHA256, name.map(str::to_owned), Vec::new())
        };
        prop_assert!(lock(None).collision(&lock(None)).is_some());
        prop_assert!(lock(Some("a")).collision(&lock(None)).is_some());
        prop_assert!(lock(Some("a")).collision(&lock(Some("b"))).is_some());
        prop_assert_eq!(lock(Some("a")).collision(&lock(Some("a"))), None);
    }
}

#[test]
fn patterns_collide_where_both_render_one_text() {
    let found = lock("<tenant>:<slot>").collision(&lock("<account>:<month>"));
    let Some(Collision::Key(witness)) = found else {
        panic!("{found:?}")
    };
    assert_eq!(witness.key, "t1:x");
    assert_eq!(lock("slot:<a>").collision(&lock("month:<a>")), None);
    assert_eq!(lock("<a>:<b>").collision(&lock("<a>:x:<b>")), None);
}

#[test]
fn another_derivation_is_another_key_for_patterns_with_values() {
    let md5 = Lock::new(
        LockedKey::Pattern(shaped("<a>:<b>")),
        Derivation::Md5,
        None,
        Vec::new(),
    );
    assert_eq!(md5.collision(&lock("<a>:<b>")), None);
}

#[test]
fn one_name_is_one_key() {
    let here = named("<tenant>:<slot>", "slot");
    assert_eq!(here.collision(&named("<a>:<b>", "slot")), None);
    let other = here.collision(&named("<a>:<b: date>", "slot"));
    assert_eq!(other, Some(Collision::Name("slot".to_owned())));
}

#[test]
fn an_overlap_can_be_allowed_by_either_side() {
    let allowed = vec!["slot".to_owned()];
    let key = LockedKey::Pattern(shaped("<a>:<b>"));
    let allows = Lock::new(key, SHA256, None, allowed);
    let slot = named("<tenant>:<slot>", "slot");
    assert_eq!(allows.collision(&slot), None);
    assert_eq!(slot.collision(&allows), None);
    assert!(allows.collision(&named("<a>:<b>", "other")).is_some());
}

#[test]
fn a_number_meets_the_text_that_becomes_it() {
    let number = SHA256.key("nightly");
    let found = fixed(LockedKey::BigInt(number)).collision(&lock("nightly"));
    assert_eq!(found, Some(Collision::Number(number.to_string())));
    let other = Lock::new(
        LockedKey::Pattern(shaped("nightly")),
        Derivation::Md5,
        None,
        Vec::new(),
    );
    assert_eq!(fixed(LockedKey::BigInt(number)).collision(&other), None);
}

#[test]
fn the_two_key_spaces_never_meet() {
    let pair = fixed(LockedKey::IntInt(Some(0), Some(7)));
    assert_eq!(pair.collision(&fixed(LockedKey::BigInt(7))), None);
    assert_eq!(pair.collision(&lock("<a>")), None);
}

#[test]
fn pairs_meet_where_no_half_tells_them_apart() {
    let pair = |first, second| fixed(LockedKey::IntInt(first, second));
    let found = pair(Some(7), None).collision(&pair(None, Some(2)));
    assert_eq!(found, Some(Collision::Number("(7, 2)".to_owned())));
    assert_eq!(pair(Some(7), None).collision(&pair(Some(8), None)), None);
}

#[test]
fn a_finding_says_what_to_write() {
    let here = lock("<tenant>:<slot>");
    let found = here.collision(&lock("<account>:<month>")).unwrap();
    let headline = found.headline("<tenant>:<slot>", "<account>:<month>");
    assert_eq!(
        headline,
        "advisory lock keys can collide: `<tenant>:<slot>` and `<account>:<month>`"
    );
    let help = found.help("<tenant>:<slot>", Some("book"));
    assert!(help.ends_with("`book:<tenant>:<slot>`"), "{help}");
}
