//! Allocations per key.

use advisory_runtime::LockKey;
use allocation_counter::measure;
use chrono::{DateTime, NaiveDate, Utc};
use std::hint::black_box;
use uuid::Uuid;

#[derive(LockKey)]
#[lock_key("<tenant>:<day>", allow_overlap("*", "nothing is locked"))]
struct TenantDay {
    tenant: Uuid,
    day: NaiveDate,
}

#[derive(LockKey)]
#[lock_key(
    "mail:<address|trim|lower>:<raw>:<number>:<at: timestamp>",
    derivation = "md5"
)]
struct Mail {
    address: String,
    raw: String,
    number: i128,
    at: DateTime<Utc>,
}

fn allocations(lock: &impl LockKey) -> u64 {
    measure(|| {
        black_box(black_box(lock).key());
    })
    .count_total
}

#[test]
fn rendering_and_hashing_allocates_nothing() {
    let (tenant, day) = (Uuid::from_u128(7), NaiveDate::default());
    let lock = TenantDay { tenant, day };
    assert_eq!(lock.rendered().len(), 47);
    assert_eq!(allocations(&lock), 0);
    let mail = Mail {
        address: " A%:b@Example.com ".to_owned(),
        raw: "x:%".to_owned(),
        number: i128::MIN,
        at: DateTime::from_timestamp_nanos(1),
    };
    assert_eq!(allocations(&mail), 0);
    // The count sees what allocates.
    assert!(measure(|| drop(black_box(lock.rendered()))).count_total > 0);
}
