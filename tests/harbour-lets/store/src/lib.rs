//! Pools, the error of every function of the application, and the lock around its migrations.

pub mod migrate;

use diesel::PgConnection;
use diesel::r2d2::ConnectionManager;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool;

pub type Pool = deadpool::Pool<AsyncPgConnection>;
pub type BlockingPool = diesel::r2d2::Pool<ConnectionManager<PgConnection>>;
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug)]
pub enum Error {
    /// The request was refused. Every body of the application returns this.
    Refused,
    /// A lock, a lease or a connection could not be acquired.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

macro_rules! failed {
    ($($error:ty),*) => { $(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Failed(Box::new(error))
            }
        }
    )* };
}

failed!(
    advisory_runtime::Error,
    advisory_runtime::lease::Error,
    deadpool::PoolError,
    diesel::r2d2::PoolError
);
