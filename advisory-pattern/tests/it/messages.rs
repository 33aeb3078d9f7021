//! The words of a finding about two sites.

use advisory_pattern::{Record, site_collisions};

use crate::rows;

/// A site: its kind, its function, its key as written, and the shapes with which it is compared.
fn site(kind: &str, function: &str, written: &str, shaped: &str) -> Record {
    Record {
        kind: kind.into(),
        function: function.into(),
        written: vec![written.into()],
        keys: vec![format!("pattern {shaped}")],
        derivation: "sha256".into(),
        scope: if kind == "struct" { "none" } else { "xact" }.into(),
        ..Record::default()
    }
}

fn function(name: &str, written: &str, shaped: &str) -> Record {
    site("fn", name, written, shaped)
}

fn named(site: Record) -> Record {
    Record {
        name: Some("slot".into()),
        ..site
    }
}

fn message(sites: &[Record; 2]) -> (String, String) {
    let mut found = site_collisions(sites).expect("few sites");
    let found = found.pop().expect("they collide");
    (found.headline, found.advice.text)
}

fn assert_says(sites: &[Record; 2], headline: &str, advice: &str) {
    let expected = (headline.to_owned(), advice.to_owned());
    assert_eq!(message(sites), expected);
}

#[test]
fn one_key_of_two_sites_is_shared_or_gets_a_word() {
    let key = "slot:<id: int>";
    let site_of = |name| match name {
        "pay" => function("pay", key, key),
        "named pay" => named(function("pay", key, key)),
        "book" => function("book", key, key),
        "named book" => named(function("book", key, key)),
        "declared" => site("struct", "SlotLock", key, key),
        "seat" => site("struct", "SeatLock", key, key),
        _ => site("macro", "lock_key!", key, key),
    };
    let cases = r#"
pay => book => functions => `name = "slot"` at both => book:slot:<id: int>
pay => declared => sites => `SlotLock { … }` instead of the pattern at fn `pay` => slot-id:<id: int>
declared => pay => sites => `SlotLock { … }` instead of this pattern => pay:slot:<id: int>
declared => seat => sites => `name = "slot"` at both => seat:slot:<id: int>
pay => number => sites => `name = "slot"` at both => slot-id:<id: int>
named pay => book => functions => `name = "slot"` here as well => book:slot:<id: int>
pay => named book => functions => `name = "slot"` at fn `pay` as well => book:slot:<id: int>
"#;
    for [here, there, kind, shared, split] in rows(cases) {
        assert_says(
            &[site_of(here), site_of(there)],
            &format!("two {kind} lock the same key: `slot:<id: int>`"),
            &format!(
                "if they are one lock, write {shared}; if not, start one key with its own word, which makes it another lock: `{split}`"
            ),
        );
    }
}

#[test]
fn keys_that_differ_in_names_or_shapes_are_no_same_key() {
    let slot = function("pay", "slot:<id: int>", "slot:<id: int>");
    let other_name = function("book", "slot:<n: int>", "slot:<n: int>");
    assert_says(
        &[slot, other_name],
        "advisory lock keys can collide: `slot:<n: int>` and `slot:<id: int>`",
        "if they are one lock, give both the same `name = \"…\"` or declare it once; if not, start one key with its own word, which makes it another lock: `book:slot:<n: int>`",
    );
    let slot = function("pay", "slot:<id>", "slot:<id: int>");
    let other_shape = function("book", "slot:<id>", "slot:<id: uint>");
    assert_says(
        &[slot, other_shape],
        "advisory lock keys can collide: `slot:<id>` and `slot:<id>`",
        "if they are one lock, write one key and the same `name = \"…\"` at both, or declare it once; if not, start one key with its own word, which makes it another lock: `book:slot:<id>`",
    );
}

#[test]
fn a_word_is_the_functions_name_as_it_is_read() {
    for (name, word) in [
        ("r#move", "move"),
        ("RowLock", "row"),
        ("FlatFeeLock", "flat-fee"),
        ("Lock", "lock"),
    ] {
        let key = "<a: text>:<n: int>";
        let advice = message(&[function("pay", key, key), function(name, key, key)]).1;
        assert!(
            advice.ends_with(&format!("`{word}:<a: text>:<n: int>`")),
            "{advice}"
        );
    }
}

