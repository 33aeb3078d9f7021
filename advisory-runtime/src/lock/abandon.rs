//! Calls that are left before their end: by a drop, by a panic in the body, or because they cannot end.

use super::call::{Call, Phase};
use super::way::Way;
use crate::driver::{Driver, Unfinished};

impl Call {
    /// For a guard's `Drop`, also behind its end.
    pub(super) fn abandon_unless_ended<D: Driver>(&mut self, conn: &mut D) {
        if self.phase != Phase::Idle {
            self.abandon(conn);
        }
    }

    /// Leaves the call before its end: after a drop, a panic, or an error whose cleanup failed. What that does to the connection is
    /// [`Driver::abandon`]'s: diesel-async's is closed, and the statement that it may still run is cancelled; a blocking one is rolled
    /// back.
    pub(super) fn abandon<D: Driver>(&mut self, conn: &mut D) {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        let release = (self.way == Way::Session).then(|| self.release_message());
        conn.abandon(&Unfinished {
            outer: self.outer,
            release: release.as_deref(),
            is_cancellable: phase == Phase::Open,
        });
    }

    /// Closes the connection, and waits until the locks are released, for a second at most.
    pub(super) async fn close<D: Driver>(&mut self, conn: &mut D) {
        self.checks.stop_waiting();
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        conn.close(phase == Phase::Open);
        conn.wait_until_closed().await;
    }
}
