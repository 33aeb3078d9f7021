//! The span, events, counters and histograms of one lock. They have its key pattern but not its
//! key, which can be personal data and has unlimited values.

#[cfg(feature = "tracing")]
use super::Severity;
use super::{Observed, Outcome};
use std::time::{Duration, Instant};

/// The label of all locks without a pattern.
const NUMBER: &str = "number";

#[derive(Debug)]
pub(crate) struct Telemetry {
    /// `pattern`, `scope` and `mode`.
    labels: [(&'static str, &'static str); 3],
    #[cfg(feature = "tracing")]
    asked: Instant,
    acquired: Option<Instant>,
    is_over: bool,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl Telemetry {
    /// With `is_try`, the call tries the lock and does not wait at the server.
    pub(crate) fn new(
        pattern: &'static str,
        scope: &'static str,
        mode: &'static str,
        is_try: bool,
    ) -> Self {
        #[cfg(not(feature = "tracing"))]
        let _ = is_try;
        let pattern = if pattern.is_empty() { NUMBER } else { pattern };
        Self {
            labels: [("pattern", pattern), ("scope", scope), ("mode", mode)],
            #[cfg(feature = "tracing")]
            asked: Instant::now(),
            acquired: None,
            is_over: false,
            #[cfg(feature = "tracing")]
            span: tracing::debug_span!(
                "advisory_lock",
                pattern,
                scope,
                mode,
                db.system.name = "postgresql",
                db.query.summary = summary(scope, mode, is_try),
                error.type = tracing::field::Empty,
                outcome = tracing::field::Empty,
                waited_ms = tracing::field::Empty,
                held_ms = tracing::field::Empty,
            ),
        }
    }

    pub(crate) fn record_acquired(&mut self, waited: Duration) {
        self.acquired = Some(Instant::now());
        #[cfg(feature = "tracing")]
        {
            self.span.record("waited_ms", milliseconds(waited));
            tracing::debug!(parent: &self.span, waited_ms = milliseconds(waited), "acquired");
        }
        #[cfg(feature = "metrics")]
        {
            metrics::counter!("advisory_acquired_total", &self.labels).increment(1);
            metrics::histogram!("advisory_wait_seconds", &self.labels).record(waited.as_secs_f64());
        }
    }

    /// The lock is held until the end of the open transaction, which is not observed.
    pub(crate) fn record_left(&mut self, waited: Duration) {
        self.record_acquired(waited);
        self.is_over = true;
        #[cfg(feature = "tracing")]
        self.span.record("outcome", "left");
    }

    pub(crate) fn record_refusal(&mut self, error: &impl Observed) {
        let reason = error.word();
        self.record_not_acquired(reason);
        #[cfg(feature = "tracing")]
        {
            let waited = error.waited().unwrap_or_else(|| self.asked.elapsed());
            self.span.record("waited_ms", milliseconds(waited));
            let (_, pattern) = self.labels[0];
            if error.severity() != Severity::Done {
                self.span.record("error.type", reason);
            }
            match error.severity() {
                Severity::Contention => {
                    tracing::debug!(parent: &self.span, pattern, reason, "contention: {error}");
                }
                Severity::Done => {
                    tracing::debug!(parent: &self.span, pattern, reason, "{error}");
                }
                Severity::Ignored | Severity::Lost | Severity::Other => {
                    tracing::warn!(parent: &self.span, pattern, reason, "{error}");
                }
            }
        }
    }

    pub(crate) fn forget(mut self) {
        self.is_over = true;
    }

    fn record_not_acquired(&mut self, reason: &'static str) {
        self.is_over = true;
        #[cfg(feature = "tracing")]
        self.span.record("outcome", reason);
        #[cfg(feature = "metrics")]
        self.count("advisory_refused_total", ("reason", reason));
    }

    /// The body held the lock for this long without a statement; found in debug builds.
    #[cfg(all(debug_assertions, feature = "tracing"))]
    pub(crate) fn record_idle(&self, place: &str, idle: Duration) {
        let (_, pattern) = self.labels[0];
        tracing::warn!(
            parent: &self.span,
            pattern,
            "idle under a lock: {place} held a lock, a connection and a transaction for {idle:.1?} without a statement; do slow work \
             before the lock, or use `#[advisory_lease]`, `queue`, or a separate pool for locks (reported once for each place)"
        );
    }

    /// The body has returned, and the lock is released.
    pub(crate) fn record_end(&mut self, outcome: Result<Outcome, &impl Observed>) {
        #[cfg(feature = "tracing")]
        if let Err(error) = outcome {
            let (_, pattern) = self.labels[0];
            self.span.record("error.type", error.word());
            match error.severity() {
                Severity::Ignored => {
                    tracing::warn!(parent: &self.span, pattern, "ignored error: {error}");
                }
                Severity::Lost => {
                    tracing::error!(parent: &self.span, pattern, "lost: {error}");
                }
                Severity::Contention | Severity::Done | Severity::Other => {
                    tracing::warn!(parent: &self.span, pattern, "{error}");
                }
            }
        }
        self.close(match outcome {
            Ok(Outcome::Done) => "done",
            Ok(Outcome::Failed) => "failed",
            Err(error) => error.word(),
        });
    }

    fn close(&mut self, outcome: &'static str) {
        self.is_over = true;
        let held = self.acquired.map_or(Duration::ZERO, |at| at.elapsed());
        #[cfg(feature = "tracing")]
        {
            self.span.record("outcome", outcome);
            self.span.record("held_ms", milliseconds(held));
        }
        #[cfg(feature = "metrics")]
        {
            metrics::histogram!("advisory_hold_seconds", &self.labels).record(held.as_secs_f64());
            self.count("advisory_ended_total", ("outcome", outcome));
        }
    }

    #[cfg(feature = "metrics")]
    fn count(&self, counter: &'static str, label: (&'static str, &'static str)) {
        let [pattern, scope, mode] = self.labels;
        metrics::counter!(counter, &[pattern, scope, mode, label]).increment(1);
    }

    #[cfg(feature = "tracing")]
    pub(crate) fn span(&self) -> tracing::Span {
        self.span.clone()
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let is_held = self.acquired.is_some();
        #[cfg(feature = "tracing")]
        {
            // Where only warnings are enabled there is no span, so the event has the pattern too.
            let (_, pattern) = self.labels[0];
            let what = if is_held {
                "the call was dropped, and its lock is released"
            } else {
                "the call was dropped while it waited"
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

/// OpenTelemetry's summary of a query: its command and the name after it.
#[cfg(feature = "tracing")]
fn summary(scope: &str, mode: &str, is_try: bool) -> Option<&'static str> {
    Some(match (scope, mode, is_try) {
        ("xact", "exclusive", false) => "SELECT pg_advisory_xact_lock",
        ("xact", "shared", false) => "SELECT pg_advisory_xact_lock_shared",
        ("session", "exclusive", false) => "SELECT pg_advisory_lock",
        ("session", "shared", false) => "SELECT pg_advisory_lock_shared",
        ("xact", "exclusive", true) => "SELECT pg_try_advisory_xact_lock",
        ("xact", "shared", true) => "SELECT pg_try_advisory_xact_lock_shared",
        ("session", "exclusive", true) => "SELECT pg_try_advisory_lock",
        ("session", "shared", true) => "SELECT pg_try_advisory_lock_shared",
        _ => return None,
    })
}

#[cfg(feature = "tracing")]
fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
