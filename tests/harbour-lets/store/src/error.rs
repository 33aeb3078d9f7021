//! The error of every function of the application.

use advisory_runtime::{claim, lease};
use diesel_async::pooled_connection::deadpool;
use std::fmt;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug)]
pub enum Error {
    /// The database's error.
    Database(diesel::result::Error),
    Lock(advisory_runtime::Error),
    Lease(lease::Error),
    Claim(claim::Error),
    /// No connection was available.
    Pool(Box<dyn std::error::Error + Send + Sync>),
    /// The request was refused: the caller learns why.
    Refused(Refusal),
}

/// Why a request is refused although everything works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Taken,
    NotFound,
    WrongState,
    TooLittle,
    AlreadyDone,
    Busy,
    Invalid,
}

impl Error {
    /// Whether to answer "try again": another call is working on it.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Lock(error) => error.is_busy(),
            Self::Lease(error) => error.is_held(),
            Self::Refused(refusal) => *refusal == Refusal::Busy,
            _ => false,
        }
    }

    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Refused(refusal) => Some(*refusal),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(_) => f.write_str("the database failed"),
            Self::Lock(_) => f.write_str("a lock could not be had"),
            Self::Lease(_) => f.write_str("a lease could not be had"),
            Self::Claim(_) => f.write_str("a claim was lost"),
            Self::Pool(_) => f.write_str("no connection could be had"),
            Self::Refused(refusal) => write!(f, "refused: {refusal:?}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Database(error) => Some(error),
            Self::Lock(error) => Some(error),
            Self::Lease(error) => Some(error),
            Self::Claim(error) => Some(error),
            Self::Pool(error) => Some(&**error),
            Self::Refused(_) => None,
        }
    }
}

impl From<diesel::result::Error> for Error {
    fn from(error: diesel::result::Error) -> Self {
        match error {
            diesel::result::Error::NotFound => Self::Refused(Refusal::NotFound),
            error => Self::Database(error),
        }
    }
}

impl From<advisory_runtime::Error> for Error {
    fn from(error: advisory_runtime::Error) -> Self {
        Self::Lock(error)
    }
}

impl From<lease::Error> for Error {
    fn from(error: lease::Error) -> Self {
        Self::Lease(error)
    }
}

impl From<claim::Error> for Error {
    fn from(error: claim::Error) -> Self {
        Self::Claim(error)
    }
}

impl From<deadpool::PoolError> for Error {
    fn from(error: deadpool::PoolError) -> Self {
        Self::Pool(Box::new(error))
    }
}

impl From<diesel::r2d2::PoolError> for Error {
    fn from(error: diesel::r2d2::PoolError) -> Self {
        Self::Pool(Box::new(error))
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
