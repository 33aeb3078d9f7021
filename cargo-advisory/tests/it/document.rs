//! The document of a program of several crates says who takes each lock, and where.

use crate::records::declared;
use advisory_pattern::{Permits, Record};
use serde_json::Value;

use crate::programs::{
    advisory, assert_has, assert_has_all, file, keyed, program_of, scratch, site,
};

const REGISTRY: &str = include_str!("../../docs/registry.md");

fn transfer(line: u32) -> Record {
    let keys = ["AccountLock { id: from }", "AccountLock { id: to }"];
    Record {
        purpose: Some("Moves an amount".into()),
        wait: Some("self.patience".into()),
        ..site("bank", "transfer", line, &keys, &["?", "?"])
    }
}

fn dump(name: &str, sites: &[Record]) -> String {
    let program = program_of(name, sites);
    let said = advisory(&["dump", "--format", "markdown", "--artifact", &program]).exits(0);
    said.out
}

#[test]
fn the_holder_of_a_declared_lock_is_listed_with_its_pattern() {
    let sites = [
        keyed("bank", "audit", 40, "z:<day: date>"),
        transfer(20),
        Record {
            scope: "lease".into(),
            ..site("jobs", "settle", 9, &["locks::AccountLock { id }"], &["?"])
        },
        declared("domain", "AccountLock", "account:<id: int>"),
    ];
    let document = dump("document-declared.rmeta", &sites);
    let rows: Vec<&str> = document
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let expected = [
        "| `account:<id: int>` | Ledger | One account | Per id (int) | Declared; held where it is used | md5 | `domain::AccountLock` | `domain: src/lib.rs:3` |",
        "| `account:<id: int>` | Ledger | Moves an amount | Per id (int) | Transaction (`pg_advisory_xact_lock`), waits `self.patience` | md5 | `bank::transfer` | `bank: src/lib.rs:20` |",
        "| `account:<id: int>` | Ledger | One account | Per id (int) | Lease (a row that is renewed) | none: SHA-256 of the text, in the lease table | `jobs::settle` | `jobs: src/lib.rs:9` |",
        "| `z:<day>` |  |  | Per day (date) | Transaction (`pg_advisory_xact_lock`) | sha256 | `bank::audit` | `bank: src/lib.rs:40` |",
    ];
    assert_eq!(rows[..4], expected, "{document}");
}

