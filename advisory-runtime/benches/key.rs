//! The cost of a key beside the hash that it needs. `cargo bench -p advisory-runtime --bench key`
//!
//! Compares rendering and hashing `<tenant>:<day>`, 47 bytes, of a UUID and a date and of two texts, with hashing the same
//! 47 bytes. A round measures both, each first in every second round, so that other load of the machine affects both; the
//! ratio is computed for each round.

use advisory_runtime::{Key, LockKey};
use chrono::NaiveDate;
use sha2::{Digest, Sha256};
use std::hint::black_box;
use std::time::Instant;
use uuid::Uuid;

#[derive(LockKey)]
#[lock_key("<tenant>:<day>")]
struct TenantDay {
    tenant: Uuid,
    day: NaiveDate,
}

#[derive(LockKey)]
#[lock_key("<tenant>:<day>", allow_overlap("*", "nothing is locked"))]
struct TextDay {
    tenant: &'static str,
    day: &'static str,
}

const ROUNDS: usize = 1_001;
const KEYS: u32 = 1_000;

fn hashed(text: &str) -> i64 {
    let digest = Sha256::digest(text);
    digest
        .iter()
        .take(8)
        .fold(0, |number, &byte| number << 8 | i64::from(byte))
}

/// The nanoseconds of one call.
fn nanoseconds<T>(mut call: impl FnMut() -> T) -> f64 {
    let start = Instant::now();
    for _ in 0..KEYS {
        black_box(call());
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(KEYS)
}

/// The value at this percentile.
fn quantile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * percent / 100]
}

fn compare(name: &str, lock: &impl LockKey) {
    let text = lock.rendered();
    assert_eq!((text.len(), lock.key()), (47, Key::BigInt(hashed(&text))));

    let (mut keys, mut hashes, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let key = || nanoseconds(|| black_box(lock).key());
        let hash = || nanoseconds(|| hashed(black_box(&text)));
        let (key, hash) = if round % 2 == 0 {
            let key = key();
            (key, hash())
        } else {
            let hash = hash();
            (key(), hash)
        };
        keys.push(key);
        hashes.push(hash);
        ratios.push(key / hash);
    }
    let key = quantile(&mut keys, 50);
    let hash = quantile(&mut hashes, 50);
    let [low, median, high] = [5, 50, 95].map(|percent| quantile(&mut ratios, percent));
    eprintln!(
        "{name}: {key:.0} ns, hash alone {hash:.0} ns; ratio {median:.2}, 5 % to 95 % of {ROUNDS} rounds {low:.2} to {high:.2}"
    );
}

fn main() {
    let day = NaiveDate::from_ymd_opt(2025, 1, 15).unwrap_or_default();
    let tenant = Uuid::from_u128(0x67e5_5044_10b1_426f_9247_bb68_0e5f_e0c8);
    compare("UUID and date", &TenantDay { tenant, day });
    let (tenant, day) = ("67e55044-10b1-426f-9247-bb680e5fe0c8", "2025-01-15");
    compare("two texts", &TextDay { tenant, day });
}
