//! The same operations with each bug instead of our lock. Do not copy anything from here.

mod job;
mod lease;
mod migration;

use crate::bug::Bug;
use crate::clock::pass;
use crate::critical_section::{self, Booked, CriticalSection, Manner};
use crate::operation_kind::PERMITS;
use diesel::QueryResult;
use diesel::dsl::sql;
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Bool};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
pub(crate) use job::{Hand, HandClaim, claim_by_hand};
pub(crate) use lease::{once, run_leased, term, write};
pub(crate) use migration::migrate;
use std::time::Duration;

/// Books a slot under a lock written by hand.
pub(crate) async fn book(
    bug: Bug,
    conn: &mut AsyncPgConnection,
    section: &CriticalSection<'_>,
) -> Booked {
    let slot = section.number;
    let lock = format!("SELECT pg_advisory_xact_lock({slot})");
    match bug {
        Bug::LockOut => {
            conn.transaction(async |conn| section.book(conn).await)
                .await
        }
        Bug::UnlockBeforeCommit => {
            let booked = conn.transaction(async |conn| {
                let lock = format!("SELECT pg_advisory_lock({slot})");
                conn.batch_execute(&lock).await?;
                let booked = section.book(conn).await?;
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
                let query = sql::<(BigInt, BigInt)>(&text);
                let (entered, taken): (i64, i64) = query.get_result(conn).await?;
                section.write(conn, entered, taken == 0).await
            });
            booked.await
        }
        Bug::PollInSnapshot => {
            let mut transaction = conn.build_transaction().repeatable_read();
            let booked = transaction.run(async |conn| {
                while !is_locked(conn, "pg_try_advisory_xact_lock", slot).await? {
                    pass(Duration::from_millis(2)).await;
                }
                section.book(conn).await
            });
            booked.await
        }
        Bug::CountedPermits => {
            let booked = conn.transaction(async |conn| {
                let holders: i64 = sql::<BigInt>(HOLDERS).get_result(conn).await?;
                if usize::try_from(holders).unwrap_or(0) >= PERMITS {
                    return Err(DieselError::NotFound.into());
                }
                let lock = format!("SELECT pg_advisory_xact_lock_shared({slot})");
                conn.batch_execute(&lock).await?;
                section.enter_room(conn).await
            });
            booked.await
        }
        // The early return of a `?` after the body.
        Bug::EarlyReturn => {
            if !is_locked(conn, "pg_try_advisory_lock", slot).await? {
                return Err(DieselError::NotFound.into());
            }
            let booked = conn
                .transaction(async |conn| section.book(conn).await)
                .await?;
            let unlock = format!("SELECT pg_advisory_unlock({slot})");
            conn.batch_execute(&unlock).await?;
            Ok(booked)
        }
        // In plain SQL, as in a helper function: nothing ends the transaction when the call is
        // dropped, and no pool knows about it.
        Bug::GuardOff => {
            conn.batch_execute("BEGIN").await?;
            let booked = async {
                conn.batch_execute(&lock).await?;
                section.book(conn).await
            };
            let booked = booked.await;
            let end = if booked.is_ok() { "COMMIT" } else { "ROLLBACK" };
            conn.batch_execute(end).await?;
            booked
        }
        // Diesel's transaction, with a body that sometimes returns `Ok` after a failed statement.
        Bug::SwallowedError => {
            let booked = conn.transaction(async |conn| {
                conn.batch_execute(&lock).await?;
                let booked = section.book(conn).await?;
                if section.manner == Manner::Pauses {
                    drop(conn.batch_execute("SELECT 1/0").await);
                }
                Ok(booked)
            });
            booked.await
        }
        // The bugs of leases, leaders, migrations and jobs use our locks for slots.
        _ => critical_section::wait(conn, slot, section).await,
    }
}

async fn is_locked(conn: &mut AsyncPgConnection, function: &str, slot: i64) -> QueryResult<bool> {
    let locked = format!("SELECT {function}({slot})");
    sql::<Bool>(&locked).get_result(conn).await
}

const HOLDERS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";

/// The statement waits for the lock, and counts rows that existed before the wait.
const LOCK_AND_LOOK: &str = "WITH locked AS MATERIALIZED (SELECT pg_catalog.pg_advisory_xact_lock($slot)) \
     SELECT stress.tick() AS entered, \
     (SELECT count(*) FROM locked, stress.section WHERE slot = $slot AND booked) AS taken";
