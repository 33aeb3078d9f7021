//! Whether a body holds its lock while it asks the database nothing, such as while it calls another service. In debug builds with the
//! feature `tracing`, which the warning goes to; else this is empty.
//!
//! Diesel tells its instrumentation when a statement starts and when it finishes. Of a query, diesel-async finishes when the first rows
//! are there, and the others follow: whoever waits for them is woken by the connection's task. So a wake-up by a task that has woken the
//! body during a statement counts as the database's answer. Where that is uncertain, nothing is reported.
//!
//! A connection with an instrumentation of the program's own is left alone, and its bodies are not followed.

#[cfg(all(debug_assertions, feature = "tracing"))]
mod followed;
#[cfg(not(all(debug_assertions, feature = "tracing")))]
mod ignored;

#[cfg(all(debug_assertions, feature = "tracing"))]
pub(crate) use followed::Statements;
#[cfg(not(all(debug_assertions, feature = "tracing")))]
pub(crate) use ignored::Statements;
