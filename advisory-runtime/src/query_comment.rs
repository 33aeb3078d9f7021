//! The comment in front of each lock's message, which names the lock wherever PostgreSQL shows a
//! query.
//!
//! `/*advisory:booking:<tenant_id>:<day>*/`: seen in `pg_stat_activity` while the call waits, and
//! in the server's log and deadlock reports.

#[cfg(feature = "tracing")]
mod trace;

use crate::key::Key;
use crate::key::rendered;
use std::borrow::Cow;
#[cfg(feature = "tracing")]
use std::fmt::Write;
use std::sync::atomic::{AtomicU8, Ordering};
#[cfg(feature = "tracing")]
pub use trace::{TraceContext, show_trace};

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

pub(crate) fn push_trace(sql: &mut String) {
    #[cfg(feature = "tracing")]
    if let Some(trace) = trace::trace() {
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result = write!(sql, "{TRACE_START}{trace}{TRACE_END}");
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
