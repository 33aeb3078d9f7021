//! Collisions between crates are found, and printed like rustc's errors.

use serde_json::Value;

use crate::programs::{advisory, booking_service, shop};

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
