//! Nothing, without the features `tracing` and `metrics`: a lock carries no state for them.

use super::Outcome;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Telemetry;

#[expect(clippy::unused_self, reason = "nothing observes")]
impl Telemetry {
    pub(crate) const fn new(_: &'static str, _: &'static str, _: &'static str, _: bool) -> Self {
        Self
    }

    pub(crate) const fn record_acquired(&mut self, _: Duration) {}

    pub(crate) const fn record_left(&mut self, _: Duration) {}

    pub(crate) const fn record_refusal<E>(&mut self, _: &E) {}

    pub(crate) const fn record_end<E>(&mut self, _: Result<Outcome, &E>) {}

    pub(crate) const fn forget(self) {}
}
