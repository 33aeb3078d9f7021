//! Finds the error of a lock, a lease or a claim in an error of another type.

use crate::claim;
use crate::error::{Error, ErrorRef, PoolError, ProductError};
#[cfg(feature = "diesel-async")]
use crate::lease;
#[cfg(feature = "migrations")]
use crate::migrations;
use diesel::result::Error as DieselError;

impl Error {
    /// Finds a lock's error in an error of another type, by its chain of sources.
    ///
    /// Works on `diesel::result::Error` and on any error that returns its cause through `source()`.
    /// For `anyhow::Error` write `Error::find(&*error)`. To match on the variant, add
    /// `.as_deref()`.
    ///
    /// ```
    /// use advisory_runtime::Error;
    ///
    /// fn status(error: &diesel::result::Error) -> u16 {
    ///     match Error::find(error).as_deref() {
    ///         Some(Error::NotAvailable { .. }) => 409,
    ///         Some(lock) if lock.is_busy() => 504,
    ///         _ => 500,
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn find<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<ErrorRef<'e>> {
        find(error)
    }
}

#[cfg(feature = "diesel-async")]
impl lease::Error {
    /// Finds a lease's error in an error of another type, by its chain of sources, as
    /// [`advisory_runtime::Error::find`](Error::find) does for a lock's.
    #[must_use]
    pub fn find<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<ErrorRef<'e, Self>> {
        find(error)
    }
}

impl claim::Error {
    /// Finds a claim's error in an error of another type, by its chain of sources, as
    /// [`advisory_runtime::Error::find`](Error::find) does for a lock's.
    #[must_use]
    pub fn find<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<ErrorRef<'e, Self>> {
        find(error)
    }
}

pub(crate) fn find<'e, E: ProductError>(
    error: &'e (dyn std::error::Error + 'static),
) -> Option<ErrorRef<'e, E>> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = ErrorRef::of(error) {
            return Some(found);
        }
        next = cause(error);
    }
    None
}

/// The error that this one contains. Its `source()` would skip an error that its message repeats.
fn cause<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> Option<&'e (dyn std::error::Error + 'static)> {
    if let Some(DieselError::QueryBuilderError(inner)) = error.downcast_ref() {
        return Some(&**inner);
    }
    if let Some(error) = error.downcast_ref::<PoolError>() {
        return Some(error.get_ref());
    }
    #[cfg(feature = "migrations")]
    if let Some(error) = error.downcast_ref::<migrations::Error>() {
        return error.cause();
    }
    #[cfg(feature = "diesel-async")]
    if let Some(error) = error.downcast_ref::<lease::Error>() {
        return error.cause();
    }
    if let Some(error) = error.downcast_ref::<claim::Error>() {
        return error.cause();
    }
    match error.downcast_ref::<Error>() {
        Some(error) => error.cause(),
        None => error.source(),
    }
}
