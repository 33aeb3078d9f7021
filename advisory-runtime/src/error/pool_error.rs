//! The error of a pool that gave no connection.

use super::product::printed;
use diesel::result::Error as DieselError;
use std::fmt;

/// Why a pool gave no connection: what [`Pool`](crate::Pool) and [`blocking::Pool`](crate::blocking::Pool) return.
///
/// The error of each product has a variant `Pool` with it.
///
/// ```
/// use advisory_runtime::PoolError;
///
/// let error = PoolError::new("it is closed");
/// assert_eq!(error.to_string(), "could not get a connection from the pool: it is closed");
/// ```
#[derive(Debug)]
pub struct PoolError {
    wanted: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl PoolError {
    /// The pool could not provide one of its connections, because of this error.
    pub fn new(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self {
            wanted: "could not get a connection from the pool",
            source: source.into(),
        }
    }

    /// A connection beside those of the pool could not be opened: for [`Pool::dedicated`](crate::Pool::dedicated).
    pub fn dedicated(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self {
            wanted: "could not open a connection beside those of the pool",
            source: source.into(),
        }
    }

    /// The pool's own error, such as for `downcast_ref`.
    #[must_use]
    pub fn get_ref(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.source
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.wanted, self.source)
    }
}

/// For functions that return `QueryResult`.
impl From<PoolError> for DieselError {
    fn from(error: PoolError) -> Self {
        Self::QueryBuilderError(Box::new(error))
    }
}

impl std::error::Error for PoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        printed(&*self.source)
    }
}
