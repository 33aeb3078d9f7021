//! Calls that are left before their end: by a drop, by a panic in the body, or because they cannot
//! end.

use super::call::{Call, Phase, Way};
use super::dropped::Dropped;
use crate::driver::{Driver, Unfinished};

impl Call {
    /// For a guard's `Drop`, also after its end. A call that the limit of a call around it has
    /// dropped is left to that one, which rolls back everything on the connection. Outside of its
    /// body, a call that also takes session-level locks is not: it may hold some of them.
    pub(super) fn abandon_unless_ended<D: Driver>(&mut self, conn: &mut D) {
        let has_session_locks = matches!(self.way, Way::Session | Way::Strict);
        if (self.phase == Phase::Held || self.phase != Phase::Idle && !has_session_locks)
            && let Some(around) = Dropped::around(std::ptr::from_mut(conn).addr())
        {
            if self.way == Way::Session {
                around.push(self.release_message());
            }
            self.phase = Phase::Idle;
        }
        if self.phase != Phase::Idle {
            self.abandon(conn);
        }
    }

    /// Leaves the call before its end: after a drop, a panic, or an error whose cleanup failed.
    /// [`Driver::abandon`] does the rest to the connection: diesel-async's is closed, and the
    /// statement that it may still run is cancelled; a blocking one is rolled back.
    pub(super) fn abandon<D: Driver>(&mut self, conn: &mut D) {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        let release = (self.way == Way::Session).then(|| self.release_message());
        conn.abandon(&Unfinished {
            outer: self.outer,
            release: release.as_deref(),
            is_cancellable: phase.is_cancellable(),
        });
    }

    /// Closes the connection, and waits until the locks are released, for a second at most.
    pub(super) async fn close<D: Driver>(&mut self, conn: &mut D) {
        self.checks.stop_waiting();
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        conn.close(phase.is_cancellable());
        conn.wait_until_closed().await;
    }
}
