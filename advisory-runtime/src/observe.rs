//! What a lock tells those who operate the program: tracing and metrics.

#[cfg(not(any(feature = "tracing", feature = "metrics")))]
mod silent;
#[cfg(any(feature = "tracing", feature = "metrics"))]
mod telemetry;

#[cfg(not(any(feature = "tracing", feature = "metrics")))]
pub(crate) use silent::Telemetry;
#[cfg(any(feature = "tracing", feature = "metrics"))]
pub(crate) use telemetry::Telemetry;

/// How a lock ended that was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The body returned `Ok`, and that holds.
    Done,
    /// The body returned an error.
    Failed,
}
