//! The calls of a locked function on a blocking connection, and on both kinds those of its polls.

use crate::Error;
#[cfg(feature = "diesel-async")]
use crate::LockGuard;
#[cfg(feature = "diesel-async")]
pub use crate::lock::queue;
use crate::lock::{ConnAccessor, PoolPoll};
#[cfg(feature = "diesel-async")]
use diesel_async::AsyncPgConnection;

#[cfg(feature = "diesel-async")]
pub async fn exceed<O: ?Sized>(guard: LockGuard<'_, O>) -> Error {
    guard.exceed().await
}

/// Tries once on this connection. Returns `None` if another session holds the locks, and another
/// try follows after [`pause`].
#[cfg(feature = "diesel-async")]
pub async fn try_at<'o, O: ?Sized>(
    tries: &mut PoolPoll,
    owner: &'o mut O,
    accessor: ConnAccessor<O, AsyncPgConnection>,
) -> Result<Option<LockGuard<'o, O>>, Error> {
    tries.attempt(owner, accessor).await
}

#[cfg(feature = "diesel-async")]
pub async fn pause(tries: &mut PoolPoll) {
    tries.pause::<AsyncPgConnection>().await;
}

#[cfg(feature = "postgres")]
pub(super) mod blocking {
    use super::{ConnAccessor, Error, PoolPoll};
    use crate::blocking::LockGuard;
    use crate::driver::block_on;
    pub use crate::lock::queue_on_thread as queue;
    use crate::{Request, lock};
    use diesel::pg::PgConnection;

    pub fn begin_at<O: ?Sized>(
        owner: &mut O,
        accessor: ConnAccessor<O, PgConnection>,
        request: Request,
    ) -> Result<LockGuard<'_, O>, Error> {
        block_on(lock::begin(owner, accessor, request))
    }

    pub fn acquire_at<O: ?Sized>(
        owner: &mut O,
        accessor: ConnAccessor<O, PgConnection>,
        request: Request,
    ) -> Result<LockGuard<'_, O>, Error> {
        block_on(lock::acquire(owner, accessor, request))
    }

    pub fn try_at<'o, O: ?Sized>(
        tries: &mut PoolPoll,
        owner: &'o mut O,
        accessor: ConnAccessor<O, PgConnection>,
    ) -> Result<Option<LockGuard<'o, O>>, Error> {
        block_on(tries.attempt(owner, accessor))
    }

    pub fn pause(tries: &mut PoolPoll) {
        block_on(tries.pause::<PgConnection>());
    }
}
