//! The error of a pool that gave no connection.

use diesel::result::Error as DieselError;
use std::fmt;

/// The error of a pool that gave no connection, from [`Pool`](crate::Pool) and
/// [`blocking::Pool`](crate::blocking::Pool).
///
/// The errors of locks, leases and claims have a variant `Pool` with it.
#[derive(Debug)]
pub struct PoolError {
    wanted: &'static str,
    /// True if the call is inside the body of another locked call, which has a connection.
    is_inside_body: bool,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl PoolError {
    /// For a pool that could not provide one of its connections, because of this error.
    pub fn new(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self {
            wanted: "could not get a connection from the pool",
            is_inside_body: false,
            source: source.into(),
        }
    }

    /// For [`Pool::dedicated`](crate::Pool::dedicated), which could not open a connection.
    pub fn dedicated(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self {
            wanted: "could not open a connection outside the pool",
            ..Self::new(source)
        }
    }

    /// For a pool that gave one connection where two are needed, and this error for the second.
    pub(crate) fn of_second(self) -> Self {
        Self {
            wanted: "could not get a connection from the pool: it must give two connections at once, so its maximum size must be at least 2; \
                     for the second one it reported",
            ..self
        }
    }

    pub(crate) const fn inside_body(mut self, is_inside_body: bool) -> Self {
        self.is_inside_body = is_inside_body;
        self
    }

    /// Returns the pool's own error, such as for `downcast_ref`.
    #[must_use]
    pub fn get_ref(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.source
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.wanted, self.source)?;
        if self.is_inside_body {
            f.write_str(
                "; the call is inside the body of another locked call, which has a connection: pass that one on, with `conn = conn` \
                 instead of `pool`",
            )?;
        }
        Ok(())
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
        // The message has its own.
        self.source.source()
    }
}
