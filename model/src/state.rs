//! The server, the processes, a storage elsewhere, and what has happened.

pub type Process = usize;

/// Everything at one moment. Times are what is left, in ticks of the server's clock, so that they
/// have an end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Committed on the primary.
    pub data: Data,
    /// The standby's data, once it receives no more.
    pub standby: Option<Data>,
    /// Grows with each failover.
    pub timeline: u8,
    pub processes: Vec<Caller>,
    /// The last write in a storage elsewhere, which compares tokens alone.
    pub storage: Written,
    /// For the properties.
    pub history: History,
    /// How many calls and take-overs have begun: the number of the last one.
    pub calls: u8,
    pub faults: u8,
}

/// The data that a failover can lose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Data {
    pub row: Option<Row>,
    /// The number that the sequence has issued last.
    pub sequence: u16,
    /// How often the work was done.
    pub effects: u8,
    /// The term of the last write.
    pub writer: u8,
}

/// The row of the key in the lease table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// The number of the call.
    pub grant: u8,
    /// Storage compares it.
    pub token: u16,
    /// Counts the grants, also across a failover. The programs do not know it.
    pub term: u8,
    /// Until it expires.
    pub left: u8,
    /// The work is marked as done.
    pub is_kept: bool,
}

impl Row {
    /// Returns whether the row keeps the key from other grants.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.is_kept || self.left > 0
    }
}

/// A process, with one call at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Caller {
    pub call: Call,
    pub transaction: Option<Transaction>,
    /// The number of a try that was given up and may still arrive.
    pub late_try: Option<u8>,
    /// It executes nothing; what it has sent may arrive.
    pub is_stopped: bool,
    /// Its lease was taken over, or lost with a failover.
    pub is_deposed: bool,
    /// It has done the work, and not marked it: only with the bug.
    pub has_done_work: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    #[default]
    Idle,
    /// A try was sent.
    Asking {
        grant: u8,
        /// The time since the try was sent.
        age: u8,
        /// The lease, once the server has granted it. Its time is counted at the server.
        granted: Option<Lease>,
    },
    /// The body runs.
    Holding(Lease),
}

/// A lease, as its holder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease {
    pub grant: u8,
    /// Storage compares it.
    pub token: u16,
    /// Counts the grants; the holder does not know it.
    pub term: u8,
    /// The time for which the holder relies on it.
    pub left: u8,
}

/// An open transaction. It has the row lock of its statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transaction {
    /// After `fence`.
    Fenced,
    /// After `complete`, with the work in it.
    Completed,
}

/// Who has written last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Written {
    /// The largest token.
    pub token: u16,
    /// Its grant.
    pub term: u8,
}

/// Facts that no failover undoes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// The largest token of all grants.
    pub token: u16,
    pub terms: u8,
    /// A token was not above those before.
    pub has_old_token: bool,
    /// A write landed after one of a later holder.
    pub has_late_write: bool,
}
