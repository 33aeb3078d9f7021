//! Errors of a clean-up, and their HTTP statuses.

use std::error::Error;
use std::fmt;

use advisory_runtime::Error as LockError;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

#[derive(Debug)]
pub(crate) enum CleanupError {
    Lock(LockError),
    Database(diesel::result::Error),
}

impl IntoResponse for CleanupError {
    /// The error's text is for operators, because it names locks and tables. It is logged, and the answer has its own words.
    fn into_response(self) -> Response {
        eprintln!("clean-up: {self}");
        match self {
            // Before the timeouts, because `is_busy` is true for both.
            Self::Lock(LockError::NotAvailable { .. }) => (
                StatusCode::CONFLICT,
                "a clean-up of this address is in progress",
            ),
            Self::Lock(LockError::TimedOut { .. } | LockError::HoldExceeded { .. }) => (
                StatusCode::GATEWAY_TIMEOUT,
                "the clean-up took too long and was given up",
            ),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "the clean-up failed"),
        }
        .into_response()
    }
}

impl From<LockError> for CleanupError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<diesel::result::Error> for CleanupError {
    fn from(error: diesel::result::Error) -> Self {
        Self::Database(error)
    }
}

impl fmt::Display for CleanupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Database(error) => error.fmt(f),
        }
    }
}

impl Error for CleanupError {}
