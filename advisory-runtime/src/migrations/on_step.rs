//! Reports the steps of a run: to the user's callback, and as events.

use super::step::Step;
#[cfg(feature = "tracing")]
use std::time::{Duration, Instant};

type Callback = Box<dyn FnMut(&Step) + Send>;

#[derive(Default)]
pub(super) struct OnStep {
    pub(super) callback: Option<Callback>,
    /// The holders in the last event, and its time.
    #[cfg(feature = "tracing")]
    waiting: Option<(Vec<i32>, Instant)>,
}

/// The interval at which an event repeats its holders.
#[cfg(feature = "tracing")]
const EVENT: Duration = Duration::from_secs(30);

impl OnStep {
    pub(super) fn report(&mut self, step: &Step) {
        #[cfg(feature = "tracing")]
        self.record(step);
        if let Some(callback) = &mut self.callback {
            callback(step);
        }
    }

    #[cfg(feature = "tracing")]
    fn record(&mut self, step: &Step) {
        let milliseconds = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match step {
            Step::Waiting { holders } => {
                let pids: Vec<i32> = holders.iter().map(|holder| holder.pid).collect();
                let is_repeated =
                    |(known, at): &(Vec<i32>, Instant)| *known == pids && at.elapsed() < EVENT;
                if !self.waiting.as_ref().is_some_and(is_repeated) {
                    tracing::info!(pids = ?pids, "{step}");
                    self.waiting = Some((pids, Instant::now()));
                }
            }
            Step::Locked {
                pending,
                reverts,
                waited,
            } => {
                tracing::info!(pending, reverts, waited_ms = milliseconds(waited), "{step}");
            }
            Step::Running { migration, .. }
            | Step::Skipped { migration }
            | Step::Reverting { migration, .. } => tracing::info!(migration, "{step}"),
            Step::Done { migration, took } => {
                tracing::info!(migration, took_ms = milliseconds(took), "{step}");
            }
        }
    }
}
