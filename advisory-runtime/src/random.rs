//! Random numbers that nobody needs to predict, and jitter.

use std::hash::{BuildHasher, RandomState};
use std::process;
use std::time::{Duration, SystemTime};

/// A number from a hash that the standard library seeds from the operating system. The time and the
/// process tell copies of a process apart.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one((SystemTime::now(), process::id()))
}

/// A random time from half of this one to all of it, so that calls that began together do not try
/// together.
pub(crate) fn jitter(time: Duration) -> Duration {
    let fraction = f64::from(u32::try_from(random() >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    time.mul_f64(0.5 + 0.5 * fraction)
}
