//! When a lease was last renewed, and whether its next renewal is overdue.
//!
//! The table has only the time at which a lease expires. That is a ttl after the last renewal, and the ttl is known from its lock site.

use std::time::Duration;

use advisory_runtime::monitor::Lease;

use crate::duration::parse;

/// The ttl of a site that sets none.
const DEFAULT_TTL: Duration = Duration::from_secs(60);

/// The last renewal of a lease.
pub(crate) struct Renewal {
    /// How long ago it was.
    pub(crate) ago: Duration,
    /// Whether the next one should have been long ago: its holder is dead, stopped, or cannot reach the server.
    pub(crate) is_overdue: bool,
}

/// The last renewal, if all sites that the lease can be of have one ttl. The grant counts as one.
pub(crate) fn of(lease: &Lease) -> Option<Renewal> {
    let row = &lease.row;
    if row.is_done || row.never_expires() {
        return None;
    }
    let sites = lease.names.iter().flat_map(|name| &name.sites);
    let mut times = sites.map(|site| {
        let ttl = match &site.ttl {
            Some(written) => parse(written).ok()?,
            None => DEFAULT_TTL,
        };
        let renew = match &site.renew {
            Some(written) => parse(written).ok()?,
            None => ttl / 3,
        };
        Some((ttl, renew))
    });
    let (ttl, renew) = times.next()??;
    if !times.all(|other| other == Some((ttl, renew))) {
        return None;
    }
    // A row with more time than that was granted by other code.
    let ago = ttl.checked_sub(row.remaining)?;
    let is_overdue = ago > renew + renew / 2;
    Some(Renewal { ago, is_overdue })
}

/// Whether a lease has not been renewed for that long, although it should have been; or never expires, and is that old.
pub(crate) fn is_older(lease: &Lease, bound: Duration) -> bool {
    match of(lease) {
        Some(renewal) => renewal.is_overdue && renewal.ago >= bound,
        None => lease.row.never_expires() && lease.row.age() >= bound,
    }
}

/// Whether the last renewal of a lease that is held is not known.
pub(crate) fn is_unknown(lease: &Lease) -> bool {
    let row = &lease.row;
    !row.is_done && !row.never_expires() && of(lease).is_none()
}

/// Why it is not known.
pub(crate) const UNKNOWN: &str = "whether a lease is overdue follows from the ttl of its lock site: give the program as `--artifact`";
