//! The caller's trace in a comment of its own, so that a slow lock in the server's log leads to its
//! request.
//!
//! `/*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'*/`, after the comment
//! that names the lock, if there is one.

use std::fmt;
use std::sync::OnceLock;

/// A span of a distributed trace, as [W3C Trace
/// Context](https://www.w3.org/TR/trace-context/#traceparent-header) identifies it; it is displayed
/// as the value of `traceparent`.
///
/// ```
/// use advisory_runtime::monitor::TraceContext;
///
/// let context = TraceContext::new([0xab; 16], [0xcd; 8], 1).expect("ids that are not zero");
/// let text = "00-abababababababababababababababab-cdcdcdcdcdcdcdcd-01";
/// assert_eq!(context.to_string(), text);
/// assert_eq!(TraceContext::new([0; 16], [0xcd; 8], 1), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
}

impl TraceContext {
    /// `None` if an id is zero, which no span has.
    #[must_use]
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], flags: u8) -> Option<Self> {
        let is_valid = trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(Self {
            trace_id,
            span_id,
            flags,
        })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trace_id,
            span_id,
            flags,
        } = *self;
        let (trace_id, span_id) = (u128::from_be_bytes(trace_id), u64::from_be_bytes(span_id));
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
    }
}

static CURRENT: OnceLock<fn() -> Option<TraceContext>> = OnceLock::new();

/// Shows the current trace in front of the message of each lock that waits at the server, from now
/// on, as [sqlcommenter](https://google.github.io/sqlcommenter/spec/) writes it. The first call of
/// the process counts; later ones change nothing.
///
/// `current` is called in the task or thread that asks for the lock, when the message is made. With
/// `opentelemetry` and `tracing-opentelemetry`:
///
/// ```ignore
/// use advisory_runtime::monitor::{TraceContext, show_trace};
/// use opentelemetry::trace::TraceContextExt;
/// use tracing_opentelemetry::OpenTelemetrySpanExt;
///
/// show_trace(|| {
///     let context = tracing::Span::current().context();
///     let span = context.span().span_context().clone();
///     let (trace_id, span_id) = (span.trace_id().to_bytes(), span.span_id().to_bytes());
///     TraceContext::new(trace_id, span_id, span.trace_flags().to_u8())
/// });
/// ```
///
/// The comment is at the beginning, because the server cuts long queries at their end. It is an
/// empty statement of its own: otherwise it would be part of a statement's entry in
/// `pg_stat_statements`. A try ([`Wait::Never`], and a call that polls) has no trace: it does not
/// wait at the server, and its text is prepared, so a pooler that tracks prepared statements would
/// store one for each trace. For that reason leases and claims have none either.
/// [`Comment`](crate::monitor::Comment) reads a trace only after the name of a lock, so not under
/// [`Shown::Nothing`](crate::monitor::Shown::Nothing).
///
/// [`Wait::Never`]: crate::Wait::Never
pub fn show_trace(current: fn() -> Option<TraceContext>) {
    // An earlier function stays.
    _ = CURRENT.set(current);
}

pub(crate) fn trace() -> Option<TraceContext> {
    CURRENT.get()?()
}
