//! Background work: schedulers that skip, jobs that are claimed, exports under a lease.

#![expect(
    deprecated,
    unused_variables,
    reason = "the tests read the lock sites, and no body runs"
)]

pub mod arrivals;
pub mod dunning;
pub mod exports;
pub mod feeds;
pub mod letters;
pub mod orphans;
pub mod reminders;
pub mod scheduler;
