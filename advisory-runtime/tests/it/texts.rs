//! Each value other than days and times keeps its text.

use crate::{rendered, renders};
use advisory_pattern::LockedKey;
use advisory_runtime::{Key, LockKey as _};
use proptest::prelude::*;
use std::borrow::Cow;
use std::num::{NonZero, NonZeroI64, NonZeroU8};
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

#[test]
fn integers_are_decimal_without_a_plus_sign_and_leading_zeros() {
    renders!("x:<v: int>", i8: i8::MIN => "x:-128");
    renders!("x:<v: int>", i16: 0 => "x:0");
    renders!("x:<v: int>", i32: -42 => "x:-42");
    let least = "x:-9223372036854775808";
    renders!("x:<v: int>", i64: i64::MIN => least);
    renders!("x:<v: int>", isize: isize::MIN => least);
    let least = "x:-170141183460469231731687303715884105728";
    renders!("x:<v: int>", i128: i128::MIN => least);

    renders!("x:<v: uint>", u8: 255 => "x:255");
    renders!("x:<v: uint>", u16: 10 => "x:10");
    renders!("x:<v: uint>", u32: 9 => "x:9");
    let most = "x:18446744073709551615";
    renders!("x:<v: uint>", u64: u64::MAX => most);
    renders!("x:<v: uint>", usize: usize::MAX => most);
    let most = "x:340282366920938463463374607431768211455";
    renders!("x:<v: uint>", u128: u128::MAX => most);
}

#[test]
fn zeros_inside_a_long_integer_stay() {
    for value in [10_u128.pow(19), 10_u128.pow(38), 10_u128.pow(38) + 7] {
        renders!("<v: uint>", u128: value => value.to_string());
    }
    for value in (0..20).map(|power| 10_u64.pow(power)) {
        renders!("<v: uint>", u64: value => value.to_string());
        renders!("<v: uint>", u64: value - 1 => (value - 1).to_string());
    }
}

#[test]
fn non_zero_integers_are_their_integers() {
    let (minus, seven) = (NonZeroI64::MIN, NonZeroU8::MIN);
    renders!("x:<v: int>", NonZeroI64: minus => "x:-9223372036854775808");
    renders!("x:<v>", NonZeroU8: seven => "x:1");
    // The name `NonZero` says too little: without a written shape it is any text.
    renders!("x:<v>", NonZero<u8>: seven => "x:1");
    renders!("x:<v: uint>", NonZero<u8>: seven => "x:1");
}

#[test]
fn booleans_are_words() {
    renders!("x:<v: bool>", bool: true => "x:true");
    renders!("x:<v: bool>", bool: false => "x:false");
}

#[test]
fn characters_and_texts_escape_only_percent_and_colon() {
    renders!("x:<v: char>", char: 'é' => "x:é");
    renders!("x:<v: char>", char: '%' => "x:%25");
    renders!("x:<v: char>", char: ':' => "x:%3A");
    renders!("x:<v: char|raw>", char: ':' => "x::");

    let text = "a:b%c%3A /\"'\\<>\t\u{0}日本";
    let escaped = "x:a%3Ab%25c%253A /\"'\\<>\t\u{0}日本";
    renders!("x:<v: text>", &'static str: text => escaped);
    renders!("x:<v>", String: text.to_owned() => escaped);
    renders!("x:<v>", &'static str: "" => "x:");
}

#[test]
fn uuids_are_lower_case_with_hyphens() {
    let uuid = Uuid::from_u128(0x67E5_5044_10B1_426F_9247_BB68_0E5F_E0C8);
    let text = "x:67e55044-10b1-426f-9247-bb680e5fe0c8";
    renders!("x:<v: uuid>", Uuid: uuid => text);
    let nil = "00000000-0000-0000-0000-000000000000";
    renders!("<v: uuid>", Uuid: Uuid::nil() => nil);
}

#[test]
fn what_holds_a_value_renders_as_the_value() {
    renders!("<v: int>", &'static i32: &-7 => "-7");
    renders!("<v: int>", Box<i32>: Box::new(-7) => "-7");
    renders!("<v: int>", Arc<i32>: Arc::new(-7) => "-7");
    renders!("<v: int>", Rc<&'static i32>: Rc::new(&-7) => "-7");
    let seven: &'static mut i32 = Box::leak(Box::new(-7));
    renders!("<v: int>", &'static mut i32: seven => "-7");
    renders!("<v>", Arc<str>: Arc::from("a:b") => "a%3Ab");
    renders!("<v>", Box<str>: Box::from("a:b") => "a%3Ab");
    let (borrowed, owned) = (Cow::Borrowed("a:b"), Cow::Owned("a:b".to_owned()));
    renders!("<v>", Cow<'static, str>: borrowed => "a%3Ab");
    renders!("<v>", Cow<'static, str>: owned => "a%3Ab");
    renders!("<v: int>", Cow<'static, i32>: Cow::Owned(-7) => "-7");
}

/// The inventory compares a lease's number as a text, which has to be the one that is rendered.
#[test]
fn a_number_is_compared_as_the_text_that_it_renders_as() {
    for (key, known) in [
        (Key::BigInt(-42), LockedKey::BigInt(-42)),
        (Key::IntInt(7, -3), LockedKey::IntInt(Some(7), Some(-3))),
    ] {
        assert_eq!(key.rendered(), known.text().to_string());
    }
    let open = LockedKey::IntInt(Some(7), None).text().to_string();
    let shown = Key::IntInt(7, -3).rendered();
    assert_eq!(open.replace("<second: int>", "-3"), shown);
}

proptest! {
    #[test]
    fn integers_are_written_as_the_standard_library_writes_them(wide: i128, long: u64, short: i16) {
        prop_assert_eq!(rendered!("<v: int>", i128: wide), wide.to_string());
        prop_assert_eq!(rendered!("<v: uint>", u64: long), long.to_string());
        prop_assert_eq!(rendered!("<v: int>", i16: short), short.to_string());
    }
}
