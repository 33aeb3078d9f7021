//! How is a lease acquired that renews and releases by itself?

use super::store::Store;
use super::{Event, Held, Lease, Request, Row, Table, keeper, running};
use crate::observe::Telemetry;
use crate::{Error, Wait};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How long the server may take to say whether a call waits for itself: at least, and at most.
const SOON: Duration = Duration::from_secs(1);
const SLOW: Duration = Duration::from_secs(5);

/// Called for each event.
pub(super) type Observer = Arc<dyn Fn(Event<'_>) + Send + Sync>;

/// The lease table, and the pool whose connections reach it.
///
/// A lease takes a connection only for each round trip. If a renewal or a release gets none from the pool soon, because bodies hold
/// them all, a connection is opened beside the pool and closed again; at most two at a time in a process.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, lease::{Leases, Store, Table}};
///
/// # async fn f<S: Store>(pool: S) -> Result<(), Error> {
/// let leases = Leases::new(pool).table(Table::new().held_by("worker-7")?);
/// for row in leases.list().await? {
///     println!("{} holds token {} for {:?}", row.holder, row.token, row.remaining);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Leases<S> {
    pub(super) table: Table,
    pub(super) store: S,
    pub(super) observer: Option<Observer>,
}

impl<S> std::fmt::Debug for Leases<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leases")
            .field("table", &self.table.name())
            .finish_non_exhaustive()
    }
}

impl<S: Store> Leases<S> {
    /// Leases in `public.advisory_lease`.
    pub fn new(store: S) -> Self {
        Self {
            table: Table::new(),
            store,
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
    /// As [`Table::acquire`], on a connection of the pool for each try. Then an `UPDATE` each third of the ttl, and one for
    /// the release.
    ///
    /// # Errors
    ///
    /// As [`Table::acquire`]. [`Error::Pool`] when the pool gives no connection or the server no answer within the request's wait; once
    /// a try has met a holder, it tries on to the end of the wait, which is [`Error::TimedOut`] then. [`Error::NoRuntime`] outside of
    /// a tokio runtime with a timer. [`Error::SelfDeadlock`] in debug builds, if the body that asks runs under the lease.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe in that nothing is left: what is granted to a dropped future is released.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::{Error, lease::{Leases, Request, Store}};
    ///
    /// # async fn f<S: Store>(leases: Leases<S>) -> Result<(), Error> {
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
        self.followed(request.into().with_origin())
    }

    pub(super) async fn followed(&self, request: Request) -> Result<Held, Error> {
        let mut telemetry = Telemetry::new(request.lock, "lease", "exclusive");
        match self.acquired(request).await {
            Ok(mut held) => {
                telemetry.record_acquired(held.lease().waited());
                held.telemetry = Some(telemetry);
                Ok(held)
            }
            Err(error) => {
                telemetry.record_refusal(&error);
                Err(error)
            }
        }
    }

    async fn acquired(&self, request: Request) -> Result<Held, Error> {
        request.check()?;
        let runtime = runtime(&request)?;
        let taken = running::asked(&request);
        let running = running::held_by_this_task(&request);
        if !running.is_empty() && Box::pin(self.holds_one(running, request.wait)).await {
            let lock = request.name();
            return Err(Error::SelfDeadlock { lock });
        }
        let (ready, granted) = oneshot::channel();
        let (finish, finished) = oneshot::channel();
        let (lock, max_hold, keep) = (request.name(), request.max_hold, request.keep);
        drop(runtime.spawn(keeper::run(self.clone(), request, ready, finished)));
        let Ok(granted) = granted.await else {
            let reason = "the runtime is shutting down";
            return Err(Error::NoRuntime { lock, reason });
        };
        Ok(Held {
            lease: granted?,
            finish: Some(finish),
            max_hold,
            keep,
            since: Instant::now(),
            telemetry: None,
            taken,
        })
    }

    /// Whether one of these is held in this table, and not in another one or another database. Without an answer, the call waits as
    /// any other.
    async fn holds_one(&self, running: Vec<Lease>, wait: Wait) -> bool {
        // Most often the wait would be in vain, so a slow server gets the time to say so.
        let limit = match wait {
            Wait::For(wait) => wait.clamp(SOON, SLOW),
            Wait::Session | Wait::Never | Wait::Forever => SLOW,
        };
        let asked = async {
            for lease in &running {
                if self.holds(lease).await.unwrap_or(false) {
                    return true;
                }
            }
            false
        };
        let asked = tokio::time::timeout(limit, asked).await;
        asked.unwrap_or(false)
    }

    /// [`Table::holds`], on a connection of the pool.
    ///
    /// # Errors
    ///
    /// As [`Table::holds`], and [`Error::Pool`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn holds(&self, lease: &Lease) -> Result<bool, Error> {
        self.store.holds(&self.table, lease).await
    }

    /// [`Table::list`], on a connection of the pool.
    ///
    /// # Errors
    ///
    /// As [`Table::list`], and [`Error::Pool`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn list(&self) -> Result<Vec<Row>, Error> {
        self.store.list(&self.table).await
    }

    pub(super) fn tell(&self, event: Event<'_>) {
        if let Some(observer) = &self.observer {
            // Its panic is its own: the lease is renewed and released all the same.
            let told = AssertUnwindSafe(|| observer(event));
            drop(catch_unwind(told));
        }
    }
}

/// The runtime that a lease is renewed on. Asked before anything is sent.
fn runtime(request: &Request) -> Result<Handle, Error> {
    let lock = request.name();
    let Ok(runtime) = Handle::try_current() else {
        let reason = "there is no tokio runtime";
        return Err(Error::NoRuntime { lock, reason });
    };
    // tokio says it in no other way.
    let timer = catch_unwind(|| drop(tokio::time::sleep_until(Instant::now())));
    if timer.is_err() {
        let reason =
            "the tokio runtime has no timer: call `enable_time` or `enable_all` on its builder";
        return Err(Error::NoRuntime { lock, reason });
    }
    Ok(runtime)
}
