//! What one try of a request asks the server for: how much of the wait is left, and which permits in which order.

use super::{Keys, Request, Wait};
use crate::key::Key;

impl Request {
    /// What is left of the wait for the server.
    pub(crate) fn budget(&self) -> Wait {
        match self.wait {
            Wait::For(wait) if wait.is_zero() => Wait::Never,
            Wait::For(wait) => Wait::For(wait.saturating_sub(self.queued)),
            // `lock_timeout` bounds waits at the server.
            Wait::Session if self.poll.is_some() => Wait::Forever,
            wait => wait,
        }
    }

    /// The same request for the key of one permit.
    pub(crate) fn of_permit(&self, permit: Key) -> Self {
        Self {
            keys: Keys::One([permit]),
            ..self.clone()
        }
    }

    /// One try of a request that polls. Its permits start at this one, which should be random, so that calls do not all compete for the
    /// first.
    pub(crate) fn attempt(&self, from: u32) -> Self {
        let mut permits = self.permits.clone();
        if !permits.is_empty() {
            let from = usize::try_from(from).unwrap_or(0) % permits.len();
            permits.rotate_left(from);
        }
        Self {
            wait: Wait::Never,
            poll: None,
            permits,
            ..self.clone()
        }
    }
}
