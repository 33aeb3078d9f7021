//! Which status does a clean-up that fails have?

use std::error::Error;
use std::fmt;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use diesel_async::pooled_connection::deadpool::PoolError;

#[derive(Debug)]
pub(crate) enum CleanupError {
    Pool(PoolError),
    Lock(advisory_runtime::Error),
    Database(diesel::result::Error),
}

impl IntoResponse for CleanupError {
    fn into_response(self) -> Response {
        match self {
            Self::Lock(error) if error.is_busy() => (
                StatusCode::CONFLICT,
                "a clean-up of this address is in progress",
            ),
            Self::Lock(advisory_runtime::Error::HoldExceeded { .. }) => (
                StatusCode::GATEWAY_TIMEOUT,
                "the clean-up took too long and was given up",
            ),
            error => {
                eprintln!("clean-up: {error}");
                (StatusCode::INTERNAL_SERVER_ERROR, "the clean-up failed")
            }
        }
        .into_response()
    }
}

impl From<PoolError> for CleanupError {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

impl From<advisory_runtime::Error> for CleanupError {
    fn from(error: advisory_runtime::Error) -> Self {
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
            Self::Pool(error) => error.fmt(f),
            Self::Lock(error) => error.fmt(f),
            Self::Database(error) => error.fmt(f),
        }
    }
}

impl Error for CleanupError {}
