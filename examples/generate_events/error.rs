//! Errors of listing events.

use std::error::Error;
use std::fmt;

use diesel_async::pooled_connection::deadpool::PoolError;

#[derive(Debug)]
pub(crate) enum EventError {
    Pool(PoolError),
    Lock(advisory_runtime::Error),
    Database(diesel::result::Error),
}

impl From<PoolError> for EventError {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

impl From<advisory_runtime::Error> for EventError {
    fn from(error: advisory_runtime::Error) -> Self {
        Self::Lock(error)
    }
}

impl From<diesel::result::Error> for EventError {
    fn from(error: diesel::result::Error) -> Self {
        Self::Database(error)
    }
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(error) => error.fmt(f),
            Self::Lock(error) => error.fmt(f),
            Self::Database(error) => error.fmt(f),
        }
    }
}

impl Error for EventError {}
