//! The span, events, counters and histograms of one lock. By key pattern and never by key, which can be personal data and has
//! unlimited values.
//!
//! Without the features `tracing` and `metrics` this is empty.

use crate::error::Error;
use std::time::Duration;

/// What a lock without a pattern is called: its number would be a label of its own.
#[cfg(any(feature = "tracing", feature = "metrics"))]
const NUMBER: &str = "number";

/// Observes one lock, from the request to its end.
#[derive(Debug)]
pub(crate) struct Telemetry {
    #[cfg(any(feature = "tracing", feature = "metrics"))]
    labels: Labels,
    #[cfg(feature = "tracing")]
    asked: std::time::Instant,
    #[cfg(any(feature = "tracing", feature = "metrics"))]
    acquired: Option<std::time::Instant>,
    #[cfg(any(feature = "tracing", feature = "metrics"))]
    is_over: bool,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

#[cfg(any(feature = "tracing", feature = "metrics"))]
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "metrics"),
    expect(
        dead_code,
        reason = "an event has the pattern, and its span the others"
    )
)]
struct Labels {
    pattern: &'static str,
    scope: &'static str,
    mode: &'static str,
}

#[cfg(feature = "metrics")]
impl Labels {
    const fn pairs(self) -> [(&'static str, &'static str); 3] {
        [
            ("pattern", self.pattern),
            ("scope", self.scope),
            ("mode", self.mode),
        ]
    }
}

/// Without the features a lock carries no state for them.
#[cfg(not(any(feature = "tracing", feature = "metrics")))]
const _: () = assert!(size_of::<Telemetry>() == 0 && !std::mem::needs_drop::<Telemetry>());

/// How a lock ended that was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The body returned `Ok`, and that holds.
    Done,
    /// The body returned an error.
    Failed,
}

#[cfg_attr(
    not(any(feature = "tracing", feature = "metrics")),
    expect(
        clippy::unused_self,
        clippy::needless_pass_by_ref_mut,
        unused_variables,
        reason = "nothing observes"
    )
)]
impl Telemetry {
    pub(crate) fn new(pattern: &'static str, scope: &'static str, mode: &'static str) -> Self {
        #[cfg(any(feature = "tracing", feature = "metrics"))]
        {
            let pattern = if pattern.is_empty() { NUMBER } else { pattern };
            Self {
                #[cfg(feature = "tracing")]
                span: tracing::debug_span!(
                    "advisory_lock",
                    pattern,
                    scope,
                    mode,
                    outcome = tracing::field::Empty,
                    waited_ms = tracing::field::Empty,
                    held_ms = tracing::field::Empty,
                ),
                labels: Labels {
                    pattern,
                    scope,
                    mode,
                },
                #[cfg(feature = "tracing")]
                asked: std::time::Instant::now(),
                acquired: None,
                is_over: false,
            }
        }
        #[cfg(not(any(feature = "tracing", feature = "metrics")))]
        Self {}
    }

    /// The lock is held.
    pub(crate) fn record_acquired(&mut self, waited: Duration) {
        #[cfg(any(feature = "tracing", feature = "metrics"))]
        {
            self.acquired = Some(std::time::Instant::now());
        }
        #[cfg(feature = "tracing")]
        {
            self.span.record("waited_ms", milliseconds(waited));
            tracing::debug!(parent: &self.span, waited_ms = milliseconds(waited), "acquired");
        }
        #[cfg(feature = "metrics")]
        {
            let labels = self.labels.pairs();
            metrics::counter!("advisory_acquired_total", &labels).increment(1);
            metrics::histogram!("advisory_wait_seconds", &labels).record(waited.as_secs_f64());
        }
    }

    /// The lock is held, and left to the transaction that is open: nobody tells of its end.
    pub(crate) fn record_left(&mut self, waited: Duration) {
        self.record_acquired(waited);
        #[cfg(any(feature = "tracing", feature = "metrics"))]
        {
            self.is_over = true;
        }
        #[cfg(feature = "tracing")]
        self.span.record("outcome", "left");
    }

    /// Acquisition failed.
    pub(crate) fn record_refusal(&mut self, error: &Error) {
        #[cfg(any(feature = "tracing", feature = "metrics"))]
        {
            let reason = word(error);
            self.record_not_acquired(reason);
            #[cfg(feature = "tracing")]
            {
                let waited = match error {
                    Error::TimedOut { waited, .. } => *waited,
                    _ => self.asked.elapsed(),
                };
                self.span.record("waited_ms", milliseconds(waited));
                let pattern = self.labels.pattern;
                if error.is_busy() {
                    tracing::debug!(parent: &self.span, pattern, reason, "contention: {error}");
                } else {
                    tracing::warn!(parent: &self.span, pattern, reason, "{error}");
                }
            }
        }
    }

