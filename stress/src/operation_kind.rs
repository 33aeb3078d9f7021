//! The kinds of operation in the load. Each kind holds its lock differently.

use std::str::FromStr;

/// One kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum OperationKind {
    /// Waits in the server's queue.
    #[default]
    Wait,
    /// `wait = "never"`.
    Never,
    /// `wait = "20ms"` and `max_hold = "1s"`.
    Bounded,
    /// `poll`, on the caller's connection.
    Poll,
    /// `poll`, with a connection of the pool for each try.
    PollPool,
    RepeatableRead,
    Serializable,
    /// `scope = "session"`.
    Session,
    /// A session-level guard that owns its connection, on another task for a while.
    Owned,
    /// Waits in the queue of its process.
    Queue,
    /// One of three permits, by the attribute and by an owned guard.
    Permits,
    /// A fenced write under a lease.
    Lease,
    /// Work that is done once: `Lease::complete`.
    Complete,
    /// A fenced write under the term of a leader.
    Lead,
    /// Removes the expired leases.
    Sweep,
    /// Runs the pending migrations.
    Migrate,
    /// The work on a job that its worker completes.
    Job,
    /// The work on a job that completes it in the transaction of its writes.
    JobOnce,
    /// An attempt at a job that must fail.
    JobFails,
}

/// What an operation locks; keys of different subjects never collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// Booked once.
    Slot,
    /// Has [`PERMITS`] permits.
    Room,
    /// Held by lease.
    Lease,
    /// Done once.
    Work,
    /// A version of the schema.
    Version,
    /// Has [`LIMIT`] running jobs.
    Tenant,
    Nothing,
}

/// How many operations may be in a room at once.
pub(crate) const PERMITS: usize = 3;
/// How many jobs of a tenant may run at once.
pub(crate) const LIMIT: usize = 2;

impl Subject {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::Room => "room",
            Self::Lease => "lease",
            Self::Work => "work",
            Self::Version => "version",
            Self::Tenant => "tenant",
            Self::Nothing => "nothing",
        }
    }

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
    pub(crate) const ALL: [Self; 19] = [
        Self::Wait,
        Self::Never,
        Self::Bounded,
        Self::Poll,
        Self::PollPool,
        Self::RepeatableRead,
        Self::Serializable,
        Self::Session,
        Self::Owned,
        Self::Queue,
        Self::Permits,
        Self::Lease,
        Self::Complete,
        Self::Lead,
        Self::Sweep,
        Self::Migrate,
        Self::Job,
        Self::JobOnce,
        Self::JobFails,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Never => "never",
            Self::Bounded => "bounded",
            Self::Poll => "poll",
            Self::PollPool => "poll-pool",
            Self::RepeatableRead => "repeatable-read",
            Self::Serializable => "serializable",
            Self::Session => "session",
            Self::Owned => "owned",
            Self::Queue => "queue",
            Self::Permits => "permits",
            Self::Lease => "lease",
            Self::Complete => "complete",
            Self::Lead => "lead",
            Self::Sweep => "sweep",
            Self::Migrate => "migrate",
            Self::Job => "job",
            Self::JobOnce => "job-once",
            Self::JobFails => "job-fails",
        }
    }

    /// Whether it works behind a pooler in transaction mode that does not track prepared
    /// statements.
    pub(crate) const fn is_for_poolers(self) -> bool {
        matches!(self, Self::Wait | Self::Never | Self::Bounded | Self::Poll)
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

impl FromStr for OperationKind {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let mut kinds = Self::ALL.into_iter();
        kinds.find(|kind| kind.name() == name).ok_or(())
    }
}
