//! Background work: schedulers that skip, jobs that are claimed, exports under a lease.

pub mod arrivals;
pub mod checkpoints;
pub mod dunning;
pub mod exports;
pub mod feeds;
pub mod jobs;
pub mod orphans;
pub mod outbox;
pub mod reminders;
pub mod runs;
pub mod scheduler;
