//! What a finding about two sites says, word by word.

use advisory_pattern::{Record, site_collisions};

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

/// The finding about the second site.
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
    let pay = || function("pay", key, key);
    let book = || function("book", key, key);
    let declared = || site("struct", "SlotLock", key, key);
    let seat = site("struct", "SeatLock", key, key);
    let number = || site("macro", "lock_key!", key, key);
    let rows = [
        (
            [pay(), book()],
            "functions",
            "`name = \"slot\"` at both",
            "book:slot:<id: int>",
        ),
        (
            [pay(), declared()],
            "sites",
            "`SlotLock { … }` instead of the pattern at fn `pay`",
            "slot-id:<id: int>",
        ),
        (
            [declared(), pay()],
            "sites",
            "`SlotLock { … }` instead of this pattern",
            "pay:slot:<id: int>",
        ),
        (
            [declared(), seat],
            "sites",
            "`name = \"slot\"` at both",
            "seat:slot:<id: int>",
        ),
        (
            [pay(), number()],
            "sites",
            "`name = \"slot\"` at both",
            "slot-id:<id: int>",
        ),
        (
            [named(pay()), book()],
            "functions",
            "`name = \"slot\"` here as well",
            "book:slot:<id: int>",
        ),
        (
            [pay(), named(book())],
            "functions",
            "`name = \"slot\"` at fn `pay` as well",
            "book:slot:<id: int>",
        ),
    ];
    for (sites, kind, shared, split) in rows {
        assert_says(
            &sites,
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
    let macros = |written: &str, shaped: &str| site("macro", "lock_key!", written, shaped);
    let fns = |written: &str, shaped: &str| function("book", written, shaped);
    let pay = |key: &str| function("pay", key, key);
    let rows = [
        // An integer that is never negative is an integer.
        (
            [pay("slot:<id: int>"), fns("slot:<id>", "slot:<id: uint>")],
            "write `slot:<id: int>` here",
        ),
        (
            [
                pay("<a: int>:<id: int>"),
                fns("<a: int>:<id>", "<a: int>:<id: uint>"),
            ],
            "write `<a: int>:<id: int>` here",
        ),
        (
            [
                pay("slot:<id: text>"),
                fns("slot:<id: int>", "slot:<id: int>"),
            ],
            "write `slot:<id: text>` here",
        ),
        // The value of a function may be a text indeed, that of `lock_key!` cannot be.
        (
            [pay("slot:<id: int>"), fns("slot:<id>", "slot:<id: text>")],
            "write `slot:<id: text>` at fn `pay`",
        ),
        (
            [
                pay("slot:<id: int>"),
                macros("slot:<id>", "slot:<id: text>"),
            ],
            "write `slot:<id: int>` here",
        ),
        (
            [
                macros("slot:<id>", "slot:<id: text>"),
                fns("slot:<id: int>", "slot:<id: int>"),
            ],
            "write `slot:<id: int>` at macro `lock_key!`",
        ),
        // Written as a text, it is one.
        (
            [
                pay("slot:<id: int>"),
                macros("slot:<id: text>", "slot:<id: text>"),
            ],
            "write `slot:<id: text>` at fn `pay`",
        ),
    ];
    for (sites, write) in rows {
        let advice = message(&sites.map(named)).1;
        let same = "a name is one lock, so shapes must be the same";
        assert_eq!(advice, format!("{same}: {write}"));
    }
    let rows = [
        ("slot:<id: raw>", "slot:<id: text>"),
        ("slot:<id: uuid>", "slot:<id: date>"),
        ("slot:<id: text>", "slot:<id: text|lower>"),
        ("slot:<id: int>", "seat:<id: uint>"),
        ("slot:<id: int>", "slot:<id: int>:<n: int>"),
    ];
    for (one, other) in rows {
        let advice = message(&[pay(one), fns(other, other)].map(named)).1;
        let same = "a name is one lock, so shapes and filters must be the same";
        assert_eq!(
            advice,
            format!("{same}: write the same key at both, or another name")
        );
    }
}

#[test]
fn one_name_with_one_text_shows_the_shapes() {
    let sites = [
        function("pay", "slot:<id>", "slot:<id: int>"),
        function("book", "slot:<id>", "slot:<id: uint>"),
    ];
    let headline = message(&sites.map(named)).0;
    assert_eq!(
        headline,
        "advisory lock `slot` has two keys: `slot:<id: uint>` and `slot:<id: int>`"
    );
    let sites = [
        function("pay", "slot:<id>", "slot:<id: int>"),
        function("book", "slot:<n>", "slot:<n: uint>"),
    ];
    let headline = message(&sites.map(named)).0;
    assert_eq!(
        headline,
        "advisory lock `slot` has two keys: `slot:<n>` and `slot:<id>`"
    );
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
    let half = |name: &str, written: &str, key: &str| Record {
        written: vec![written.into()],
        keys: vec![key.into()],
        derivation: "hashtext".into(),
        ..function(name, "", "")
    };
    let advice = message(&[
        half(
            "pay",
            "(7, \"account:<n: int>\")",
            "half 7 account:<n: int>",
        ),
        half(
            "book",
            "(7, \"<tenant>:<n: int>\")",
            "half 7 <tenant: text>:<n: int>",
        ),
    ]);
    assert_eq!(
        advice.1,
        "`<tenant>` has no shape, and is taken for any text: if it is not, write its shape, such as `<tenant: uuid>` or `<tenant: int>`; \
         if it is any text, start one key with its own word, which makes it another lock: `(7,\"book:<tenant>:<n: int>\")`"
    );
}
