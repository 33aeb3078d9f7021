//! Cleanup of calls that do not reach their end: after a drop, a panic in the body, or a failure.

use super::call::{Call, Phase, Way};
use super::dropped::Dropped;
use crate::driver::Driver;

impl Call {
    /// For a guard's `Drop`, even after its end. If the `max_hold` of a call around this one has
    /// dropped it, the outer call rolls back everything on the connection, and this one leaves the
    /// connection open; unless it may hold session-level locks, and its body has not begun.
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

    /// Leaves the call before its end. [`Driver::abandon`] closes a connection of diesel-async and
    /// cancels its running statement, and rolls a blocking connection back.
    pub(super) fn abandon<D: Driver>(&mut self, conn: &mut D) {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        let release = (self.way == Way::Session).then(|| self.release_message());
        conn.abandon(self.outer, release.as_deref(), phase.is_cancellable());
    }

    /// Closes the connection, and waits until the locks are released, for a second at most.
    pub(super) async fn close<D: Driver>(&mut self, conn: &mut D) {
        self.checks.stop_waiting();
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        conn.close(phase.is_cancellable());
        conn.wait_until_closed().await;
    }
}
