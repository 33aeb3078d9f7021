//! Nothing, without the features `tracing` and `metrics`: a lock carries no state for them.

use super::Outcome;
use crate::error::Error;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Telemetry;

#[expect(clippy::unused_self, reason = "nothing observes")]
impl Telemetry {
    pub(crate) const fn new(_: &'static str, _: &'static str, _: &'static str) -> Self {
        Self
    }

    pub(crate) const fn record_acquired(&mut self, _: Duration) {}

    pub(crate) const fn record_left(&mut self, _: Duration) {}

    pub(crate) const fn record_refusal(&mut self, _: &Error) {}

    pub(crate) const fn record_end(&mut self, _: Result<Outcome, &Error>) {}

    pub(crate) const fn forget(self) {}
}
