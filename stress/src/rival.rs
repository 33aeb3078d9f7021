//! How are the same visits made with each bug in place of our lock? Nothing here is to be imitated.

use crate::bug::Bug;
use crate::clock::pass;
use crate::job::{Job, TTL};
use crate::visit::{self, Booked, Manner, Visit};
use advisory_runtime::Error;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Bool};
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::time::Instant;

/// A visit of a slot by hand.
pub(crate) async fn book(bug: Bug, conn: &mut AsyncPgConnection, visit: &Visit<'_>) -> Booked {
    let slot = visit.slot;
    let lock = format!("SELECT pg_advisory_xact_lock({slot})");
    match bug {
        Bug::LockOut => conn.transaction(async |conn| visit.book(conn).await).await,
        Bug::UnlockBeforeCommit => {
            let booked = conn.transaction(async |conn| {
                let lock = format!("SELECT pg_advisory_lock({slot})");
                conn.batch_execute(&lock).await?;
                let booked = visit.book(conn).await?;
                let unlock = format!("SELECT pg_advisory_unlock({slot})");
                conn.batch_execute(&unlock).await?;
                Ok(booked)
            });
            let booked = booked.await;
            if booked.is_err() {
                drop(conn.batch_execute("SELECT pg_advisory_unlock_all()").await);
            }
            booked
        }
        Bug::OneStatement => {
            let booked = conn.transaction(async |conn| {
                let text = LOCK_AND_LOOK.replace("$slot", &slot.to_string());
                let seen: Seen = diesel::sql_query(text).get_result(conn).await?;
                visit.write(conn, seen.entered, seen.taken == 0).await
            });
            booked.await
        }
        // Of leases; visits are ours then.
        Bug::Now => visit::wait(conn, slot, visit).await,
        // In plain SQL, as through a helper: nobody ends the transaction where the call is dropped, and no pool knows of it.
        Bug::GuardOff => {
            conn.batch_execute("BEGIN").await?;
            let booked = async {
                conn.batch_execute(&lock).await?;
                visit.book(conn).await
            };
            let booked = booked.await;
            let end = if booked.is_ok() { "COMMIT" } else { "ROLLBACK" };
            conn.batch_execute(end).await?;
            booked
        }
        // Diesel's transaction, with a body that returns `Ok` over a failed statement now and then.
        Bug::SwallowedError => {
            let booked = conn.transaction(async |conn| {
                conn.batch_execute(&lock).await?;
                let booked = visit.book(conn).await?;
                if visit.manner == Manner::Thinks {
                    drop(conn.batch_execute("SELECT 1/0").await);
                }
                Ok(booked)
            });
            booked.await
        }
    }
}

/// The lock is waited for inside the statement, and what is counted was there before the wait.
const LOCK_AND_LOOK: &str = "WITH locked AS MATERIALIZED (SELECT pg_catalog.pg_advisory_xact_lock($slot)) \
     SELECT stress.tick() AS entered, \
     (SELECT count(*) FROM locked, stress.visit WHERE slot = $slot AND booked) AS taken";

#[derive(QueryableByName)]
struct Seen {
    #[diesel(sql_type = BigInt)]
    entered: i64,
    #[diesel(sql_type = BigInt)]
    taken: i64,
}

/// A lease by hand: the row is locked, waited for, and written in one transaction, whose `now()` is older than the wait.
pub(crate) async fn job(pool: &Pool<AsyncPgConnection>, job: &Job<'_>) -> Result<bool, Error> {
    let mut conn = pool
        .get()
        .await
        .map_err(|error| Error::Pool(Box::new(error)))?;
    let key = format!("sha256(convert_to('job:{}', 'UTF8'))", job.number);
    let granted = conn.transaction(async |conn| {
        let insert = format!(
            "INSERT INTO public.advisory_lease (key_hash, token, grant_id, holder, acquired_at, expires_at) \
             VALUES ({key}, 1, 0, '', now(), now()) ON CONFLICT DO NOTHING"
        );
        conn.batch_execute(&insert).await?;
        let look = format!(
            "WITH locked AS MATERIALIZED \
             (SELECT token, expires_at FROM public.advisory_lease WHERE key_hash = {key} FOR UPDATE) \
             SELECT token, expires_at <= clock_timestamp() AS is_free FROM locked"
        );
        let row: Row = diesel::sql_query(look).get_result(conn).await?;
        if !row.is_free {
            return Ok::<_, DieselError>(None);
        }
        let ttl = TTL.as_millis();
        let take = format!(
            "UPDATE public.advisory_lease SET token = token + 1, expires_at = now() + interval '{ttl} ms' \
             WHERE key_hash = {key}"
        );
        conn.batch_execute(&take).await?;
        Ok(Some(row.token + 1))
    });
    let Some(token) = granted.await? else {
        return Ok(false);
    };
    // It was granted so much time, as it believes.
    let since = Instant::now();
    let is_slow = job.thought >= TTL / 2;
    job.stay(&mut conn, token, || since.elapsed() < TTL).await?;
    let written = conn.transaction(async |conn| {
        let fence = format!(
            "SELECT token, false AS is_free FROM public.advisory_lease \
             WHERE key_hash = {key} AND token = {token} FOR SHARE"
        );
        let current: Vec<Row> = diesel::sql_query(fence).get_results(conn).await?;
        if current.is_empty() {
            return Err(DieselError::NotFound);
        }
        job.write(conn, token).await?;
        if is_slow {
            // Whoever asks meanwhile waits for the row, and for longer than a lease lasts.
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
    Ok(true)
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    token: i64,
    #[diesel(sql_type = Bool)]
    is_free: bool,
}
