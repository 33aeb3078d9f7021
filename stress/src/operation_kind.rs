//! The kinds of operation in the load. Each kind holds its lock differently.

use crate::named::named;

named! {
    /// One kind of operation.
    #[derive(Default)]
    OperationKind {
        /// Waits in the server's queue.
        #[default]
        Wait = "wait",
        /// `wait = "never"`.
        Never = "never",
        /// `wait = "20ms"` and `max_hold = "1s"`.
        Bounded = "bounded",
        /// `poll`, on the caller's connection.
        Poll = "poll",
        /// `poll`, with a connection of the pool for each try.
        PollPool = "poll-pool",
        RepeatableRead = "repeatable-read",
        Serializable = "serializable",
        /// `scope = "session"`.
        Session = "session",
        /// A session-level guard that owns its connection, on another task for a while.
        Owned = "owned",
        /// Waits in the queue of its process.
        Queue = "queue",
        /// One of three permits, by the attribute and by an owned guard.
        Permits = "permits",
        /// A fenced write under a lease.
        Lease = "lease",
        /// Work that is done once: `Lease::complete`.
        Complete = "complete",
        /// A fenced write under the term of a leader.
        Lead = "lead",
        /// Removes the expired leases.
        Sweep = "sweep",
        /// Runs the pending migrations.
        Migrate = "migrate",
        /// A job that its worker completes.
        Job = "job",
        /// A job that is completed in the transaction of its writes.
        JobOnce = "job-once",
        /// An attempt at a job that must fail.
        JobFails = "job-fails",
    }
}

named! {
    /// What an operation locks; keys of different subjects never collide.
    Subject {
        /// Booked once.
        Slot = "slot",
        /// Has [`PERMITS`] permits.
        Room = "room",
        /// Held by lease.
        Lease = "lease",
        /// Done once.
        Work = "work",
        /// A version of the schema.
        Version = "version",
        /// Has [`LIMIT`] running jobs.
        Tenant = "tenant",
        Nothing = "nothing",
    }
}

/// How many operations may be in a room at once.
pub(crate) const PERMITS: usize = 3;
/// How many jobs of a tenant may run at once.
pub(crate) const LIMIT: usize = 2;

impl Subject {
    /// The maximum of holders at once.
    pub(crate) const fn capacity(self) -> usize {
        match self {
            Self::Room => PERMITS,
            Self::Tenant => LIMIT,
            _ => 1,
        }
    }
}

impl OperationKind {
    /// Whether it works behind a pooler in transaction mode that does not track prepared
    /// statements.
    pub(crate) const fn is_for_poolers(self) -> bool {
        matches!(self, Self::Wait | Self::Never | Self::Bounded | Self::Poll)
    }

    /// Whether its transaction is Diesel's, which reports neither an ignored error nor whether its
    /// commit may have happened.
    pub(crate) const fn is_of_diesel(self) -> bool {
        matches!(self, Self::Session | Self::Owned | Self::Permits)
    }

    pub(crate) const fn subject(self) -> Subject {
        match self {
            Self::Permits => Subject::Room,
            Self::Lease | Self::Lead => Subject::Lease,
            Self::Complete => Subject::Work,
            Self::Migrate => Subject::Version,
            Self::Job | Self::JobOnce | Self::JobFails => Subject::Tenant,
            Self::Sweep => Subject::Nothing,
            _ => Subject::Slot,
        }
    }

    /// Its index in [`ALL`](Self::ALL).
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}
