//! What happens to leases, for metrics and logs.

use super::{Error, Lease};
use crate::rows;

/// What has happened to a lease; see [`Leases::observe`](super::Leases::observe).
///
/// ```
/// use advisory_runtime::lease::Event;
///
/// fn log(event: Event<'_>) {
///     match event {
///         Event::Lost(lease) => eprintln!("token {} is lost", lease.token()),
///         Event::RenewalFailed(lease, error) => eprintln!("token {}: {error}", lease.token()),
///         Event::Ended { row, held, .. } => println!("token {}: held for {held:?}", row.token()),
///         _ => {}
///     }
/// }
/// ```
pub type Event<'e> = rows::Event<'e, Lease, Error>;
