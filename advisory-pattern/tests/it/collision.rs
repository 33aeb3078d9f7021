//! Pairs of locks that are the same lock, never meet, or collide.

use advisory_pattern::{
    Collision, Derivation, KeySpace, Lock, LockedKey, Pattern, Permits, Record, Shape, Side,
    advice, permit_key,
};
use proptest::prelude::*;

use crate::pattern;

const SHA256: Derivation = Derivation::Sha256;

fn shaped(text: &str) -> Pattern {
    pattern(text).shaped(|_| Shape::Text)
}

fn lock(text: &str) -> Lock {
    fixed(LockedKey::Pattern(shaped(text)))
}

fn md5(text: &str) -> Lock {
    let key = LockedKey::Pattern(shaped(text));
    Lock::new(key, Derivation::Md5, None, Vec::new())
}

fn named(text: &str, name: &str) -> Lock {
    named_key(LockedKey::Pattern(shaped(text)), name)
}

fn named_key(key: LockedKey, name: &str) -> Lock {
    Lock::new(key, SHA256, Some(name.to_owned()), Vec::new())
}

fn fixed(key: LockedKey) -> Lock {
    Lock::new(key, SHA256, None, Vec::new())
}

fn key() -> impl Strategy<Value = LockedKey> {
    let half = || prop::option::of(0..3_i32);
    let texts: Vec<_> = "a a:<x> <x>:<y> <x> a:b <x:uint>:b b:<x*>"
        .split(' ')
        .collect();
    let texts = prop::sample::select(texts);
    prop_oneof![
        (0..3_i64).prop_map(LockedKey::BigInt),
        (half(), half()).prop_map(|(first, second)| LockedKey::IntInt(first, second)),
        texts
            .clone()
            .prop_map(|text| LockedKey::Pattern(shaped(text))),
        (0..3_i32, texts).prop_map(|(first, text)| LockedKey::IntPattern(first, shaped(text))),
    ]
}

fn space() -> impl Strategy<Value = KeySpace> {
    let spaces = [KeySpace::Advisory, KeySpace::Lease, KeySpace::Declared];
    prop::sample::select(spaces.to_vec())
}

fn any_lock() -> impl Strategy<Value = Lock> {
    let derivation = prop::sample::select(Derivation::ALL[..2].to_vec());
    let name = || prop::sample::select(vec!["here".to_owned(), "there".to_owned()]);
    let allowed = prop::collection::vec(name(), 0..2);
    let said = (key(), derivation, prop::option::of(name()), allowed);
    (said, space()).prop_map(|((key, derivation, name, allowed), space)| {
        Lock::new(key, derivation, name, allowed).within(space)
    })
}

