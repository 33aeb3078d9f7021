//! Is a key that changed between two releases found?

use serde_json::Value;

use crate::programs::{Said, advisory, booking_service, file, inventory};

fn against(name: &str, previous: &str, more: &[&str]) -> Said {
    let (program, previous) = (booking_service(), file(name, previous));
    let words = ["check", "--artifact", &program, "--against", &previous];
    advisory(&[&words[..], more].concat())
}

#[test]
fn the_same_keys_are_no_change() {
    assert_eq!(
        against("against-same.json", &inventory(), &[]).code,
        Some(0)
    );
}

#[test]
fn a_changed_key_is_a_finding_that_shows_both() {
    let previous = inventory().replace(":balance:", ":payment:");
    let said = against("against-changed.json", &previous, &[]);
    assert_eq!(said.code, Some(1));
    let file = crate::programs::scratch("against-changed.json");
    assert_eq!(
        said.out.replace(&file, "previous.json"),
        include_str!("release.txt")
    );
}

/// The pattern has the same text.
#[test]
fn another_type_of_a_value_is_shown_by_its_shape() {
    let previous = inventory().replacen("<date: text>", "<date: date>", 1);
    let said = against("against-type.json", &previous, &[]);
    assert_eq!(said.code, Some(1));
    let changed = "has changed from `<tenant_id: text>:<date: date>` by fnv1a32 to `<tenant_id: text>:<date: text>` by fnv1a32";
    assert!(said.out.contains(changed), "{}", said.out);
}

#[test]
fn another_derivation_is_another_key() {
    let previous = inventory().replace("fnv1a32", "sha256");
    let said = against("against-derivation.json", &previous, &[]);
    assert!(said.out.contains("error: 2 findings"), "{}", said.out);
}

#[test]
fn a_lock_is_known_by_its_name_also_where_its_function_moved() {
    let previous = inventory()
        .replace("42424242", "42424243")
        .replace("clean_up", "sweep");
    let said = against("against-name.json", &previous, &[]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.out.contains("`idempotency-cleanup` has changed"),
        "{}",
        said.out
    );
}

#[test]
fn a_change_that_is_declared_is_none() {
    let previous = inventory().replace("42424242", "42424243");
    for name in [
        "idempotency-cleanup",
        "booking_service::idempotency::clean_up",
    ] {
        let allowed = ["--allow-key-change", name];
        let said = against("against-allowed.json", &previous, &allowed);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}

#[test]
fn other_names_of_placeholders_and_functions_that_are_gone_are_no_change() {
    let previous = inventory()
        .replace("<date", "<day")
        .replace("\"pay_balance\"", "\"gone\"");
    assert_eq!(
        against("against-renamed.json", &previous, &[]).code,
        Some(0)
    );
}

#[test]
fn methods_of_one_path_are_told_apart_by_their_keys() {
    let mut previous: Value = serde_json::from_str(&inventory()).unwrap();
    let sites = previous["sites"].as_array_mut().unwrap();
    let mut twin = sites[0].clone();
    twin["line"] = 100.into();
    twin["keys"][0]["shaped"] = "other:<id: text>".into();
    sites.push(twin);
    // A method that is gone took its key along; the one that is left has its own.
    let said = against("against-removed.json", &previous.to_string(), &[]);
    assert_eq!(said.code, Some(0), "{said:?}");
}
