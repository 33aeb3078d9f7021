//! The last renewal of a lease, and renewals that are overdue.
//!
//! The table has only the time at which a lease expires. This is one ttl after the last renewal,
//! and the lock site has the ttl.

use std::collections::BTreeSet;
use std::time::Duration;

use advisory_runtime::lease::Request;
use advisory_runtime::monitor::Lease;

use crate::duration::parse;

pub(crate) struct Renewal {
    pub(crate) ago: Duration,
    /// True if the next one is late: the holder is dead, stopped, or cannot reach the server.
    pub(crate) is_overdue: bool,
}

/// The last renewal, if all lock sites that can have granted the lease have one ttl. The grant
/// counts as a renewal.
pub(crate) fn of(lease: &Lease) -> Option<Renewal> {
    let row = &lease.row;
    if row.is_done || row.never_expires() {
        return None;
    }
    // A declared lock has the ttl of its use, which the table does not name.
    let sites = lease.names.iter().flat_map(|name| &name.sites);
    let sites = sites.filter(|site| site.scope == "lease");
    let mut times = sites.map(|site| {
        let time = |written: &Option<String>, default| match written {
            Some(written) => parse(written).ok(),
            None => Some(default),
        };
        let ttl = time(&site.ttl, Request::DEFAULT_TTL)?;
        Some((ttl, time(&site.renew, ttl / 3)?))
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

/// Returns `true` if the renewal of a lease is overdue and the last one is that long ago, or if the
/// lease never expires and is that old.
pub(crate) fn is_older(lease: &Lease, bound: Duration) -> bool {
    match of(lease) {
        Some(renewal) => renewal.is_overdue && renewal.ago >= bound,
        None => lease.row.never_expires() && lease.row.age() >= bound,
    }
}

/// The reason why the last renewal of a held lease is not known; `None` if it is known.
pub(crate) fn unknown(lease: &Lease) -> Option<&'static str> {
    let row = &lease.row;
    if row.is_done || row.never_expires() || of(lease).is_some() {
        return None;
    }
    Some(if lease.names.iter().all(|name| name.sites.is_empty()) {
        "whether a lease is overdue follows from the ttl of its lock site: give the program as `--artifact`"
    } else {
        "whether a lease is overdue is not known if its ttl is an expression, if its lock sites have several, or if code without a ttl of \
         its own has granted it"
    })
}

/// The reasons why the last renewal of some of these leases is not known.
pub(crate) fn unknowns<'l>(leases: impl IntoIterator<Item = &'l Lease>) -> BTreeSet<&'static str> {
    leases.into_iter().filter_map(unknown).collect()
}

/// Returns `true` if a lease may be [older](is_older). Its last renewal is later than its grant.
pub(crate) fn can_be_older(lease: &Lease, bound: Duration) -> bool {
    unknown(lease).is_some() && lease.row.age() >= bound
}
