//! The numbers of a key, and who holds them.

use crate::programs::{advisory, assert_has};

#[test]
fn a_key_is_shown_with_each_derivation_and_its_holder_query() {
    let said = advisory(&["key", "booking:42"]).exits(0);
    assert_eq!(said.out, include_str!("key.txt"));
}

#[test]
fn json_is_an_object_from_derivation_to_number() {
    let said = advisory(&["key", "booking:42", "--format", "json"]);
    let numbers: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let known = advisory_pattern::Derivation::ALL;
    assert_eq!(numbers.as_object().unwrap().len(), known.len() + 2);
    assert_eq!(numbers["version"], 1);
    let hash = numbers["lease"].as_str().unwrap();
    assert_eq!(hash.len(), 64);
    let hash = u64::from_str_radix(&hash[..16], 16).unwrap();
    assert_eq!(numbers["sha256"], hash.cast_signed());
    for derivation in known {
        assert_eq!(numbers[derivation.name()], derivation.key("booking:42"));
    }
}

#[test]
fn the_text_is_taken_as_rendered() {
    for text in ["a%3Ab", "<tenant>", "-1", "", "日本"] {
        let said = advisory(&["key", "--format", "json", "--", text]);
        let numbers: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(
            numbers["sha256"],
            advisory_pattern::Derivation::Sha256.key(text)
        );
    }
}

#[test]
fn a_number_is_shown_with_the_tool_that_uses_it() {
    for (number, words, tools) in [
        ("72707369", &[][..], &["Prisma Migrate"][..]),
        ("737815420147457505", &[], &["Rails"]),
        ("3689236698", &[], &[]),
        ("3689236698", &["--database", "shop"], &["golang-migrate"]),
        ("1", &[], &["graph-node", "Airflow"]),
        ("-42", &[], &[]),
    ] {
        let words = [&["key"], words].concat();
        let json = [&words[..], &["--format", "json", "--", number]].concat();
        let said: serde_json::Value = serde_json::from_str(&advisory(&json).out).unwrap();
        assert_eq!(said["number"].to_string(), number);
        assert_eq!(said["tools"], serde_json::json!(tools), "{words:?}");
        let shown = advisory(&[&words[..], &["--", number]].concat()).out;
        let lines = shown
            .lines()
            .filter(|line| line.starts_with(&format!("{number} ")));
        assert_eq!(lines.count(), tools.len(), "{shown}");
        for tool in tools {
            assert_has(&shown, tool);
        }
        assert_has(&shown, "('number', ");
    }
    let text: serde_json::Value =
        serde_json::from_str(&advisory(&["key", "a", "--format", "json"]).out).unwrap();
    assert_eq!(text.get("tools"), None);
}
