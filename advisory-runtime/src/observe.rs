//! What a lock tells those who operate the program: tracing and metrics.

mod telemetry;

pub(crate) use telemetry::{Outcome, Telemetry};
