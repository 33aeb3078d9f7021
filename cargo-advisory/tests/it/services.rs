//! The locks of services that share a database are compared.

use crate::programs::{advisory, assert_has, booking_service, file, inventory};

fn with(name: &str, other: &str) -> crate::programs::Said {
    let other = file(name, other);
    advisory(&["check", "--artifact", &booking_service(), "--with", &other])
}

#[test]
fn a_crate_that_both_services_use_does_not_collide() {
    let elsewhere = inventory().replace("\"line\": 11", "\"line\": 99");
    with("with-same.json", &elsewhere).exits(0);
}

#[test]
fn a_collision_with_another_service_names_its_inventory() {
    let other = inventory().replace("\"booking-service\"", "\"invoices\"");
    let said = with("with-other.json", &other).exits(1);
    assert_has(&said.out, "with-other.json` is the other lock");
    // The number has a name on both sides, so it is shared on purpose; the two patterns have none.
    assert_has(&said.out, "error: 2 findings");
}

#[test]
fn a_shared_name_with_another_key_is_a_finding() {
    let other = inventory()
        .replace("\"booking-service\"", "\"invoices\"")
        .replace("42424242", "42424243");
    let said = with("with-name.json", &other);
    assert_has(
        &said.out,
        "advisory lock `idempotency-cleanup` has two keys: `42424242` and `42424243`",
    );
}
