//! Acquires leases that are renewed and released in the background.

use super::rows::Alive;
use super::store::Store;
use super::{Error, Lease, LeaseGuard, Request, Row, Table, body_leases};
use crate::Wait;
use crate::driver::timeout;
use crate::observe::Telemetry;
use crate::rows::{self, Observer, number_of_pool};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long the server may take to answer whether a call waits for itself.
const SHORTEST_CHECK: Duration = Duration::from_secs(1);
const LONGEST_CHECK: Duration = Duration::from_secs(5);

/// An event of a lease, for [`Leases::observe`].
///
/// ```
/// use advisory_runtime::lease::Event;
///
/// fn log(event: Event<'_>) {
///     match event {
///         Event::Lost(lease) => eprintln!("token {} is lost", lease.token()),
///         Event::RenewalFailed(lease, error) => eprintln!("token {}: {error}", lease.token()),
///         Event::Ended { row, held, .. } => println!("token {}: held for {held:?}", row.token()),
///         _ => {}
///     }
/// }
/// ```
pub type Event<'e> = rows::Event<'e, Lease, Error>;

/// A lease table, and the pool whose connections reach it.
///
/// A lease needs a connection only for its round trips. If the pool is exhausted or its connections
/// do not answer, the renewals of this pool and table share one connection outside the pool, and
/// the releases another one.
///
/// ```
/// # #[cfg(feature = "bb8")]
/// # mod example {
/// use advisory_runtime::lease::{Error, Leases, Table};
/// use diesel_async::{AsyncPgConnection, pooled_connection::bb8::Pool};
///
/// fn leases(pool: Pool<AsyncPgConnection>) -> Result<Leases<Pool<AsyncPgConnection>>, Error> {
///     let table = Table::new().held_by("booking-service")?;
///     Ok(Leases::new(pool).table(table).observe(|event| eprintln!("{event:?}")))
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Leases<S> {
    pub(super) table: Table,
    pub(super) store: S,
    pub(super) observer: Option<Observer<Lease, Error>>,
    /// A number for stores that have none of their own.
    pub(super) id: usize,
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
            id: number_of_pool(),
        }
    }

    /// Leases in this table.
    #[must_use]
    pub fn table(mut self, table: Table) -> Self {
        self.table = table;
        self
    }

    /// Calls this for each event, on the task where it happens, so it must not block. A panic is
    /// caught and discarded.
    #[must_use]
    pub fn observe(mut self, observer: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Acquires a lease, and renews it in the background until it is finished or dropped.
    ///
    /// # Locking
    ///
    /// One statement, and one round trip, per try, on a connection of the pool: an
    /// `INSERT … ON CONFLICT DO UPDATE`. Of the tries that insert a row, one in sixteen also
    /// removes expired rows. A try takes a transaction-level advisory lock on the key without
    /// waiting. If the request has a wait, it tries again, first after 10 ms and at last every half
    /// second. If the expired row is locked or is being removed, a second statement waits for the
    /// removal. `synchronous_commit` is forced.
    ///
    /// The first grant on a server and the first after a failover need two more messages, which
    /// advance the sequence to the server's timeline, and a second try. So does a grant whose key
    /// has a token that the sequence has not reached. These messages lock the table
    /// (`SHARE ROW EXCLUSIVE`), and wait at most a second for that.
    ///
    /// One `UPDATE` renews all leases of the pool and the table that are due. It skips a locked
    /// row, which is then tried again. An `UPDATE` releases the lease.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`], [`Error::Invalid`], [`Error::MissingTable`] (42P01),
    /// [`Error::MissingRights`] (42501), [`Error::Standby`], [`Error::BrokenConnection`],
    /// [`Error::Database`]. [`Error::Pool`] if the pool gives no connection or the server does not
    /// answer within the request's wait; but [`Error::Held`] once a try has found the key held.
    /// [`Error::Done`] at once, whatever the wait. [`Error::NoRuntime`] outside of a tokio runtime
    /// with a timer. [`Error::SelfDeadlock`] in debug builds, if the call runs under the same
    /// lease.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a lease that is granted to a dropped future is released.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::lease::{Error, Leases, Request, Store};
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
    ) -> impl Future<Output = Result<LeaseGuard, Error>> {
        self.acquire_recorded(request.into().with_origin(), None)
    }

    /// `alive` is dropped when the lease has ended, also if this future was dropped.
    pub(crate) async fn acquire_recorded(
        &self,
        request: Request,
        alive: Alive,
    ) -> Result<LeaseGuard, Error> {
        let mut telemetry = Telemetry::new(request.lock, "lease", "exclusive", false);
        match self.acquire_inner(request, alive).await {
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

    async fn acquire_inner(&self, request: Request, alive: Alive) -> Result<LeaseGuard, Error> {
        request.check()?;
        let lock_set = body_leases::record_request(&request);
        let held = body_leases::held_by_this_task(&request);
        if !held.is_empty() && Box::pin(self.holds_any(held, request.wait)).await {
            let lock = request.name();
            return Err(Error::SelfDeadlock { lock });
        }
        let max_hold = request.max_hold;
        let (lease, renewal) = self.acquire_in_a_task(request, alive).await?;
        Ok(LeaseGuard {
            lease,
            renewal: Some(renewal),
            max_hold,
            since: Instant::now(),
            telemetry: None,
            lock_set,
        })
    }

    /// Returns `true` if any of these is held in this table. Leases of the same key can be in
    /// another table or another database.
    async fn holds_any(&self, leases: Vec<Lease>, wait: Wait) -> bool {
        let limit = match wait {
            Wait::For(wait) => wait.clamp(SHORTEST_CHECK, LONGEST_CHECK),
            Wait::Session | Wait::Never | Wait::Forever => LONGEST_CHECK,
        };
        let asked = async {
            for lease in &leases {
                if self.holds(lease).await.unwrap_or(false) {
                    return true;
                }
            }
            false
        };
        timeout(limit, asked).await.unwrap_or(false)
    }

    /// Asks the server whether the lease is held. The answer may be outdated at once: to write
    /// under it use [`Lease::fence`].
    ///
    /// # Locking
    ///
    /// None: `SELECT … WHERE expires_at > clock_timestamp()`, on a connection of the pool.
    ///
    /// # Errors
    ///
    /// Those of [`Table`], and [`Error::Pool`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn holds(&self, lease: &Lease) -> Result<bool, Error> {
        self.store.holds(&self.table, lease).await
    }

    /// [`Table::list`], on a connection of the pool.
    pub async fn list(&self) -> Result<Vec<Row>, Error> {
        self.store.list(&self.table).await
    }

    pub(super) fn notify(&self, event: Event<'_>) {
        rows::tell(self.observer.as_ref(), event);
    }
}
