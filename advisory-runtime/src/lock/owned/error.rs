//! The error of an owned lock, which gives the connection back.

use crate::Error;
use diesel::result::Error as DieselError;
use std::fmt;

/// The error of [`session::acquire_owned`](crate::session::acquire_owned), with the connection.
///
/// It converts into [`Error`] and into [`diesel::result::Error`], so that `?` works where the
/// connection is not needed again.
///
/// The connection is usable unless the error says otherwise. After [`Error::NotAvailable`],
/// [`Error::TimedOut`] and [`Error::PooledSession`] it is as it was before the call.
///
/// ```
/// use advisory_runtime::{Error, OwnedLockError};
///
/// /// Another session is the leader: keep the connection, and ask again later.
/// fn connection<C>(failed: OwnedLockError<C>) -> Result<C, Error> {
///     match failed.error {
///         Error::NotAvailable { .. } => Ok(*failed.connection),
///         error => Err(error),
///     }
/// }
/// ```
#[non_exhaustive]
pub struct OwnedLockError<C> {
    /// The error.
    pub error: Error,
    /// The connection, without the lock. The box keeps a `Result` with this error small.
    pub connection: Box<C>,
}

impl<C> From<OwnedLockError<C>> for Error {
    fn from(failed: OwnedLockError<C>) -> Self {
        failed.error
    }
}

impl<C> From<OwnedLockError<C>> for DieselError {
    fn from(failed: OwnedLockError<C>) -> Self {
        failed.error.into()
    }
}

/// The source of the [`Error`].
impl<C> fmt::Display for OwnedLockError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<C> fmt::Debug for OwnedLockError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedLockError")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<C> std::error::Error for OwnedLockError<C> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
