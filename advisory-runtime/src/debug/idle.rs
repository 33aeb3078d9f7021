//! A warning about a body that holds its lock without running statements, for example while it
//! calls another service. Only in debug builds with the feature `tracing`, which the warning needs.
//!
//! Diesel reports the start and the end of each statement to its instrumentation. For diesel-async
//! a query ends when its first rows have arrived; the connection's task then wakes the body for
//! each of the others. So a wake-up by a task that has woken the body during a statement counts as
//! the database's answer. In doubt, nothing is reported.
//!
//! A connection with an instrumentation of the program's own is not observed.

#[cfg(all(debug_assertions, feature = "tracing"))]
mod followed;
#[cfg(not(all(debug_assertions, feature = "tracing")))]
mod ignored;

#[cfg(all(debug_assertions, feature = "tracing"))]
pub(crate) use followed::Statements;
#[cfg(not(all(debug_assertions, feature = "tracing")))]
pub(crate) use ignored::Statements;
