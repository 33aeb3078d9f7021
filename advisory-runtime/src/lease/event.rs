//! What happens to leases, for metrics and logs.

use super::{Error, Lease};
use std::time::Duration;

/// What happened to a lease; see [`Leases::observed`](super::Leases::observed).
///
/// ```
/// use advisory_runtime::lease::Event;
///
/// fn log(event: Event<'_>) {
///     match event {
///         Event::Lost(lease) => eprintln!("token {} is lost", lease.token()),
///         Event::RenewalFailed(lease, error) => eprintln!("token {}: {error}", lease.token()),
///         _ => {}
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'e> {
    /// It was granted.
    Acquired(&'e Lease),
    /// The key was held until the end of the wait.
    Busy {
        /// The key pattern, or the key's hash.
        lock: &'e str,
        /// How long the call waited.
        waited: Duration,
    },
    /// The work under the key was already done.
    Done {
        /// The key pattern, or the key's hash.
        lock: &'e str,
        /// How long the key stays done.
        remaining: Duration,
    },
    /// It was renewed.
    Renewed(&'e Lease),
    /// A renewal failed. It is tried again until the lease expires.
    RenewalFailed(&'e Lease, &'e Error),
    /// It was lost without a release, and its body is dropped.
    Lost(&'e Lease),
    /// It was released, or its key is done.
    Released(&'e Lease),
    /// The release failed, and the lease ends when it expires.
    ReleaseFailed(&'e Lease, &'e Error),
}
