//! A check that a pool replaces the connections that dropped calls have closed.

use super::fail;
use crate::driver::Driver;
use crate::{Connection, Pool, PoolError};
use std::panic::Location;

/// The number of connections to take from the pool: more than it has idle ones.
const LOOKS: usize = 100;

/// Asserts that a pool with your own manager replaces a connection that a dropped call has closed.
///
/// It takes a connection, closes it as a dropped call does, returns it, and takes connections
/// again, one at a time. Nothing else may use the pool meanwhile.
///
/// # Panics
///
/// If the pool gives out the closed connection again, or none.
///
/// # Cancel safety
///
/// Cancel safe: a borrowed connection goes back to the pool.
///
/// # Examples
///
/// ```no_run
/// # async fn f(pool: impl advisory_runtime::Pool) {
/// advisory_runtime::testing::assert_replaces_broken(&pool).await;
/// # }
/// ```
#[track_caller]
pub fn assert_replaces_broken<P: Pool>(pool: &P) -> impl Future<Output = ()> {
    let at = Location::caller();
    async move {
        let mut closed = borrowed(pool.connection().await, at);
        closed.pg().close(false);
        drop(closed);
        for _ in 0..LOOKS {
            if borrowed(pool.connection().await, at).pg().is_broken() {
                fail(
                    at,
                    "the pool gives out a connection that a dropped call has closed: its manager must reject one for which \
                 `PoolableConnection::is_broken` of diesel-async is true, deadpool's in `recycle`, bb8's in `has_broken`",
                );
            }
        }
    }
}

fn borrowed<C>(conn: Result<C, PoolError>, at: &Location<'_>) -> C {
    conn.unwrap_or_else(|error| fail(at, &error.to_string()))
}

/// Asserts that a pool of r2d2 replaces a connection that a locked call has closed, as
/// [`assert_replaces_broken`] does.
///
/// A blocking call closes its connection if it cannot roll it back.
///
/// # Panics
///
/// If the pool gives out the closed connection again, or none.
#[cfg(feature = "r2d2")]
#[track_caller]
pub fn assert_r2d2_replaces_broken<M>(pool: &diesel::r2d2::Pool<M>)
where
    M: diesel::r2d2::ManageConnection<Connection = diesel::PgConnection>,
{
    let at = Location::caller();
    let connection = || borrowed(pool.get().map_err(PoolError::new), at);
    let mut closed = connection();
    Driver::close(&mut *closed, false);
    drop(closed);
    for _ in 0..LOOKS {
        if Driver::is_broken(&mut *connection()) {
            fail(
                at,
                "the pool gives out a connection that a locked call has closed: `has_broken` of its manager must return \
                 `R2D2Connection::is_broken(conn)`",
            );
        }
    }
}