    /// Records nothing more.
    #[cfg_attr(
        not(any(feature = "tracing", feature = "metrics")),
        expect(unused_mut, reason = "then there is nothing to record")
    )]
    pub(crate) fn forget(mut self) {
        #[cfg(any(feature = "tracing", feature = "metrics"))]
        {
            self.is_over = true;
        }
    }

    /// The lock was never held.
    #[cfg(any(feature = "tracing", feature = "metrics"))]
    fn record_not_acquired(&mut self, reason: &'static str) {
        self.is_over = true;
        #[cfg(feature = "tracing")]
        self.span.record("outcome", reason);
        #[cfg(feature = "metrics")]
        {
            let [pattern, scope, mode] = self.labels.pairs();
            let labels = [pattern, scope, mode, ("reason", reason)];
            metrics::counter!("advisory_refused_total", &labels).increment(1);
        }
    }

    /// The body held the lock for so long without a statement; found in debug builds.
    #[cfg(all(debug_assertions, feature = "tracing"))]
    pub(crate) fn record_idle(&self, place: &str, idle: Duration) {
        let pattern = self.labels.pattern;
        tracing::warn!(
            parent: &self.span,
            pattern,
            "idle under a lock: {place} held it for {idle:.1?} without a statement, and a connection and a transaction with it; do what \
                 is slow before the lock, or use `scope = \"lease\"`, `queue`, or a pool of its own for locks (said once for each place)"
        );
    }

    /// The body has returned, and the lock is released.
    pub(crate) fn record_end(&mut self, outcome: Result<Outcome, &Error>) {
        #[cfg(any(feature = "tracing", feature = "metrics"))]
        {
            let word = match outcome {
                Ok(Outcome::Done) => "done",
                Ok(Outcome::Failed) => "failed",
                Err(error) => word(error),
            };
            #[cfg(feature = "tracing")]
            let pattern = self.labels.pattern;
            #[cfg(feature = "tracing")]
            match outcome {
                Err(error @ (Error::RolledBack { .. } | Error::TransactionEnded { .. })) => {
                    tracing::warn!(parent: &self.span, pattern, "swallowed error found: {error}");
                }
                Err(error @ Error::LockLost { .. }) => {
                    tracing::error!(parent: &self.span, pattern, "lost: {error}");
                }
                Err(error) => tracing::warn!(parent: &self.span, pattern, "{error}"),
                Ok(_) => {}
            }
            self.close(word);
        }
    }

    #[cfg(any(feature = "tracing", feature = "metrics"))]
    fn close(&mut self, outcome: &'static str) {
        self.is_over = true;
        let held = self.acquired.map(|acquired| acquired.elapsed());
        let held = held.unwrap_or_default();
        #[cfg(feature = "tracing")]
        {
            self.span.record("outcome", outcome);
            self.span.record("held_ms", milliseconds(held));
        }
        #[cfg(feature = "metrics")]
        {
            let [pattern, scope, mode] = self.labels.pairs();
            metrics::histogram!("advisory_hold_seconds", &[pattern, scope, mode])
                .record(held.as_secs_f64());
            let labels = [pattern, scope, mode, ("outcome", outcome)];
            metrics::counter!("advisory_ended_total", &labels).increment(1);
        }
    }

    /// The span that the body runs in.
    #[cfg(feature = "tracing")]
    pub(crate) fn span(&self) -> tracing::Span {
        self.span.clone()
    }
}

#[cfg(any(feature = "tracing", feature = "metrics"))]
impl Drop for Telemetry {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let is_held = self.acquired.is_some();
        #[cfg(feature = "tracing")]
        {
            // The span is not there where only warnings are wanted.
            let pattern = self.labels.pattern;
            let what = if is_held {
                "leak prevented: the call was dropped, and its lock is released"
            } else {
                "leak prevented: the call was dropped while it waited"
            };
            tracing::warn!(parent: &self.span, pattern, "{what}");
        }
        if is_held {
            self.close("dropped");
        } else {
            #[cfg(feature = "tracing")]
            self.span
                .record("waited_ms", milliseconds(self.asked.elapsed()));
            self.record_not_acquired("dropped");
        }
    }
}

#[cfg(feature = "tracing")]
fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// A label for an error: one of few.
#[cfg(any(feature = "tracing", feature = "metrics"))]
fn word(error: &Error) -> &'static str {
    match error {
        Error::NotAvailable { .. } => "not_available",
        Error::TimedOut { .. } => "timed_out",
        Error::QueueFull { .. } => "queue_full",
        Error::SelfDeadlock { .. } => "self_deadlock",
        Error::Cancelled { .. } => "cancelled",
        Error::HoldExceeded { .. } => "hold_exceeded",
        Error::LockLost { .. } => "lost",
        Error::Deadlock { .. } => "deadlock",
        Error::RolledBack { .. } => "rolled_back",
        Error::TransactionEnded { .. } => "transaction_ended",
        Error::CommitUnknown { .. } => "commit_unknown",
        Error::InFailedTransaction { .. } => "in_failed_transaction",
        Error::Pool(_) => "pool",
        Error::BrokenConnection { .. } => "broken_connection",
        Error::Database(_) => "database",
        _ => "misused",
    }
}
