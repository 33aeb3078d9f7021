//! The suggestion is the word that was meant, and there is none where none fits.

use advisory_pattern::closest;
use proptest::prelude::*;

const ARGUMENTS: [&str; 8] = [
    "key",
    "keys",
    "scope",
    "mode",
    "wait",
    "on_held",
    "max_hold",
    "derivation",
];

#[test]
fn slips_are_recognised() {
    let cases = [
        ("scpoe", "scope"),
        ("onheld", "on_held"),
        ("derivations", "derivation"),
        ("Mode", "mode"),
        ("ky", "key"),
        ("wiat", "wait"),
        ("scoep", "scope"),
        ("drivtion", "derivation"),
    ];
    for (given, meant) in cases {
        assert_eq!(closest(given, ARGUMENTS), Some(meant), "{given}");
    }
}

#[test]
fn other_words_suggest_nothing() {
    for given in ["", "x", "timeout", "banana", "scale"] {
        assert_eq!(closest(given, ARGUMENTS), None, "{given}");
    }
    assert_eq!(closest("a", ["b", ""]), None);
}

#[test]
fn every_slip_counts() {
    // Two letters too many or too few and a wrong one; two swaps.
    for given in ["maxxde", "mx_hxd", "csoep"] {
        assert_eq!(closest(given, ARGUMENTS), None, "{given}");
    }
}

proptest! {
    #[test]
    fn any_word_is_closest_to_itself(words in prop::collection::vec("[a-zé_]{1,12}", 1..6), nth: prop::sample::Index) {
        let word = nth.get(&words);
        prop_assert_eq!(closest(word, words.iter().map(String::as_str)), Some(word.as_str()));
    }
}
