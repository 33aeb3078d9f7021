//! Two patterns collide exactly when a key is in both, and the key shown is readable.

use advisory_pattern::{Atom, CharSet, Language, overlap, witness};

use crate::{language, rows};

#[test]
fn overlap_is_that_of_the_languages() {
    let cases = [
        ("<tenant>:<slot>", "<account>:<month>", true),
        ("<tenant_id>:<date>", "<tenant_id>:balance:<b>", false),
        ("<t: raw>:<date>", "<t>:balance:<b>", true),
        ("<t: uuid>:<date: date>", "<t: uuid>:<b: uuid>", false),
        ("<a: int>", "<b: uint>", true),
        ("<a: int>:<b: int>", "<a: int>-<b: int>", false),
        ("<a: int><b: int>", "<a: int>", true),
        ("x:<a: uint>", "y:<a: uint>", false),
        ("job", "job", true),
        ("job", "jobs", false),
        ("job<a>", "jobs", true),
        ("<a: bool>", "<b: int>", false),
        ("<a: bool>", "tale", false),
        ("<a: uuid>", "<b: uint>", false),
        ("<d: date>", "<a: int><b: int><c: int>", true),
        ("<t: time>", "<n: uint>", true),
        ("<t: datetime>", "<t: timestamp>", false),
        ("<a: char>", "<b: uint>", true),
        ("<a: char>:x", "<b: uuid>:x", false),
        ("<a: char>%25", "<b: char>", false),
        ("é<a>", "<b>", true),
        ("é", "e", false),
        ("é", "è", false),
        ("é:<a>", "è:<a>", false),
        (":", "<a>", false),
        (":", "<a>:<b>", true),
    ];
    for (a, b, collide) in cases {
        let (left, right) = (language(a), language(b));
        assert_eq!(overlap(&left, &right), collide, "{a} and {b}");
        assert_eq!(overlap(&right, &left), collide, "{b} and {a}");
        assert_eq!(witness(&left, &right).is_some(), collide, "{a} and {b}");
    }
}

#[test]
fn a_jump_ends_at_the_end_of_its_part() {
    let read = |c| Atom::one(CharSet::only(c));
    for jump in [Atom::branch(9), Atom::branch(1)] {
        let part = [read('w'), jump, read('x')];
        let parts = [(Some("a".to_owned()), &part[..]), (None, &[read('y')])];
        let jumping = Language::of_parts(parts);
        for (text, is_in) in [("wy", true), ("wxy", true), ("w", false), ("wx", false)] {
            assert_eq!(overlap(&jumping, &language(text)), is_in, "{text}");
        }
    }
}

#[test]
fn two_sets_share_the_character_that_both_name() {
    let only = |c| CharSet::only(c);
    assert!(only('é').intersection(only('é')).contains('é'));
    assert!(!only('é').intersection(only('è')).contains('é'));
    assert!(!only('é').intersects(only('è')));
}

/// The table has a word for each 64 positions of a pattern.
#[test]
fn long_patterns_overlap_as_short_ones_do() {
    let long = |middle: &str| format!("<a>:{0}{middle}{0}:<b>", "k".repeat(70));
    for (a, b, collide) in [
        (long("k"), long("k"), true),
        (long("k"), long("j"), false),
        (long("<c: uint>"), long("7"), true),
        (long("<c: uint>"), long("j"), false),
        (long("k"), "<a>:<x>:<b>".to_owned(), true),
        (long(":"), "<a>:<x>:<b>".to_owned(), false),
    ] {
        let (left, right) = (language(&a), language(&b));
        assert_eq!(overlap(&left, &right), collide, "{a} and {b}");
        assert_eq!(overlap(&right, &left), collide, "{b} and {a}");
    }
}

#[test]
fn witness_reads_well() {
    let cases = r#"
<tenant>:<slot> => <account>:<month> => both can render "t1:x": here tenant = "t1", slot = "x"; there account = "t1", month = "x"
<a>:<day: date> => <b>:<c> => both can render "t1:1111-11-11": here a = "t1", day = "1111-11-11"; there b = "t1", c = "1111-11-11"
<a: bool> => <b> => both can render "true": here a = "true"; there b = "true"
job => job => both can render "job"
job => <a>b => both can render "job"; there a = "jo"
<req.day> => 2025 => both can render "2025": here req.day = "2025"
<a|raw> => <t>:balance:<b> => both can render "t1:balance:x": here a = "t1:balance:x"; there t = "t1", b = "x"
<a>: => <b>:: =>
a:<a> => a: => both can render "a:": here a = ""
"#;
    for [a, b, text] in rows(cases) {
        let witness = witness(&language(a), &language(b));
        let witness = witness.map_or_else(String::new, |witness| witness.to_string());
        assert_eq!(witness, text, "{a} and {b}");
    }
}
