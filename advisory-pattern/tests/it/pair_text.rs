//! The text of a pair with a derived half is read as it was written.

use advisory_pattern::{Derivation, LockedKey, Shape, pair_text, split_pair_text};

use crate::pattern;

#[test]
fn a_pairs_text_is_split_where_it_was_joined() {
    for text in ["a", "", "a,b", "\"", "\")", " a ", "<x>:<y>", "(7,\"a\")"] {
        for first in [0, 7, -23_405, i32::MIN, i32::MAX] {
            let whole = pair_text(first, text);
            assert_eq!(split_pair_text(&whole), Some((first, text)), "{whole}");
        }
    }
    assert_eq!(split_pair_text("( 7 , \"a\" )"), Some((7, "a")));
    for other in [
        "",
        "7",
        "(7, 3)",
        "(7,a)",
        "(x,\"a\")",
        "7,\"a\"",
        "(7,\")",
        "(7,\"a\"",
    ] {
        assert_eq!(split_pair_text(other), None, "{other}");
    }
}

#[test]
fn a_key_with_a_derived_half_has_a_pattern_and_fixed_numbers() {
    let key = |text: &str| LockedKey::IntPattern(7, pattern(text).shaped(|_| Shape::Text));
    for (text, whole) in [
        ("a:<x: text>", "(7,\"a:<x: text>\")"),
        ("<x: text>", "(7,\"<x: text>\")"),
        ("a", "(7,\"a\")"),
    ] {
        assert_eq!(key(text).text().to_string(), whole);
    }
    let hash = Derivation::Hashtext.half("a");
    assert_eq!(key("a").pair(Derivation::Hashtext), Some((7, hash)));
    assert_eq!(key("<x>").pair(Derivation::Hashtext), None);
}
