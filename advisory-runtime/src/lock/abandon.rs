//! Cleanup of calls that do not reach their end: after a drop, a panic in the body, or a failure.

use super::call::{Call, CallPhase, Way};
use super::dropped::Dropped;
use crate::driver::Driver;

impl Call {
    /// For a guard's `Drop`, even after its end. If the `max_hold` of an outer call has dropped
    /// this inner call, the outer call rolls back everything on the connection, and the inner call
    /// leaves the connection open. But it closes the connection if it may hold session-level locks
    /// that were not confirmed yet.
    pub(super) fn abandon_unless_ended<D: Driver>(&mut self, conn: &mut D) {
        // It is known which locks the session holds, and the outer call sends their release.
        let is_held = self.phase == CallPhase::Held;
        // The outer call's rollback releases them, whether they were taken or not.
        let has_only_xact_locks =
            self.phase != CallPhase::Idle && !matches!(self.way, Way::Session | Way::Strict);
        if (is_held || has_only_xact_locks)
            && let Some(around) = Dropped::around(std::ptr::from_mut(conn).addr())
        {
            if self.way == Way::Session {
                around.push(self.release_locks_sql());
            }
            self.phase = CallPhase::Idle;
        }
        if self.phase != CallPhase::Idle {
            self.abandon(conn);
        }
    }

    /// Leaves the call before its end. [`Driver::abandon`] closes a connection of diesel-async and
    /// cancels its running statement, and rolls a blocking connection back.
    pub(super) fn abandon<D: Driver>(&mut self, conn: &mut D) {
        let phase = std::mem::replace(&mut self.phase, CallPhase::Idle);
        let release = (self.way == Way::Session).then(|| self.release_locks_sql());
        conn.abandon(self.outer, release.as_deref(), phase.is_cancellable());
    }

    /// Closes the connection, and waits until the locks are released, for a second at most.
    pub(super) async fn close<D: Driver>(&mut self, conn: &mut D) {
        self.checks.stop_waiting();
        let phase = std::mem::replace(&mut self.phase, CallPhase::Idle);
        conn.close(phase.is_cancellable());
        conn.wait_until_closed().await;
    }
}
