//! Which numbers do the permits of one lock have?
//!
//! They are fixed forever, as every derivation is: a program of another release, or in another language, must lock the same numbers.

use sha2::{Digest, Sha256};

use crate::derivation::leading;

/// How many permits a lock can have: each try can have to go over all of them.
pub const MOST_PERMITS: u32 = 1_000;

/// Comes before what is hashed. No text in UTF-8 has this byte, so that no key pattern renders what a permit is hashed from.
const MARK: u8 = 0xFF;

/// Gives the number of a lock's second permit, or of a later one. The first permit is the lock's own key.
///
/// The first 8 bytes, big-endian, of the SHA-256 of the byte `FF` and `<permit>:<key>`, where `key` is the lock's own key in digits: `42`,
/// `(7, 3)`. A permit does not depend on how many there are, so that the permits of one number of them are among those of a greater one.
#[must_use]
pub fn permit_key(key: &str, permit: u32) -> i64 {
    let digest = Sha256::new().chain_update([MARK]);
    leading(&digest.chain_update(format!("{permit}:{key}")).finalize())
}
