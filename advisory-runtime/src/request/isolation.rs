//! The isolation level that a request asks for.

/// The isolation level of the transaction that a lock is taken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Every statement of the body sees what earlier holders have committed.
    #[default]
    ReadCommitted,
    /// One snapshot for the whole body, taken after the lock.
    RepeatableRead,
    /// As [`Isolation::RepeatableRead`], and the server aborts transactions that could not have run one after another.
    Serializable,
}
