//! The work under a lease: ticks, which show when its holder was inside, and a write under its
//! fencing token.

use crate::absence::{Absence, LINGER, TTL};
use crate::clock::pass;
use crate::critical_section::{connection, tick};
use crate::history::{Claim, Log};
use advisory_runtime::advisory_lease;
use advisory_runtime::lease::{Error, Lease, Leases};
use diesel::prelude::*;
use diesel_async::pooled_connection::PoolableConnection;
use diesel_async::pooled_connection::deadpool::{Object, Pool};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

diesel::table! {
    stress.written (op) {
        lease -> BigInt,
        token -> BigInt,
        op -> BigInt,
        tick -> BigInt,
    }
}

/// One operation under a lease.
pub(crate) struct LeasedWork<'w> {
    pub(crate) op: i64,
    pub(crate) number: i64,
    /// How long the holder pauses between its first tick and its write.
    pub(crate) pause: Duration,
    pub(crate) log: &'w Log,
    pub(crate) absence: Option<Absence>,
    /// With a bug: the call must be dropped during its work, and has reached that point.
    pub(crate) is_dropped: bool,
    pub(crate) hangs: Notify,
    /// Whether the body has reached the commit of its write.
    pub(crate) has_ended: AtomicBool,
}

impl LeasedWork<'_> {
    pub(crate) async fn run(
        &self,
        pool: &Pool<AsyncPgConnection>,
        lease: &Lease,
    ) -> Result<(), Error> {
        if let Some(absence) = self.absence {
            absence.run(self.log, self.op, || lease.is_held()).await;
        }
        let mut pooled = Pooled(Some(connection(pool).await?));
        let Some(conn) = &mut pooled.0 else {
            return Ok(());
        };
        let token = lease.token().get();
        self.stay(conn, token, || lease.is_held()).await?;
        let written = conn.transaction(async |conn| {
            lease.fence(conn).await?;
            self.write(conn, token).await.map_err(Error::Database)
        });
        written.await
    }

    /// Pauses between two ticks. A holder that still holds its lease after the second tick held it
    /// up to that tick, even if it was stopped in between.
    pub(crate) async fn stay(
        &self,
        conn: &mut AsyncPgConnection,
        token: i64,
        is_held: impl Fn() -> bool,
    ) -> QueryResult<()> {
        let from = diesel::select(tick()).get_result(conn).await?;
        pass(self.pause).await;
        let to = diesel::select(tick()).get_result(conn).await?;
        if is_held() {
            let lease = self.number;
            let claim = Claim {
                lease,
                token,
                from,
                to,
            };
            self.log.claimed(self.op, claim);
        }
        Ok(())
    }

    /// Does work that must be done once.
    pub(crate) async fn complete(&self, conn: &mut AsyncPgConnection) -> QueryResult<()> {
        let (number, op) = (self.number, self.op);
        let insert = format!("INSERT INTO stress.completed VALUES ({number}, {op})");
        conn.batch_execute(&insert).await
    }

    /// Writes in a transaction that keeps the token current.
    pub(crate) async fn write(&self, conn: &mut AsyncPgConnection, token: i64) -> QueryResult<()> {
        let row = (
            written::lease.eq(self.number),
            written::token.eq(token),
            written::op.eq(self.op),
        );
        let insert = diesel::insert_into(written::table).values(row);
        insert.execute(conn).await?;
        self.has_ended.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// Functions that work under a lease, with these arguments.
macro_rules! leased {
    ($number:ident $($(#[$doc:meta])* $name:ident($($argument:tt)*);)*) => { $(
        $(#[$doc])*
        #[advisory_lease(key = "leased:<number>", name = "leased", pool = leases, handle = lease, $($argument)*)]
        pub(crate) async fn $name(
            leases: &Leases<Pool<AsyncPgConnection>>,
            pool: &Pool<AsyncPgConnection>,
            $number: i64,
            work: &LeasedWork<'_>,
        ) -> Result<(), Error> {
            work.run(pool, &lease).await
        }
    )* };
}

leased! { number
    never_wait(ttl = TTL, wait = "never");
    wait(ttl = TTL, wait = "2s");
    /// Lasts long enough for the keeper to open a connection before it expires, on a busy machine
    /// too.
    linger(ttl = LINGER, wait = "2s");
}

/// Work that is done once, even if the process dies: its mark and the end of the lease are in one
/// commit.
#[advisory_lease(key = "once:<number>", name = "once", pool = leases, ttl = TTL, keep = "1h", wait = "never", handle = lease)]
pub(crate) async fn once(
    leases: &Leases<Pool<AsyncPgConnection>>,
    pool: &Pool<AsyncPgConnection>,
    number: i64,
    work: &LeasedWork<'_>,
) -> Result<(), Error> {
    let mut pooled = Pooled(Some(connection(pool).await?));
    let Some(conn) = &mut pooled.0 else {
        return Ok(());
    };
    let done = conn.transaction(async |conn| {
        work.complete(conn).await?;
        pass(work.pause).await;
        lease.complete(conn).await?;
        work.has_ended.store(true, Ordering::Relaxed);
        Ok(())
    });
    done.await
}

/// A connection that is closed when its body is dropped inside the transaction, which is Diesel's
/// own. deadpool checks a connection only when it hands it out again; until then the session would
/// stay idle in transaction.
struct Pooled(Option<Object<AsyncPgConnection>>);

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(mut conn) = self.0.take()
            && conn.is_broken()
        {
            drop(Object::take(conn));
        }
    }
}
