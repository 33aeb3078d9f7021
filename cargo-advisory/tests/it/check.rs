//! Collisions between crates are found, and printed like rustc's errors.

use serde_json::Value;

use crate::programs::{advisory, assert_has_all, booking_service, program_of, shop, site};

#[test]
fn locks_in_order_cause_no_finding() {
    let said = advisory(&["check", "--artifact", &booking_service()]);
    let counts = "3 lock sites in 1 crate: booking-service 1.4.0 (3)";
    assert_eq!(said.out, format!("ok: nothing found; {counts}\n"));
    assert_eq!(said.code, Some(0));
}

#[test]
fn a_collision_between_crates_shows_both_places_and_a_key() {
    let said = advisory(&["check", "--artifact", &shop()]);
    assert_eq!(said.out, include_str!("shop.txt"));
    assert_eq!(said.code, Some(1));
}

/// There is one finding for all of them.
#[test]
fn a_third_site_of_one_number_is_counted() {
    let mut sites =
        ["bank", "shop", "till"].map(|krate| site(krate, "close", 7, &["7"], &["number 7"]));
    "macro".clone_into(&mut sites[0].kind);
    let program = program_of("check-three.rmeta", &sites);
    let said = advisory(&["check", "--artifact", &program]).exits(1);
    let parts = [
        "--> bank: src/lib.rs:7 (`bank::lock_key!`) is the other lock\n",
        "= 1 more site with one of these keys",
        "error: 1 finding;",
    ];
    assert_has_all(&said.out, &parts);
}

#[test]
fn machines_get_both_sites() {
    let said = advisory(&["check", "--format", "json", "--artifact", &shop()]).exits(1);
    let value: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(value["version"], 1);
    let findings = value["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0]["kind"], "collision");
    assert_eq!(findings[0]["sites"][0]["crate"], "ledger");
    assert_eq!(findings[0]["sites"][1]["crate"], "bookings");
}

#[test]
fn the_same_site_in_two_artifacts_is_one_site() {
    let service = booking_service();
    let library = service.replace("booking-service", "libbooking_service.rlib");
    advisory(&["check", "--artifact", &service, "--artifact", &library]).exits(0);
}
