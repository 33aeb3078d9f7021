//! What happens to leases, for whoever counts it.

use super::Lease;
use crate::Error;
use std::time::Duration;

/// What happened to a lease; see [`Leases::observed`](super::Leases::observed).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'e> {
    /// It was granted.
    Acquired(&'e Lease),
    /// Somebody else held it to the end of the wait.
    Busy {
        /// The key pattern, or the key's hash.
        lock: &'e str,
        /// How long the call waited.
        waited: Duration,
    },
    /// It was renewed.
    Renewed(&'e Lease),
    /// A renewal failed, and is tried again until the lease expires.
    RenewalFailed(&'e Lease, &'e Error),
    /// It is not held any more, and nobody here released it. Its body is dropped.
    Lost(&'e Lease),
    /// It was released, or left to be taken for its `keep`.
    Released(&'e Lease),
    /// It was not released, and ends when it expires.
    ReleaseFailed(&'e Lease, &'e Error),
}
