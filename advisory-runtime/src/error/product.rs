//! What the errors of locks, leases and claims have in common.

use super::PoolError;
use diesel::result::Error as DieselError;
use std::cell::Cell;

/// The error of a product: it can contain one of Diesel's, and can be put into one.
#[allow(missing_docs, reason = "for the expansion alone")]
pub trait ProductError:
    std::error::Error + From<DieselError> + From<PoolError> + Send + Sync + 'static
{
    fn database(&self) -> Option<&DieselError>;

    /// The error whose message and conversion are those of Diesel's error.
    fn of_database(error: DieselError) -> Self;

    /// Diesel's error, if this error is nothing else.
    fn into_database(self) -> Result<DieselError, Self>;
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
        }

        /// For bodies that return this error: the error of one of their statements.
        impl From<diesel::result::Error> for $error {
            fn from(error: diesel::result::Error) -> Self {
                $crate::error::from_diesel(error)
            }
        }

        /// What the database has answered as a `DatabaseError` of its kind, whose message has the
        /// server's in it; every other error inside
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
                    Self::Pool(error) => $crate::error::printed(error),
                    Self::Database(error) => $crate::error::printed(error),
                    error => <$error>::database(error).map(|source| source as _),
                }
            }
        }
    };
}
pub(crate) use product_error;

thread_local! {
    static FINDING: Cell<bool> = const { Cell::new(false) };
}

/// The `source()` of an error that prints this one itself: the cause of this one, or for
/// [`find`](super::find) this one, which may be the error that is searched for.
pub(crate) fn printed<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> Option<&'e (dyn std::error::Error + 'static)> {
    // The thread-local is gone only while the thread ends.
    if FINDING.try_with(Cell::get).unwrap_or(false) {
        return Some(error);
    }
    error.source()
}

/// The next error to search, also where the text of this one contains it.
pub(super) fn next_to_search<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> Option<&'e (dyn std::error::Error + 'static)> {
    let before = FINDING.try_with(|finding| finding.replace(true));
    let next = error.source();
    if let Ok(before) = before {
        let _ended = FINDING.try_with(|finding| finding.set(before));
    }
    next
}
