//! The lease table and a pool: what renews and releases by itself.

use super::keeper::keep;
use super::{Event, Held, Lease, Request, Row, Table, running};
use crate::observe::Telemetry;
use crate::pool::Pool;
use crate::{Error, LockKey, Wait};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// How long a pool or server may take to say whether a call waits for itself: at least, and at most.
const SOON: Duration = Duration::from_secs(1);
const SLOW: Duration = Duration::from_secs(5);

/// Called for each event.
pub(super) type Observer = Arc<dyn Fn(Event<'_>) + Send + Sync>;

/// The lease table, and the pool whose connections reach it.
///
/// A lease takes a connection only for each round trip. Where the pool does not lend one at once to a renewal or a release, because
/// bodies hold them all, a connection is opened beside the pool, and closed again; at most two at a time in a process.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, Pool, lease::{Leases, Table}};
///
/// # async fn f<P: Pool + Clone + Send + 'static>(pool: P) -> Result<(), Error> {
/// let leases = Leases::new(pool).table(Table::new().held_by("worker-7")?);
/// for row in leases.list().await? {
///     println!("{} holds token {} for {:?}", row.holder, row.token, row.remaining);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Leases<P> {
    pub(super) table: Table,
    pub(super) pool: P,
    pub(super) observer: Option<Observer>,
}

impl<P> std::fmt::Debug for Leases<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leases")
            .field("table", &self.table.name())
            .finish_non_exhaustive()
    }
}

impl<P: Pool + Clone + Send + 'static> Leases<P> {
    /// Leases in `public.advisory_lease`.
    pub fn new(pool: P) -> Self {
        Self {
            table: Table::new(),
            pool,
            observer: None,
        }
    }

    /// Leases in this table.
    #[must_use]
    pub fn table(mut self, table: Table) -> Self {
        self.table = table;
        self
    }

    /// Calls this for each event, on the task where it happens: count, log, and return. What it panics with is lost.
    #[must_use]
    pub fn observed(mut self, observer: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Acquires a lease, and renews it in the background until what is returned is released or dropped.
    ///
    /// # Locking
    ///
    /// As [`Table::acquire`], on a connection that the pool lends for each try. Then an `UPDATE` each third of the ttl, and one for
    /// the release.
    ///
    /// # Errors
    ///
    /// As [`Table::acquire`], and [`Error::Pool`]: when no connection comes within the request's wait it is [`Error::TimedOut`].
    /// Outside of a tokio runtime [`Error::Pool`]. [`Error::SelfDeadlock`] in debug builds, where the body that asks stands under it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe in that nothing is left: what is granted to a dropped future is released.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::{Error, Pool, lease::{Leases, Request}};
    ///
    /// # async fn f<P: Pool + Clone + Send + 'static>(leases: Leases<P>) -> Result<(), Error> {
    /// let mut held = leases.acquire(Request::text("report:2026-11")).await?;
    /// let result = held.run(async { Ok::<_, Error>(()) }).await?;
    /// held.finish(result).await
    /// # }
    /// ```
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn acquire(
        &self,
        request: impl Into<Request>,
    ) -> impl Future<Output = Result<Held, Error>> {
        self.followed(request.into().made_here())
    }

    async fn followed(&self, request: Request) -> Result<Held, Error> {
        let mut trail = Telemetry::new(request.lock, "lease", "exclusive");
        match self.acquired(request).await {
            Ok(mut held) => {
                trail.record_acquired(held.lease().waited());
                held.trail = Some(trail);
                Ok(held)
            }
            Err(error) => {
                trail.record_refusal(&error);
                Err(error)
            }
        }
    }

    async fn acquired(&self, request: Request) -> Result<Held, Error> {
        request.check()?;
        let taken = running::asked(&request);
        let own = running::held_by_this_task(&request);
        if !own.is_empty() && Box::pin(self.holds_one(own, request.wait)).await {
            let lock = request.name();
            return Err(Error::SelfDeadlock { lock });
        }
        let runtime = Handle::try_current().map_err(|error| Error::Pool(Box::new(error)))?;
        let (ready, granted) = oneshot::channel();
        let (finish, finished) = oneshot::channel();
        let (limit, stays) = (request.max_hold, request.keep);
        drop(runtime.spawn(keep(self.clone(), request, ready, finished)));
        match granted.await {
            Ok(granted) => {
                let mut held = Held::new(granted?, finish, limit, stays);
                held.taken = taken;
                Ok(held)
            }
            Err(ended) => Err(Error::Pool(Box::new(ended))),
        }
    }

    /// Whether one of these is held in this table, and not in another one or another database. Where the pool does not say so soon,
    /// the call waits as any other.
    async fn holds_one(&self, own: Vec<Lease>, wait: Wait) -> bool {
        // Most often nothing else would come of the wait, so a slow server has the time to say so.
        let patience = match wait {
            Wait::For(wait) => wait.clamp(SOON, SLOW),
            Wait::Session | Wait::Never | Wait::Forever => SLOW,
        };
        let asked = async {
            for lease in &own {
                if self.holds(lease).await.unwrap_or(false) {
                    return true;
                }
            }
            false
        };
        let asked = tokio::time::timeout(patience, asked).await;
        asked.unwrap_or(false)
    }

    /// [`Table::find`], on a connection of the pool.
    ///
    /// # Errors
    ///
    /// As [`Table::find`], and [`Error::Pool`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn find(&self, key: impl LockKey) -> Result<Option<Row>, Error> {
        let text = key.rendered();
        #[cfg(feature = "testing")]
        if let Some(memory) = self.pool.memory() {
            return Ok(memory.find(super::table::sha256(&text)));
        }
        let mut conn = self.pool.connection().await?;
        self.table.find_text(&mut conn, &text).await
    }

    /// [`Table::is_held`], on a connection of the pool.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn is_held(&self, key: impl LockKey) -> Result<bool, Error> {
        Ok(self.find(key).await?.is_some())
    }

    /// [`Table::holds`], on a connection of the pool.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn holds(&self, lease: &Lease) -> Result<bool, Error> {
        #[cfg(feature = "testing")]
        if let Some(memory) = self.pool.memory() {
            return Ok(memory.holds(lease));
        }
        let mut conn = self.pool.connection().await?;
        self.table.holds(&mut conn, lease).await
    }

    /// [`Table::list`], on a connection of the pool.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn list(&self) -> Result<Vec<Row>, Error> {
        #[cfg(feature = "testing")]
        if let Some(memory) = self.pool.memory() {
            return Ok(memory.list());
        }
        let mut conn = self.pool.connection().await?;
        self.table.list(&mut conn).await
    }

    /// [`Table::list_of`], on a connection of the pool.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn list_of(&self, holder: &str) -> Result<Vec<Row>, Error> {
        #[cfg(feature = "testing")]
        if let Some(memory) = self.pool.memory() {
            let mut rows = memory.list();
            rows.retain(|row| row.holder == holder);
            return Ok(rows);
        }
        let mut conn = self.pool.connection().await?;
        self.table.list_of(&mut conn, holder).await
    }

    /// [`Table::set_up`], on a connection of the pool.
    ///
    /// # Errors
    ///
    /// As [`Table::set_up`], and [`Error::Pool`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the table is there or not.
    pub async fn set_up(&self) -> Result<(), Error> {
        #[cfg(feature = "testing")]
        if self.pool.memory().is_some() {
            return Ok(());
        }
        let mut conn = self.pool.connection().await?;
        self.table.set_up(&mut conn).await
    }

    pub(super) fn tell(&self, event: Event<'_>) {
        if let Some(observer) = &self.observer {
            // Its panic is its own: the lease is renewed and released all the same.
            let told = AssertUnwindSafe(|| observer(event));
            drop(catch_unwind(told));
        }
    }
}

