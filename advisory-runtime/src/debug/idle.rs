//! A warning about a body that holds its lock without running statements, for example while it
//! calls another service. Checked in debug builds with the feature `tracing`, which the warning
//! needs; otherwise this is empty.
//!
//! Diesel's instrumentation is told when a statement starts and finishes. diesel-async finishes a
//! query when its first rows have arrived; the connection's task then wakes the body for each of
//! the others. So a wake-up by a task that has woken the body during a statement counts as the
//! database's answer. If that is uncertain, nothing is reported.
//!
//! A connection on which the program has set its own instrumentation is not observed.

#[cfg(all(debug_assertions, feature = "tracing"))]
mod followed;
#[cfg(not(all(debug_assertions, feature = "tracing")))]
mod ignored;

#[cfg(all(debug_assertions, feature = "tracing"))]
pub(crate) use followed::Statements;
#[cfg(not(all(debug_assertions, feature = "tracing")))]
pub(crate) use ignored::Statements;