/// Without `..`, so that a new argument does not compile here until it is listed.
#[test]
fn each_argument_of_a_lock_is_in_the_document_the_page_and_the_json() {
    let some = |word: &str| Some(word.to_owned());
    let lock = Record {
        kind: "fn".into(),
        name: some("Booking"),
        component: some("Calendar"),
        purpose: some("One booking of a room"),
        written: vec!["room:<room>".into()],
        keys: vec!["pattern room:<room: int>".into()],
        with: vec![("room".into(), "req.room_number".into())],
        derivation: "fnv1a64".into(),
        scope: "session".into(),
        mode: "shared".into(),
        wait: some("71s"),
        poll: some("72ms"),
        permits: Some(Permits::Number(73)),
        max_hold: some("74s"),
        isolation: some("repeatable read"),
        ttl: some("75s"),
        renew: some("76s"),
        keep: some("77s"),
        allow_overlap: vec![("Other".into(), "they never meet".into())],
        guards: vec!["bookings".into()],
        allow_ambiguous: some("rooms have no colon"),
        allow_redundant: some("the constraint came later"),
        module: "calendar::rooms".into(),
        function: "book".into(),
        file: "src/rooms.rs".into(),
        line: 78,
        krate: "calendar".into(),
        version: "7.9.0".into(),
    };
    let program = program_of("document-whole.rmeta", std::slice::from_ref(&lock));
    let shown = [
        "room:&lt;room&gt;",
        "Calendar",
        "One booking of a room",
        "shared",
        "71s",
        "72ms",
        "73",
        "74s",
        "repeatable read",
        "75s",
        "76s",
        "77s",
        "bookings",
        "the constraint came later",
        "calendar::rooms::book",
        "src/rooms.rs:78",
    ];
    let page = scratch("document-whole.html");
    advisory(&["report", "--artifact", &program, "-o", &page]).exits(0);
    assert_has_all(&std::fs::read_to_string(page).unwrap(), &shown);
    let document = dump("document-whole.rmeta", std::slice::from_ref(&lock));
    assert_has_all(&document.replace('<', "&lt;").replace('>', "&gt;"), &shown);
    let said = advisory(&["dump", "--format", "json", "--artifact", &program]);
    let written = said.exits(0).out;
    let read = file("document-whole.json", &written);
    advisory(&["check", "--registry", &read, "--artifact", &program]).exits(0);
    for value in [
        "Booking",
        "req.room_number",
        "fnv1a64",
        "they never meet",
        "rooms have no colon",
        "7.9.0",
    ] {
        assert_has(&written, value);
    }
    assert_has_all(&written, &shown[1..14]);
    // The page says what a change of each field does while two releases run.
    let (_, table) = REGISTRY.split_once("\n| field of a lock |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let written: Value = serde_json::from_str(&written).unwrap();
    let of_keys = ["pattern", "number", "key_space"];
    let of_place = ["kind", "file", "line", "crate", "crate_version"];
    for field in written["sites"][0].as_object().unwrap().keys() {
        let is_named = table.contains(&format!("`{field}`")) || field.starts_with("allow_");
        let follows = of_keys.iter().chain(&of_place).any(|other| other == field);
        assert!(is_named || follows, "`{field}` is not in registry.md");
    }
}

#[test]
fn the_table_has_a_row_for_each_key_and_steers_no_terminal() {
    let record = Record {
        function: "trans\u{9b}fer".into(),
        written: vec!["\u{202e}from".into(), "to".into()],
        ..transfer(20)
    };
    let program = program_of("document-keys.rmeta", &[record]);
    let said = advisory(&["dump", "--artifact", &program]).exits(0);
    let rows: Vec<&str> = said.out.lines().collect();
    let rest = "  at run time  xact   bank::trans fer  src/lib.rs:20";
    assert_eq!(rows[1..3], [format!(" from{rest}"), format!("to   {rest}")]);
}

#[test]
fn a_name_that_two_locks_have_says_nothing() {
    let sites = [
        transfer(20),
        declared("domain", "AccountLock", "account:<id: int>"),
        declared("other", "AccountLock", "purse:<id: int>"),
    ];
    let document = dump("document-two.rmeta", &sites);
    assert_has_all(
        &document,
        &[
            "| `AccountLock { id: from }` |",
            "| `AccountLock { id: to }` |",
        ],
    );
}

#[test]
fn moving_a_function_within_its_file_is_not_a_drift() {
    let sites = |first, second| {
        [
            keyed("bank", "audit", first, "z:<day: date>"),
            transfer(second),
            declared("domain", "AccountLock", "account:<id: int>"),
        ]
    };
    let document = file(
        "document-before.md",
        dump("document-before.rmeta", &sites(5, 20)),
    );
    let program = program_of("document-moved.rmeta", &sites(50, 20));
    advisory(&["check", "--artifact", &program, "--registry", &document]).exits(0);
}

#[test]
fn both_formats_show_the_wait_and_the_permits_of_a_site() {
    let export = Record {
        wait: Some("10m".into()),
        poll: Some("1s".into()),
        permits: Some(Permits::Number(3)),
        ..site("shop", "export", 7, &["export"], &["pattern export"])
    };
    let document = dump("polled", std::slice::from_ref(&export));
    let wanted =
        "Transaction (`pg_try_advisory_xact_lock`), waits 10m, asks every 1s, at most 3 at once";
    assert_has(&document, wanted);
    let program = program_of("polled-json", &[export]);
    let said = advisory(&["dump", "--format", "json", "--artifact", &program]);
    let json: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["sites"][0]["poll"], "1s");
    assert_eq!(json["sites"][0]["permits"], 3);
    for (permits, code, why) in [
        ("3", 0, ""),
        ("\"self.limit\"", 0, ""),
        (
            "true",
            2,
            "`permits` is neither a number from 1 to 1000 nor an expression",
        ),
    ] {
        let text = said
            .out
            .replace("\"permits\": 3", &format!("\"permits\": {permits}"));
        let inventory = file("polled.json", text);
        let check = ["check", "--artifact", &program, "--against", &inventory];
        let checked = advisory(&check).exits(code);
        assert_has(&checked.err, why);
    }
}

#[test]
fn no_text_leaves_its_cell_or_its_code_span() {
    let keys = ["hash(\"a``<img src=x>\") | 1"];
    let sites = [Record {
        purpose: Some("Either a \\| b, a | b, or a \\\\| b".into()),
        ..site("bank", "audit", 40, &keys, &["?"])
    }];
    let document = dump("document-cells.rmeta", &sites);
    let row = "| ``` hash(\"a``<img src=x>\") \\| 1 ``` | Either a \\| b, a \\| b, or a \\\\\\| b | Per key |";
    assert_has(&document, row);
}
