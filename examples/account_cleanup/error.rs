//! The errors of a clean-up as HTTP statuses.

use advisory_runtime::Error;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

pub(crate) struct CleanupError(pub(crate) Error);

impl IntoResponse for CleanupError {
    /// The error's text is for operators, because it names locks and tables. It is logged, and the
    /// answer has its own words.
    fn into_response(self) -> Response {
        eprintln!("clean-up: {}", self.0);
        match self.0 {
            // Before the timeouts, because `is_busy` is true for both.
            Error::NotAvailable { .. } => (
                StatusCode::CONFLICT,
                "a clean-up of this address is in progress",
            ),
            Error::TimedOut { .. } | Error::HoldExceeded { .. } => (
                StatusCode::GATEWAY_TIMEOUT,
                "the clean-up took too long and was given up",
            ),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "the clean-up failed"),
        }
        .into_response()
    }
}