proptest! {
    #[test]
    fn who_is_asked_makes_no_difference(here in any_lock(), there in any_lock()) {
        let (one, other) = (here.collision(&there), there.collision(&here));
        prop_assert_eq!(one.is_some(), other.is_some(), "{:?} {:?}", one, other);
    }

    #[test]
    fn equal_keys_collide_unless_they_say_that_they_are_one(key in key(), space in space()) {
        let lock = |name: Option<&str>| {
            Lock::new(key.clone(), SHA256, name.map(str::to_owned), Vec::new()).within(space)
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
    assert_eq!(md5("<a>:<b>").collision(&lock("<a>:<b>")), None);
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
    let number = fixed(LockedKey::BigInt(number));
    assert_eq!(number.collision(&md5("nightly")), None);
}

#[test]
fn the_two_key_spaces_never_meet() {
    let pair = fixed(LockedKey::IntInt(Some(0), Some(7)));
    assert_eq!(pair.collision(&fixed(LockedKey::BigInt(7))), None);
    assert_eq!(pair.collision(&lock("<a>")), None);
}

#[test]
fn pairs_collide_unless_a_half_differs() {
    let pair = |first, second| fixed(LockedKey::IntInt(first, second));
    let found = pair(Some(7), None).collision(&pair(None, Some(2)));
    assert_eq!(found, Some(Collision::Number("(7, 2)".to_owned())));
    assert_eq!(pair(Some(7), None).collision(&pair(Some(8), None)), None);
}

fn lease(lock: Lock) -> Lock {
    lock.within(KeySpace::Lease)
}

fn witness(collision: Option<Collision>) -> String {
    match collision {
        Some(Collision::Lease(witness)) => witness.key,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_and_an_advisory_lock_never_meet_by_their_keys() {
    for key in [
        LockedKey::BigInt(42),
        LockedKey::IntInt(Some(7), None),
        LockedKey::Pattern(shaped("a:<x>")),
    ] {
        let lock = fixed(key);
        assert_eq!(lease(lock.clone()).collision(&lock), None);
        assert_eq!(lock.collision(&lease(lock.clone())), None);
    }
}

#[test]
fn leases_meet_by_their_texts_whatever_their_derivation() {
    let md5 = |text| lease(md5(text));
    let found = md5("<tenant>:<slot>").collision(&lease(lock("<account>:<month>")));
    assert_eq!(witness(found), "t1:x");
    assert_eq!(md5("a:<x>").collision(&lease(lock("b:<x>"))), None);
    let both = |text: &str| lease(named(text, "slot"));
    assert_eq!(both("<a>:<b>").collision(&both("<c>:<d>")), None);
}

#[test]
fn a_leases_number_is_the_text_of_its_digits() {
    let number = lease(fixed(LockedKey::BigInt(-42)));
    assert_eq!(witness(number.collision(&lease(lock("-42")))), "-42");
    assert_eq!(number.collision(&lease(lock("42"))), None);
    assert!(number.collision(&lease(lock("<id: int>"))).is_some());
    // Its derived number is not a lease's key.
    let derived = lease(fixed(LockedKey::BigInt(SHA256.key("nightly"))));
    assert_eq!(derived.collision(&lease(lock("nightly"))), None);
    let number = lease(named_key(LockedKey::BigInt(42), "job"));
    assert_eq!(
        lease(named("42", "job")).collision(&number),
        None,
        "one key"
    );
}

#[test]
fn a_leases_pair_is_the_text_of_both_numbers() {
    let pair = |first, second| lease(fixed(LockedKey::IntInt(first, second)));
    let open = pair(Some(7), None);
    // As `Key` is displayed.
    assert_eq!(witness(open.collision(&pair(Some(7), Some(3)))), "(7, 3)");
    assert_eq!(open.collision(&pair(Some(8), None)), None);
    assert_eq!(witness(open.collision(&pair(None, Some(-2)))), "(7, -2)");
    assert!(open.collision(&lease(lock("(7, <x: int>)"))).is_some());
    assert_eq!(open.collision(&lease(fixed(LockedKey::BigInt(7)))), None);
    let pattern = lease(named("(7, <tenant: int>)", "job"));
    let tenant = lease(named_key(LockedKey::IntInt(Some(7), None), "job"));
    assert_eq!(pattern.collision(&tenant), None, "one key");
}

#[test]
fn one_name_cannot_be_a_lease_and_an_advisory_lock() {
    let (held, leased) = (named("job", "nightly"), lease(named("job", "nightly")));
    for found in [held.collision(&leased), leased.collision(&held)] {
        assert_eq!(found, Some(Collision::Scopes("nightly".to_owned())));
    }
    let found = held.collision(&leased).unwrap();
    let (held, leased) = (side(&held, "job"), side(&leased, "job"));
    let advice = advice(&found, &held, &leased, std::iter::empty());
    assert!(advice.text.contains("`#[advisory_lease]`"));
}

#[test]
fn a_declared_lock_meets_advisory_locks_and_leases() {
    let declared = |lock: Lock| lock.within(KeySpace::Declared);
    let account = declared(lock("account:<id>"));
    let found = account.collision(&lock("account:<id>"));
    assert!(matches!(found, Some(Collision::Key(_))), "{found:?}");
    let found = account.collision(&lease(lock("account:<id>")));
    assert_eq!(witness(found), "account:t1");
    let found = account.collision(&declared(lock("account:<id>")));
    assert!(matches!(found, Some(Collision::Key(_))), "{found:?}");
    // It is used in either space under its own name.
    let account = declared(named("account:<id>", "account"));
    let other = named("account:<x>", "account");
    assert_eq!(account.collision(&other), None);
    assert_eq!(account.collision(&lease(other)), None);
    // As a lease it has no derivation; between advisory locks it has one.
    let other = declared(md5("account:<id>"));
    assert_eq!(other.collision(&lock("account:<id>")), None);
    assert!(other.collision(&lease(lock("account:<id>"))).is_some());
    // A lock that shares its number with other programs is not used for leases.
    let default = Derivation::default();
    for space in [KeySpace::Advisory, KeySpace::Lease, KeySpace::Declared] {
        assert_eq!(space.under(default), space);
    }
    assert_eq!(KeySpace::Lease.under(Derivation::Md5), KeySpace::Lease);
    let space = KeySpace::Declared.under(Derivation::Md5);
    let other = md5("account:<id>").within(space);
    assert_eq!(other.collision(&lease(lock("account:<id>"))), None);
}

fn site(scope: &str, kind: &str) -> Record {
    Record {
        scope: scope.to_owned(),
        kind: kind.to_owned(),
        derivation: "sha256".to_owned(),
        ..Record::default()
    }
}

#[test]
fn a_records_scope_and_kind_say_its_space() {
    for (scope, kind, space) in [
        ("lease", "fn", KeySpace::Lease),
        ("xact", "fn", KeySpace::Advisory),
        ("session", "fn", KeySpace::Advisory),
        ("none", "struct", KeySpace::Declared),
        // `lock_key!` returns a number.
        ("none", "macro", KeySpace::Advisory),
        ("", "fn", KeySpace::Advisory),
    ] {
        let site = site(scope, kind);
        assert_eq!(site.key_space(), Ok(space), "{scope} {kind}");
    }
    // A scope of a newer version can have another key space, so no lock of it is compared.
    assert!(site("table", "fn").key_space().is_err());
    assert!(site("table", "fn").locks().is_err());
}

#[test]
fn help_for_leases_is_a_key_that_can_be_written() {
    let open = lease(fixed(LockedKey::IntInt(Some(7), None)));
    let found = open.collision(&open.clone()).unwrap();
    let side = side(&open, "(7, tenant_no)");
    let advice = advice(&found, &side, &side, std::iter::empty());
    assert!(!advice.text.contains("run"), "{advice:?}");
    assert_eq!(
        found.headline(&side, &side),
        "lease keys can collide: `(7, tenant_no)` and `(7, tenant_no)`"
    );
}

#[test]
fn a_finding_says_what_to_write() {
    let (here, there) = (lock("<tenant>:<slot>"), lock("<account>:<month>"));
    let found = here.collision(&there).unwrap();
    let here = side(&here, "<tenant>:<slot>");
    let there = side(&there, "<account>:<month>");
    let headline = "advisory lock keys can collide: `<tenant>:<slot>` and `<account>:<month>`";
    assert_eq!(found.headline(&here, &there), headline);
    let advice = advice(&found, &here, &there, std::iter::empty());
    assert!(advice.text.ends_with("`run:<tenant>:<slot>`"), "{advice:?}");
}

fn side<'a>(lock: &'a Lock, written: &'a str) -> Side<'a> {
    Side {
        lock,
        written,
        item: "fn `run`",
        word: Some("run"),
        guesses: &[],
    }
}

#[test]
fn a_lock_with_permits_has_as_many_keys() {
    let number = |number| fixed(LockedKey::BigInt(number));
    for (lock, text) in [
        (number(42), "42"),
        (lock("nightly"), &*SHA256.key("nightly").to_string()),
        (fixed(LockedKey::IntInt(Some(7), Some(3))), "(7, 3)"),
    ] {
        let lock = lock.with_permits(Permits::Number(3));
        for permit in 2..=3 {
            let key = permit_key(text, permit);
            let found = Some(Collision::Number(key.to_string()));
            assert_eq!(lock.collision(&number(key)), found);
            assert_eq!(number(key).collision(&lock), found);
        }
        assert_eq!(lock.collision(&number(permit_key(text, 4))), None);
    }
    // The first permit is the key itself.
    let jobs = lock("job:<kind>").with_permits(Permits::Number(3));
    let found = jobs.collision(&lock("job:<name>"));
    assert!(matches!(found, Some(Collision::Key(_))), "{found:?}");
    assert_eq!(jobs.collision(&lock("jobs:<name>")), None);
}

#[test]
fn one_name_has_one_number_of_permits() {
    let jobs = |permits| named("job:<kind>", "job").with_permits(Permits::Number(permits));
    assert_eq!(jobs(3).collision(&jobs(3)), None);
    let found = jobs(3).collision(&jobs(2));
    assert_eq!(found, Some(Collision::Permits("job".to_owned())));
    let found = jobs(3).collision(&named("job:<kind>", "job"));
    assert_eq!(found, Some(Collision::Permits("job".to_owned())));
    let found = jobs(3).collision(&named("task:<kind>", "job"));
    assert_eq!(found, Some(Collision::Name("job".to_owned())));
    // The value of an expression is not known, but it is assumed to be more than 1.
    let limit = |written: &str| {
        let permits = Permits::Expression(written.to_owned());
        named("job:<kind>", "job").with_permits(permits)
    };
    assert_eq!(limit("LIMIT").collision(&limit("self.limit")), None);
    assert_eq!(limit("LIMIT").collision(&jobs(3)), None);
    for exclusive in [jobs(1), named("job:<kind>", "job")] {
        let found = Some(Collision::Permits("job".to_owned()));
        assert_eq!(exclusive.collision(&limit("LIMIT")), found);
        assert_eq!(limit("LIMIT").collision(&exclusive), found);
    }
}

/// A pair with the `hashtext` of a text as its second half.
fn half(first: i32, text: &str) -> Lock {
    let key = LockedKey::IntPattern(first, shaped(text));
    Lock::new(key, Derivation::Hashtext, None, Vec::new())
}

#[test]
fn derived_halves_collide_only_with_the_same_first_half() {
    assert!(half(7, "a:<x>").collision(&half(8, "a:<x>")).is_none());
    assert!(half(7, "a:<x>").collision(&half(7, "b:<x>")).is_none());
    assert!(half(7, "a:<x>").collision(&lock("a:<x>")).is_none());
    match half(7, "a:<x>").collision(&half(7, "<y>:b")) {
        Some(Collision::Key(witness)) => assert_eq!(witness.key, "a:b"),
        other => panic!("{other:?}"),
    }
    let fnv = LockedKey::IntPattern(7, shaped("a:<x>"));
    let fnv = Lock::new(fnv, Derivation::Fnv1a32, None, Vec::new());
    assert!(half(7, "a:<x>").collision(&fnv).is_none());
}

#[test]
fn a_derived_half_meets_the_pair_of_its_number_and_any_open_one() {
    let hash = Derivation::Hashtext.half("job");
    for (first, second, constant, with_value) in [
        (Some(7), Some(hash), true, false),
        (Some(7), Some(hash + 1), false, false),
        (Some(8), Some(hash), false, false),
        (None, Some(hash), true, false),
        (Some(7), None, true, true),
        (None, None, true, true),
        (Some(8), None, false, false),
    ] {
        let pair = fixed(LockedKey::IntInt(first, second));
        for (here, collides) in [(half(7, "job"), constant), (half(7, "a:<x>"), with_value)] {
            let found = [here.collision(&pair), pair.collision(&here)];
            assert_eq!(found[0].is_some(), collides, "{first:?} {second:?}");
            assert_eq!(found[0], found[1]);
        }
    }
    let found = half(7, "job").collision(&fixed(LockedKey::IntInt(Some(7), None)));
    assert_eq!(found, Some(Collision::Number(format!("(7, {hash})"))));
}

#[test]
fn the_permits_of_a_derived_half_are_those_of_its_pair() {
    let hash = Derivation::Hashtext.half("job");
    let permit = permit_key(&format!("(7, {hash})"), 2);
    let several = half(7, "job").with_permits(Permits::Number(2));
    let number = fixed(LockedKey::BigInt(permit));
    let found = several.collision(&number);
    assert_eq!(found, Some(Collision::Number(permit.to_string())));
    assert!(half(7, "job").collision(&number).is_none());
}

#[test]
fn one_name_of_derived_halves_is_one_first_half() {
    let named = |first, text: &str| {
        let (key, name) = (LockedKey::IntPattern(first, shaped(text)), "a".to_owned());
        Lock::new(key, Derivation::Hashtext, Some(name), Vec::new())
    };
    assert_eq!(named(7, "a:<x>").collision(&named(7, "a:<y>")), None);
    let text = self::named("a:<x>", "a");
    for other in [named(8, "a:<x>"), named(7, "b:<x>"), text] {
        let found = named(7, "a:<x>").collision(&other);
        assert_eq!(found, Some(Collision::Name("a".to_owned())));
    }
}

#[test]
fn help_for_derived_halves_is_a_pair_that_can_be_written() {
    let (here, there) = (half(7, "<x>:<y>"), half(7, "<a>:<b>"));
    let found = here.collision(&there).unwrap();
    let here = side(&here, "(7,\"<x>:<y>\")");
    let there = side(&there, "(7,\"<a>:<b>\")");
    let help = advice(&found, &here, &there, std::iter::empty()).text;
    assert!(help.contains("`(7,\"run:<x>:<y>\")`"), "{help}");
    let names = (half(7, "<x>"), half(8, "<x>"));
    let name = Collision::Name("a".to_owned());
    let sides = (side(&names.0, "(7,\"<x>\")"), side(&names.1, "(8,\"<x>\")"));
    let help = advice(&name, &sides.0, &sides.1, std::iter::empty()).text;
    assert!(help.contains("write the same key at both"), "{help}");
}

#[test]
fn a_collision_says_what_is_the_same() {
    let found = lock("slot:<a>").collision(&lock("slot:<b>")).unwrap();
    let said = "both can render \"slot:t1\": here a = \"t1\"; there b = \"t1\"";
    assert_eq!(found.to_string(), said);
    let says = |found: fn(String) -> Collision, said| {
        assert_eq!(found("slot".to_owned()).to_string(), said);
    };
    says(Collision::Number, "both are the number slot");
    says(
        Collision::Name,
        "`slot` names both, and the keys differ in text, shapes or derivation",
    );
    says(
        Collision::Permits,
        "`slot` names both, with different numbers of permits",
    );
    let said = "`slot` names a lease and an advisory lock, which do not exclude each other";
    says(Collision::Scopes, said);
}
