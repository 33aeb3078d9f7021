//! The comment in front of each lock's message, which names the lock wherever PostgreSQL shows a
//! query.
//!
//! `/*advisory:booking:<tenant_id>:<day>*/`: seen in `pg_stat_activity` while the call waits, and
//! in the server's log and deadlock reports. A second comment has the caller's trace, so that a
//! slow lock in the log leads to its request:
//! `/*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'*/`.

use crate::key::Key;
use crate::key::rendered;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU8, Ordering};
#[cfg(feature = "tracing")]
use std::{
    fmt::{self, Write},
    sync::OnceLock,
};

/// The content of the comment in front of a lock's message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// Nothing: there is no comment.
    Nothing,
    /// The key pattern, which all its keys share.
    #[default]
    Pattern,
    /// The rendered key. Everyone who sees the server's queries or its log sees it too, and it can
    /// be personal data.
    Key,
}

static SHOWN: AtomicU8 = AtomicU8::new(1);

/// Sets the content of the comments of this process from now on; the default is the key pattern.
///
/// # Examples
///
/// ```standalone_crate
/// use advisory_runtime::monitor::{self, Shown};
///
/// // In development, where keys are not personal data.
/// monitor::show(Shown::Key);
/// assert_eq!(monitor::shown(), Shown::Key);
/// ```
pub fn show(shown: Shown) {
    rendered::keep(shown == Shown::Key);
    SHOWN.store(shown as u8, Ordering::Relaxed);
}

/// Returns the content set by [`show`], or the default.
#[must_use]
pub fn shown() -> Shown {
    let all = [Shown::Nothing, Shown::Pattern, Shown::Key];
    all[usize::from(SHOWN.load(Ordering::Relaxed))]
}

pub(crate) fn name(pattern: &'static str, keys: &[Key]) -> Option<Cow<'static, str>> {
    let pattern: Option<Cow<'static, str>> = (!pattern.is_empty()).then_some(pattern.into());
    match shown() {
        Shown::Nothing => None,
        Shown::Pattern => pattern,
        Shown::Key => rendered::take(keys).map(Cow::Owned).or(pattern),
    }
}

pub(crate) const START: &str = "/*advisory:";

/// The server shows 1,024 bytes of a query by default, and the keys after the comment must be among
/// them.
pub(crate) const LONGEST: usize = 200;

pub(crate) const ELLIPSIS: &str = "...";

/// The beginning of the comment that has the caller's trace; it ends with [`TRACE_END`].
pub(crate) const TRACE_START: &str = "/*traceparent='";
pub(crate) const TRACE_END: &str = "'*/;";

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
#[cfg(feature = "tracing")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
}

#[cfg(feature = "tracing")]
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

#[cfg(feature = "tracing")]
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace_id = u128::from_be_bytes(self.trace_id);
        let span_id = u64::from_be_bytes(self.span_id);
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{:02x}", self.flags)
    }
}

#[cfg(feature = "tracing")]
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
#[cfg(feature = "tracing")]
pub fn show_trace(current: fn() -> Option<TraceContext>) {
    // An earlier function stays.
    _ = CURRENT.set(current);
}

pub(crate) fn push_trace(sql: &mut String) {
    #[cfg(feature = "tracing")]
    if let Some(trace) = CURRENT.get().and_then(|current| current()) {
        // Writing to a `String` cannot fail.
        let _: fmt::Result = write!(sql, "{TRACE_START}{trace}{TRACE_END}");
    }
    #[cfg(not(feature = "tracing"))]
    let _ = sql;
}

pub(crate) fn push(sql: &mut String, name: &str) {
    sql.push_str(START);
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'/';
    if name.len() <= LONGEST && name.bytes().all(is_plain) {
        sql.push_str(name);
    } else {
        let text = printable(name);
        match text.get(..LONGEST - ELLIPSIS.len()) {
            Some(start) if text.len() > LONGEST => {
                sql.push_str(start);
                sql.push_str(ELLIPSIS);
            }
            _ => sql.push_str(&text),
        }
        if text.ends_with('/') {
            sql.push(' ');
        }
    }
    sql.push_str("*/");
}

/// A text as the comment shows it.
///
/// A letter outside of printable ASCII becomes a `?`, because a server refuses a message with a
/// letter that its encoding lacks. So does a `*` next to a `/`, which ends or begins a comment.
pub(crate) fn printable(text: &str) -> String {
    let mut letters = text.chars().peekable();
    let (mut printable, mut before) = (String::with_capacity(text.len()), ':');
    while let Some(letter) = letters.next() {
        let touches_slash = before == '/' || letters.peek() == Some(&'/');
        before = match letter {
            '*' if touches_slash => '?',
            ' '..='~' => letter,
            _ => '?',
        };
        printable.push(before);
    }
    printable
}
