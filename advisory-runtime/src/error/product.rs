//! Common parts of the errors of locks, leases and claims.

use super::PoolError;
use diesel::result::Error as DieselError;

/// The error of a product, which can contain one of Diesel's errors and be converted into one.
#[allow(missing_docs, reason = "for the expansion alone")]
pub trait ProductError:
    std::error::Error + From<DieselError> + From<PoolError> + Send + Sync + 'static
{
    fn database(&self) -> Option<&DieselError>;

    /// Wraps Diesel's error, with its message and conversion.
    fn of_database(error: DieselError) -> Self;

    /// Diesel's error, if this error is nothing else.
    fn into_database(self) -> Result<DieselError, Self>;

    /// The error that this one contains, even if its own message repeats that error's.
    fn cause(&self) -> Option<&(dyn std::error::Error + 'static)>;
}

/// Implements the conversions of an error with the variants `Pool(PoolError)` and
/// `Database(DieselError)` and the method `database`.
macro_rules! product_error {
    ($error:ty) => {
        impl $crate::error::ProductError for $error {
            fn database(&self) -> Option<&diesel::result::Error> {
                <$error>::database(self)
            }

            fn of_database(error: diesel::result::Error) -> Self {
                Self::Database(error)
            }

            fn into_database(self) -> Result<diesel::result::Error, Self> {
                match self {
                    Self::Database(error) => Ok(error),
                    error => Err(error),
                }
            }

            fn cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self {
                    Self::Pool(error) => Some(error),
                    error => error.database().map(|source| source as _),
                }
            }
        }

        /// For bodies that return this error: the error of one of their statements.
        impl From<diesel::result::Error> for $error {
            fn from(error: diesel::result::Error) -> Self {
                $crate::error::from_diesel(error)
            }
        }

        /// An answer of the database becomes a `DatabaseError` of its kind with a message that
        /// contains the server's. Every other error becomes a
        /// [`QueryBuilderError`](diesel::result::Error::QueryBuilderError).
        impl From<$error> for diesel::result::Error {
            fn from(error: $error) -> Self {
                $crate::error::into_diesel(error)
            }
        }

        impl From<$crate::error::PoolError> for $error {
            fn from(error: $crate::error::PoolError) -> Self {
                Self::Pool(error)
            }
        }

        impl std::error::Error for $error {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self {
                    // The message has theirs.
                    Self::Pool(error) => error.source(),
                    Self::Database(error) => error.source(),
                    error => $crate::error::ProductError::cause(error),
                }
            }
        }
    };
}
pub(crate) use product_error;
