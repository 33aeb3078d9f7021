//! Overlap, witness and ambiguity, compared with trying every key.
//!
//! Languages of a few random atoms over few letters. What is found must be true when it is checked
//! by a matcher that shares no code with the crate; what trying every short key finds must be
//! found.

use std::collections::BTreeSet;

use advisory_pattern::{Atom, CharSet, Language, Pattern, Repeat, ambiguity, overlap, witness};
use proptest::prelude::*;

type Parts = Vec<Vec<Atom>>;

const LETTERS: [char; 4] = ['a', '-', 'é', 'è'];
const LONGEST: usize = 5;

fn char_set() -> impl Strategy<Value = CharSet> {
    prop::sample::select(vec![
        CharSet::only('a'),
        CharSet::only('-'),
        CharSet::only('é'),
        CharSet::only('è'),
        CharSet::of("a-"),
        CharSet::all_but("a"),
        CharSet::all_but("-"),
        CharSet::ANY,
    ])
}

fn atom() -> impl Strategy<Value = Atom> {
    prop_oneof![
        4 => char_set().prop_map(Atom::one),
        2 => char_set().prop_map(Atom::optional),
        2 => char_set().prop_map(Atom::star),
        1 => (0..4_u8).prop_map(Atom::branch),
        1 => (0..3_u8).prop_map(Atom::skip),
    ]
}

fn parts() -> impl Strategy<Value = Parts> {
    let any = vec![Atom::star(CharSet::all_but("-"))];
    let dash = vec![Atom::one(CharSet::only('-'))];
    let part = prop_oneof![
        3 => prop::collection::vec(atom(), 0..4),
        1 => Just(any),
        1 => Just(dash),
    ];
    prop::collection::vec(part, 1..4)
}

fn language(parts: &Parts) -> Language {
    let named = parts.iter().enumerate();
    Language::of_parts(named.map(|(i, atoms)| (Some(i.to_string()), &atoms[..])))
}

/// Every way to cut the key into the parts' values.
fn splits(parts: &[Vec<Atom>], key: &[char]) -> BTreeSet<Vec<String>> {
    let Some((first, rest)) = parts.split_first() else {
        return if key.is_empty() {
            BTreeSet::from([Vec::new()])
        } else {
            BTreeSet::new()
        };
    };
    let mut found = BTreeSet::new();
    for cut in 0..=key.len() {
        let (value, after) = key.split_at(cut);
        if matches(first, value) {
            for mut split in splits(rest, after) {
                split.insert(0, value.iter().collect());
                found.insert(split);
            }
        }
    }
    found
}

fn matches(atoms: &[Atom], text: &[char]) -> bool {
    let Some((atom, after)) = atoms.split_first() else {
        return text.is_empty();
    };
    let read = text
        .split_first()
        .filter(|(c, _)| atom.chars.contains(**c))
        .map(|(_, rest)| rest);
    let skipped = |n: u8| &after[usize::from(n).min(after.len())..];
    match atom.repeat {
        Repeat::One => read.is_some_and(|rest| matches(after, rest)),
        Repeat::Optional => matches(after, text) || read.is_some_and(|rest| matches(after, rest)),
        Repeat::Star => matches(after, text) || read.is_some_and(|rest| matches(atoms, rest)),
        Repeat::Branch(n) => matches(after, text) || matches(skipped(n), text),
        Repeat::Skip(n) => matches(skipped(n), text),
    }
}

fn short_keys() -> Vec<Vec<char>> {
    let mut keys = vec![Vec::new()];
    let mut start = 0;
    for _ in 0..LONGEST {
        let end = keys.len();
        for i in start..end {
            for c in LETTERS {
                let mut key = keys[i].clone();
                key.push(c);
                keys.push(key);
            }
        }
        start = end;
    }
    keys
}

fn values(named: &[(String, String)]) -> Vec<String> {
    named.iter().map(|(_, value)| value.clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn overlap_and_witness_agree_with_trying_every_key(a in parts(), b in parts()) {
        let (left, right) = (language(&a), language(&b));
        let found = overlap(&left, &right);
        prop_assert_eq!(overlap(&right, &left), found);
        let witness = witness(&left, &right);
        prop_assert_eq!(witness.is_some(), found);
        if let Some(witness) = witness {
            let key: Vec<_> = witness.key.chars().collect();
            prop_assert!(splits(&a, &key).contains(&values(&witness.left)), "{:?}", witness);
            prop_assert!(splits(&b, &key).contains(&values(&witness.right)), "{:?}", witness);
        } else {
            let both = |key: &Vec<char>| !splits(&a, key).is_empty() && !splits(&b, key).is_empty();
            prop_assert_eq!(short_keys().into_iter().find(both), None);
        }
    }

    #[test]
    fn ambiguity_agrees_with_trying_every_key(parts in parts()) {
        let language = language(&parts);
        let none = Pattern { parts: Vec::new() };
        if let Some(found) = ambiguity(&none, &language) {
            let key: Vec<_> = found.key.chars().collect();
            let splits = splits(&parts, &key);
            prop_assert_ne!(&found.first, &found.second);
            prop_assert!(splits.contains(&values(&found.first)), "{:?}", found);
            prop_assert!(splits.contains(&values(&found.second)), "{:?}", found);
        } else {
            let twice = |key: &Vec<char>| splits(&parts, key).len() > 1;
            prop_assert_eq!(short_keys().into_iter().find(twice), None);
        }
    }
}
