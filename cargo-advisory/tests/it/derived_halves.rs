//! Pairs with a derived second half: in the registry, between releases, in `key` and in a trigger.

use advisory_pattern::{Derivation, Record};
use advisory_tests::Database;
use diesel_async::SimpleAsyncConnection;
use serde_json::{Value, json};

use crate::guards::{REFUSED, guard, require};
use crate::programs::{Said, advisory, assert_has, file, program_of, site};

const HASHTEXT: Derivation = Derivation::Hashtext;

/// A site of the pair, with its pattern in canonical form.
fn pair(first: i32, shaped: &str) -> Record {
    let written = format!("({first},\"{}\")", shaped.replace(": text", ""));
    let key = format!("half {first} {shaped}");
    Record {
        derivation: "hashtext".to_owned(),
        ..site("shop", "announce", 7, &[&written], &[&key])
    }
}

fn dump(name: &str, record: Record, format: &str) -> Said {
    let program = program_of(name, &[record]);
    advisory(&["dump", "--format", format, "--artifact", &program])
}

#[test]
fn the_registry_has_its_first_half_and_its_pattern() {
    let said = dump("half.rmeta", pair(23_405, "sale:<x: text>"), "json");
    let value: Value = serde_json::from_str(&said.out).unwrap();
    let site = &value["sites"][0];
    assert_eq!(site["pattern"], "(23405,\"sale:<x>\")");
    assert_eq!(site["derivation"], "hashtext");
    assert_eq!(site["key_space"], "(int, int)");
    let key = &site["keys"][0];
    assert_eq!(key["pair"], json!([23_405, null]));
    assert_eq!(key["second"], "sale:<x: text>");
    // A reader that does not know `second` must not take it for the pattern of a `bigint`.
    assert_eq!(key["shaped"], Value::Null);
    let constant = dump("half-constant.rmeta", pair(-7, "job"), "json");
    let value: Value = serde_json::from_str(&constant.out).unwrap();
    let numbers = json!([-7, HASHTEXT.half("job")]);
    assert_eq!(value["sites"][0]["keys"][0]["pair"], numbers);
    let open = Record {
        keys: vec!["number (7,?)".to_owned()],
        ..pair(7, "x")
    };
    let open = dump("half-open.rmeta", open, "json");
    let value: Value = serde_json::from_str(&open.out).unwrap();
    assert_eq!(value["sites"][0]["keys"][0]["pair"], json!([7, null]));
    let markdown = dump("half-md.rmeta", pair(23_405, "sale:<x: text>"), "markdown");
    let out = &markdown.out;
    assert_has(&out, "Per x (text)");
    assert_has(&out, "| hashtext, `(int, int)` |");
    assert_has(&out, "| `hashtext` | 1 | 32 |");
    let table = dump("half-table.rmeta", pair(23_405, "sale:<x: text>"), "text");
    assert_has(&table.out, "(23405,\"sale:<x>\")  ");
    assert_has(&table.out, "hashtext");
}

#[test]
fn another_first_half_is_a_changed_key_and_the_same_one_is_not() {
    let old = dump("half-old.rmeta", pair(7, "sale:<x: text>"), "json");
    let old = file("half-old.json", old.out);
    for (new, code) in [
        (pair(7, "sale:<y: text>"), 0),
        (pair(8, "sale:<x: text>"), 1),
        (pair(7, "shop:<x: text>"), 1),
    ] {
        let program = program_of("half-new.rmeta", std::slice::from_ref(&new));
        let said = advisory(&["check", "--artifact", &program, "--against", &old]);
        assert_eq!(said.code, Some(code), "{new:?}: {}", said.out);
    }
}

#[test]
fn only_sites_of_one_first_half_collide() {
    let other = |first| Record {
        function: "withdraw".to_owned(),
        ..pair(first, "<y: text>:a")
    };
    for (first, code) in [(7, 1), (8, 0)] {
        let program = program_of(
            "half-check.rmeta",
            &[pair(7, "sale:<x: text>"), other(first)],
        );
        let said = advisory(&["check", "--artifact", &program]);
        assert_eq!(said.code, Some(code), "{}", said.out);
    }
}

#[test]
fn key_prints_both_numbers_of_a_pairs_text() {
    for text in ["(23405,\"spring sale\")", "(23405, \"spring sale\")"] {
        let said = advisory(&["key", text, "--format", "json"]);
        let numbers: Value = serde_json::from_str(&said.out).unwrap();
        // SELECT hashtext('spring sale')
        assert_eq!(numbers["hashtext"], json!([23_405, 243_809_511]));
        let fnv = Derivation::Fnv1a32.half("spring sale");
        assert_eq!(numbers["fnv1a32"], json!([23_405, fnv]));
        assert_eq!(numbers.get("sha256"), None);
        let shown = advisory(&["key", text]).out;
        assert_has(&shown, "(23405, 243809511)");
        assert_has(&shown, "('hashtext', 23405::oid, 243809511::oid)");
        assert_has(&shown, "l.objsubid = 2");
    }
}

#[tokio::test]
async fn a_trigger_computes_both_halves() {
    let db = Database::create().await;
    db.run("CREATE TABLE bookings (room int, guest text)").await;
    let key = ["--key", "(-7,\"room:<room: int>\")", "--table", "bookings"];
    let words = [&key[..], &["--derivation", "hashtext", "--lock", "room"]].concat();
    guard(&db, &words).await;
    let mut conn = db.connect().await;
    for (lock, is_refused) in [
        ("-7, hashtext('room:1')", false),
        ("-7, hashtext('room:2')", true),
        ("7, hashtext('room:1')", true),
        ("hashtext('room:1')", true),
    ] {
        let sql = format!(
            "BEGIN; SELECT pg_advisory_xact_lock({lock}); INSERT INTO bookings VALUES (1, 'a'); COMMIT"
        );
        let done = conn.batch_execute(&sql).await;
        match done {
            Ok(()) => assert!(!is_refused, "{lock}"),
            Err(error) => {
                assert!(
                    is_refused && error.to_string().starts_with(REFUSED),
                    "{lock}: {error}"
                );
                conn.batch_execute("ROLLBACK").await.unwrap();
            }
        }
    }
    let said = require(&key).await;
    let why = "the second half of a pair has 32 bits, and `sha256` gives 64";
    assert_has(&said.err, why);
}
