//! Leases by hand, and incorrect uses of our leases.

use crate::absence::TTL;
use crate::bug::Bug;
use crate::clock::pass;
use crate::critical_section::connection;
use crate::leased_work::LeasedWork;
use advisory_runtime::lease::{Error, Lease, Leases, Request, Table};
use advisory_runtime::{Wait, advisory_lease};
use diesel::dsl::sql;
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Bool};
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::future::pending;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A lease by hand: the row is locked, waited for, and written in one transaction, whose `now()` is
/// older than the wait.
pub(crate) async fn run_leased(
    bug: Bug,
    pool: &Pool<AsyncPgConnection>,
    work: &LeasedWork<'_>,
) -> Result<bool, Error> {
    let now = match bug {
        Bug::Now => "now()",
        _ => "clock_timestamp()",
    };
    let mut conn = connection(pool).await?;
    let key = format!("sha256(convert_to('leased:{}', 'UTF8'))", work.number);
    let granted = conn.transaction(async |conn| {
        let insert = format!(
            "INSERT INTO public.advisory_lease (key_hash, token, grant_id, holder, acquired_at, expires_at) \
             VALUES ({key}, 1, 0, '', {now}, {now}) ON CONFLICT DO NOTHING"
        );
        conn.batch_execute(&insert).await?;
        let look = format!(
            "WITH locked AS MATERIALIZED \
             (SELECT token, expires_at FROM public.advisory_lease WHERE key_hash = {key} FOR UPDATE) \
             SELECT token, expires_at <= clock_timestamp() FROM locked"
        );
        let look = sql::<(BigInt, Bool)>(&look);
        let (token, is_free): (i64, bool) = look.get_result(conn).await?;
        if !is_free {
            return Ok::<_, DieselError>(None);
        }
        let ttl = TTL.as_millis();
        let take = format!(
            "UPDATE public.advisory_lease SET token = token + 1, expires_at = {now} + interval '{ttl} ms' \
             WHERE key_hash = {key}"
        );
        conn.batch_execute(&take).await?;
        Ok(Some(token + 1))
    });
    let Some(token) = granted.await? else {
        return Ok(false);
    };
    // The holder believes that it has this much time.
    let since = Instant::now();
    let is_slow = work.pause >= TTL / 2;
    work.stay(&mut conn, token, || since.elapsed() < TTL)
        .await?;
    let written = conn.transaction(async |conn| {
        let fence = format!(
            "SELECT token FROM public.advisory_lease \
             WHERE key_hash = {key} AND token = {token} FOR SHARE"
        );
        if diesel::sql_query(fence).execute(conn).await? == 0 {
            return Err(DieselError::NotFound);
        }
        work.write(conn, token).await?;
        if is_slow {
            // Others wait for the row meanwhile, longer than a lease lasts.
            pass(TTL + TTL / 4).await;
        }
        Ok(())
    });
    written.await?;
    let release = format!(
        "UPDATE public.advisory_lease SET expires_at = clock_timestamp() \
         WHERE key_hash = {key} AND token = {token} AND expires_at > clock_timestamp()"
    );
    conn.batch_execute(&release).await?;
    if bug == Bug::SweptToken {
        let sweep = "DELETE FROM public.advisory_lease WHERE expires_at <= clock_timestamp()";
        conn.batch_execute(sweep).await?;
    }
    Ok(true)
}

/// Work that must be done once: it is committed, and marked as done by a later commit. Sometimes
/// the call is dropped in between.
#[advisory_lease(key = "once:<number>", name = "once", pool = leases, ttl = TTL, keep = "1h", wait = "never", handle = lease)]
pub(crate) async fn once(
    leases: &Leases<Pool<AsyncPgConnection>>,
    pool: &Pool<AsyncPgConnection>,
    number: i64,
    work: &LeasedWork<'_>,
) -> Result<(), Error> {
    let mut conn = connection(pool).await?;
    work.has_ended.store(true, Ordering::Relaxed);
    work.complete(&mut conn).await?;
    if work.is_dropped {
        work.hangs.notify_one();
        pending::<()>().await;
    }
    conn.transaction(async |conn| lease.complete(conn).await)
        .await
}

/// A leader's lease without renewal.
pub(crate) async fn term(pool: &Pool<AsyncPgConnection>, number: i64) -> Result<Lease, Error> {
    let request = Request::text(format!("leased:{number}"));
    let request = request.ttl(TTL).wait(Wait::Never);
    let held = Leases::new(pool.clone()).acquire(request.clone()).await?;
    let (token, mut conn) = (held.lease().token(), connection(pool).await?);
    let term = Table::new().take_over(&mut conn, request, token).await?;
    term.ok_or(Error::Database(DieselError::NotFound))
}

/// A write without the fence.
pub(crate) async fn write(
    pool: &Pool<AsyncPgConnection>,
    term: &Lease,
    work: &LeasedWork<'_>,
) -> Result<bool, Error> {
    let mut conn = connection(pool).await?;
    work.write(&mut conn, term.token().get()).await?;
    Ok(true)
}
