//! The three calls of a locked function, and those of its queue and its polls, on a connection
//! inside another value.

#[cfg(feature = "diesel-async")]
use crate::LockGuard;
#[cfg(feature = "diesel-async")]
pub use crate::lock::queue;
use crate::lock::{self, ConnAccessor, PoolPoll};
use crate::{Error, Request};
#[cfg(feature = "diesel-async")]
use diesel_async::AsyncPgConnection;

#[cfg(feature = "diesel-async")]
pub async fn begin_at<O: ?Sized>(
    owner: &mut O,
    accessor: ConnAccessor<O, AsyncPgConnection>,
    request: Request,
) -> Result<LockGuard<'_, O>, Error> {
    lock::begin(owner, accessor, request).await
}

#[cfg(feature = "diesel-async")]
pub async fn acquire_at<O: ?Sized>(
    owner: &mut O,
    accessor: ConnAccessor<O, AsyncPgConnection>,
    request: Request,
) -> Result<LockGuard<'_, O>, Error> {
    lock::acquire(owner, accessor, request).await
}

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
    use super::{ConnAccessor, Error, PoolPoll, Request, lock};
    use crate::blocking::LockGuard;
    use crate::driver::block_on;
    pub use crate::lock::queue_on_thread as queue;
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