/// What `pool = …` takes: a pool of bb8 or deadpool, whose leases are in `public.advisory_lease`, or [`Leases`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` gives a lease no connections",
    label = "expected a pool of bb8 or deadpool, or `advisory_runtime::lease::Leases`",
    note = "enable the feature `bb8` or `deadpool` of `advisory-runtime`; for a pool of your own write `Leases::new(pool)`"
)]
pub trait Source {
    /// The pool.
    type Pool: Pool + Clone + Send + 'static;

    /// The leases.
    fn leases(&self) -> Leases<Self::Pool>;
}

impl<P: Pool + Clone + Send + 'static> Source for Leases<P> {
    type Pool = P;

    fn leases(&self) -> Self {
        self.clone()
    }
}

impl<S: Source + ?Sized> Source for &S {
    type Pool = S::Pool;

    fn leases(&self) -> Leases<S::Pool> {
        S::leases(self)
    }
}

impl<S: Source + ?Sized> Source for Arc<S> {
    type Pool = S::Pool;

    fn leases(&self) -> Leases<S::Pool> {
        S::leases(self)
    }
}

#[cfg(feature = "bb8")]
impl Source for diesel_async::pooled_connection::bb8::Pool<diesel_async::AsyncPgConnection> {
    type Pool = Self;

    fn leases(&self) -> Leases<Self> {
        Leases::new(self.clone())
    }
}

#[cfg(feature = "deadpool")]
impl Source for diesel_async::pooled_connection::deadpool::Pool<diesel_async::AsyncPgConnection> {
    type Pool = Self;

    fn leases(&self) -> Leases<Self> {
        Leases::new(self.clone())
    }
}

/// What the attribute's expansion calls.
#[doc(hidden)]
pub async fn acquire_at(source: &impl Source, request: Request) -> Result<Held, Error> {
    source.leases().followed(request).await
}
