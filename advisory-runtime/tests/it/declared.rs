//! Declared locks, derived values, filters and derivations give the keys that they always gave.

use crate::renders;
use advisory_pattern::Derivation;
use advisory_runtime::{Key, KeyPart, LockKey};
use chrono::NaiveDate;
use uuid::Uuid;

#[derive(KeyPart)]
struct TenantId(Uuid);

#[derive(KeyPart)]
struct Email {
    address: String,
}

#[derive(KeyPart)]
struct Id<T: KeyPart>(T);

#[derive(KeyPart)]
enum Plan {
    Free,
    r#Trial,
    #[key_part("paid:yearly")]
    Yearly,
}

#[test]
fn newtypes_render_as_their_field() {
    let uuid = Uuid::from_u128(7);
    let text = "00000000-0000-0000-0000-000000000007";
    renders!("<v: uuid>", TenantId: TenantId(uuid) => text);
    renders!("<v: uuid>", Id<Uuid>: Id(uuid) => text);
    renders!("<v: int>", Id<i64>: Id(-7) => "-7");
    let address = "A@example.com".to_owned();
    renders!("<v>", Email: Email { address } => "A@example.com");
}

#[test]
fn variants_render_as_their_name_or_as_they_say() {
    renders!("<v>", Plan: Plan::Free => "Free");
    renders!("<v>", Plan: Plan::r#Trial => "Trial");
    renders!("<v>", Plan: Plan::Yearly => "paid%3Ayearly");
}

#[test]
fn filters_see_the_value_and_escaping_comes_last() {
    let text = "  Über: 50%  OFF \t ";
    renders!("x:<v>", &'static str: text => "x:  Über%3A 50%25  OFF \t ");
    renders!("x:<v|trim>", &'static str: text => "x:Über%3A 50%25  OFF \t");
    renders!("x:<v|lower>", &'static str: text => "x:  Über%3A 50%25  off \t ");
    renders!("x:<v|raw>", &'static str: text => "x:  Über: 50%  OFF \t ");
    let all = "x:Über: 50%  off \t";
    renders!("x:<v|trim|lower|raw>", &'static str: text => all);
    renders!("x:<v|raw|lower|trim>", &'static str: text => all);
    renders!("x:<v|trim>", &'static str: "   " => "x:");
    // `lower` is ASCII: what Unicode lowers changes between releases.
    renders!("x:<v|lower>", &'static str: "ÄA" => "x:Äa");
}

#[test]
fn display_takes_the_values_own_text() {
    struct Amount(f64);
    impl std::fmt::Display for Amount {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            // In several pieces, so that filters see them one by one.
            write!(f, " {}", self.0)?;
            write!(f, " :")?;
            write!(f, "EUR ")
        }
    }
    renders!("<v|display>", Amount: Amount(1.5) => " 1.5 %3AEUR ");
    renders!("<v|display|trim>", Amount: Amount(1.5) => "1.5 %3AEUR");
    renders!("<v|display|lower|raw>", Amount: Amount(1.5) => " 1.5 :eur ");
    renders!("<v|display>", f64: 0.1 => "0.1");
}

#[test]
fn filters_see_dates_that_a_pattern_takes_for_text() {
    let time = NaiveDate::default().and_hms_opt(9, 30, 0).expect("a time");
    renders!("<v: text|lower>", chrono::NaiveDateTime: time => "1970-01-01t093000");
}

#[test]
fn keys_of_different_values_differ() {
    #[derive(LockKey)]
    #[lock_key("a:<first>:<second>")]
    struct Two {
        first: &'static str,
        second: &'static str,
    }
    let (first, second) = ("x:y", "z");
    assert_eq!(Two { first, second }.rendered(), "a:x%3Ay:z");
    let (first, second) = ("x", "y:z");
    assert_eq!(Two { first, second }.rendered(), "a:x:y%3Az");
    assert_eq!(Two { first, second }.pattern(), "a:<first>:<second>");
}

#[test]
fn the_key_is_the_derivation_of_the_rendered_text() {
    macro_rules! check {
        ($name:tt is $derivation:ident = $number:literal) => {{
            #[derive(LockKey)]
            #[lock_key("room:<room>:<day>", derivation = $name)]
            struct Lock {
                room: &'static str,
                day: NaiveDate,
            }
            let day = NaiveDate::from_ymd_opt(2025, 1, 15).expect("a day");
            for room in [
                "7",
                "",
                "a:b%",
                "日本 é",
                "long enough for a second block of any hash",
            ] {
                let lock = Lock { room, day };
                let number = Derivation::$derivation.key(&lock.rendered());
                assert_eq!(lock.key(), Key::BigInt(number), "{room}");
            }
            let lock = Lock { room: "7", day };
            assert_eq!(lock.rendered(), "room:7:2025-01-15");
            assert_eq!(lock.key(), Key::BigInt($number));
        }};
    }
    // Computed by PostgreSQL 15, and for FNV-1a by a loop in another language.
    check!("sha256" is Sha256 = -3_788_238_548_905_492_410);
    check!("md5" is Md5 = -2_383_335_748_404_396_645);
    check!("fnv1a32" is Fnv1a32 = -311_019_737);
    check!("fnv1a64" is Fnv1a64 = 7_309_508_269_383_651_303);
    check!("hashtext" is Hashtext = -1_760_652_218);
    check!("hashtextextended" is Hashtextextended = -6_664_508_735_013_088_186);
}