#[test]
fn one_name_is_given_the_shape_that_both_values_have() {
    // An integer that is never negative is an integer; the value of a function may be a text
    // indeed, that of `lock_key!` cannot be, unless it is written as one.
    let cases = "
pay => slot:<id: int> => slot:<id: int> => book => slot:<id> => slot:<id: uint> => `slot:<id: int>` here
pay => <a: int>:<id: int> => <a: int>:<id: int> => book => <a: int>:<id> => <a: int>:<id: uint> => `<a: int>:<id: int>` here
pay => slot:<id: text> => slot:<id: text> => book => slot:<id: int> => slot:<id: int> => `slot:<id: text>` here
pay => slot:<id: int> => slot:<id: int> => book => slot:<id> => slot:<id: text> => `slot:<id: text>` at fn `pay`
pay => slot:<id: int> => slot:<id: int> => lock_key! => slot:<id> => slot:<id: text> => `slot:<id: int>` here
lock_key! => slot:<id> => slot:<id: text> => book => slot:<id: int> => slot:<id: int> => `slot:<id: int>` at macro `lock_key!`
pay => slot:<id: int> => slot:<id: int> => lock_key! => slot:<id: text> => slot:<id: text> => `slot:<id: text>` at fn `pay`
";
    let site_of = |name, written, shaped| {
        let kind = if name == "lock_key!" { "macro" } else { "fn" };
        named(site(kind, name, written, shaped))
    };
    for [one, key, shaped, other, other_key, other_shaped, write] in rows(cases) {
        let sites = [
            site_of(one, key, shaped),
            site_of(other, other_key, other_shaped),
        ];
        let same = "a name is one lock, so shapes must be the same";
        assert_eq!(message(&sites).1, format!("{same}: write {write}"));
    }
    let rows = [
        ("slot:<id: raw>", "slot:<id: text>"),
        ("slot:<id: uuid>", "slot:<id: date>"),
        ("slot:<id: text>", "slot:<id: text|lower>"),
        ("slot:<id: int>", "seat:<id: uint>"),
        ("slot:<id: int>", "slot:<id: int>:<n: int>"),
    ];
    for (one, other) in rows {
        let advice = message(&[site_of("pay", one, one), site_of("book", other, other)]).1;
        assert_eq!(
            advice,
            "a name is one lock, so shapes and filters must be the same: write the same key at both, or another name"
        );
    }
}

#[test]
fn one_name_with_one_text_shows_the_shapes() {
    for (name, keys) in [
        ("id", "`slot:<id: uint>` and `slot:<id: int>`"),
        ("n", "`slot:<n>` and `slot:<id>`"),
    ] {
        let book = function(
            "book",
            &format!("slot:<{name}>"),
            &format!("slot:<{name}: uint>"),
        );
        let sites = [function("pay", "slot:<id>", "slot:<id: int>"), book].map(named);
        assert_eq!(
            message(&sites).0,
            format!("advisory lock `slot` has two keys: {keys}")
        );
    }
}

#[test]
fn a_placeholders_name_suggests_its_shape() {
    let rows = [
        ("day", "`<day: date>`"),
        ("birthdate", "`<birthdate: date>`"),
        ("count", "`<count: int>`"),
        ("month", "`<month: int>`"),
        ("year", "`<year: int>`"),
        ("week", "`<week: int>`"),
        ("number", "`<number: int>`"),
        ("tenant", "`<tenant: uuid>` or `<tenant: int>`"),
    ];
    let account = || function("pay", "account:<n: int>", "account:<n: int>");
    for (name, shapes) in rows {
        let book = function(
            "book",
            &format!("<{name}>:<n: int>"),
            &format!("<{name}: text>:<n: int>"),
        );
        let advice = message(&[account(), book]).1;
        let guess = format!(
            "`<{name}>` has no shape, and is taken for any text: if it is not, write its shape, such as {shapes}; if it is any text, "
        );
        assert!(advice.starts_with(&guess), "{advice}");
    }
    // A shape or a filter says that it is a text.
    for (written, shaped) in [
        ("<tenant: text>:<n: int>", "<tenant: text>:<n: int>"),
        ("<tenant|lower>:<n: int>", "<tenant: text|lower>:<n: int>"),
    ] {
        let advice = message(&[account(), function("book", written, shaped)]).1;
        assert!(advice.starts_with("if they are one lock, "), "{advice}");
    }
}

#[test]
fn the_second_half_of_a_pair_is_guessed_as_a_key_is() {
    let half = |name: &str, written: &str, shaped: &str| Record {
        written: vec![format!("(7, \"{written}\")")],
        keys: vec![format!("half 7 {shaped}")],
        derivation: "hashtext".into(),
        ..function(name, "", "")
    };
    let pay = half("pay", "account:<n: int>", "account:<n: int>");
    let book = half("book", "<tenant>:<n: int>", "<tenant: text>:<n: int>");
    assert_eq!(
        message(&[pay, book]).1,
        "`<tenant>` has no shape, and is taken for any text: if it is not, write its shape, such as `<tenant: uuid>` or `<tenant: int>`; \
         if it is any text, start one key with its own word, which makes it another lock: `(7,\"book:<tenant>:<n: int>\")`"
    );
}
