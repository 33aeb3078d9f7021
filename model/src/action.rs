//! The steps that can happen.

use crate::state::Process;

/// One step: of a process, of the server, or a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The clocks advance.
    Tick,
    /// The process sends a try.
    Ask(Process),
    /// The try arrives at the server.
    Try(Process),
    /// The process reads that it has the lease.
    Answer(Process),
    /// Fault: the answer is lost, and the process tries again.
    LoseAnswer(Process),
    /// Fault: the process tries again while the first try is under way.
    GiveUp(Process),
    /// The try that was given up arrives.
    LateTry(Process),
    /// The process renews.
    Renew(Process),
    /// Fault: the server renews, and the process does not learn it.
    RenewUnanswered(Process),
    /// The process ends its call.
    Release(Process),
    /// The process begins a transaction and fences.
    Fence(Process),
    /// The process begins a transaction, does the work, and completes.
    Complete(Process),
    /// The commit arrives.
    Commit(Process),
    /// Fault: the commit arrives, and its answer is lost.
    CommitUnanswered(Process),
    /// The process rolls back.
    RollBack(Process),
    /// The server ends the session of a process that stopped in its transaction.
    EndSession(Process),
    /// The process writes to the storage elsewhere.
    Store(Process),
    /// The process takes over the lease of another.
    TakeOver(Process),
    /// Expired rows are removed.
    Sweep,
    /// Fault: the process stops.
    Stop(Process),
    /// It continues.
    Resume(Process),
    /// Fault: the process dies, and another is started.
    Crash(Process),
    /// Fault: the standby receives no more.
    FallBehind,
    /// The standby is promoted.
    FailOver,
    /// Only with a bug: a write without the fence.
    Write(Process),
    /// Only with a bug: the work, in a transaction of its own.
    DoWork(Process),
    /// Only with a bug: marks the work as done.
    Mark(Process),
}

impl Action {
    /// The process that the step is about.
    pub(crate) const fn process(self) -> Option<Process> {
        match self {
            Self::Tick | Self::Sweep | Self::FallBehind | Self::FailOver => None,
            Self::Ask(of)
            | Self::Try(of)
            | Self::Answer(of)
            | Self::LoseAnswer(of)
            | Self::GiveUp(of)
            | Self::LateTry(of)
            | Self::Renew(of)
            | Self::RenewUnanswered(of)
            | Self::Release(of)
            | Self::Fence(of)
            | Self::Complete(of)
            | Self::Commit(of)
            | Self::CommitUnanswered(of)
            | Self::RollBack(of)
            | Self::EndSession(of)
            | Self::Store(of)
            | Self::TakeOver(of)
            | Self::Stop(of)
            | Self::Resume(of)
            | Self::Crash(of)
            | Self::Write(of)
            | Self::DoWork(of)
            | Self::Mark(of) => Some(of),
        }
    }

    /// Returns whether the step counts as a fault.
    #[must_use]
    pub const fn is_fault(self) -> bool {
        matches!(
            self,
            Self::LoseAnswer(_)
                | Self::GiveUp(_)
                | Self::RenewUnanswered(_)
                | Self::CommitUnanswered(_)
                | Self::Stop(_)
                | Self::Crash(_)
                | Self::FallBehind
        )
    }
}
