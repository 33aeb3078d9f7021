//! The locks of the whole program.

use advisory_runtime::LockKey;
use advisory_runtime::inventory::{assert_no_collisions, sites};
use lets_domain::locks::{RoomNight, VoucherLock};
use lets_domain::{Channel, PropertyId, RoomId};
use lets_server as _;

#[test]
fn no_two_of_them_are_one_by_mistake() {
    assert_no_collisions();
    let count = sites().unwrap().len();
    assert!(count > 80, "{count}");
}

#[test]
fn keys_of_a_fleet_that_is_half_upgraded_stay_the_same() {
    let night = RoomNight {
        room: RoomId(7),
        night: chrono::NaiveDate::from_ymd_opt(2027, 6, 1).unwrap(),
    };
    assert_eq!(night.rendered(), "night:7:2027-06-01");
    let voucher = VoucherLock {
        code: " A:B ".to_owned(),
    };
    assert_eq!(voucher.rendered(), "voucher:a%3Ab");
    let feed = lets_domain::locks::FeedLock {
        channel: Channel::Nestling,
        property: PropertyId(uuid::Uuid::nil()),
    };
    assert_eq!(
        feed.rendered(),
        "feed:nst:00000000-0000-0000-0000-000000000000"
    );
}
