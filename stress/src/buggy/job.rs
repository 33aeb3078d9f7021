//! Jobs that are claimed by hand.

use crate::bug::Bug;
use crate::job::{ATTEMPTS, Job};
use crate::leased_work::TTL;
use crate::operation_kind::LIMIT;
use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::time::Instant;

pub(crate) struct HandClaim {
    pub(crate) job: Job,
    pub(crate) since: Instant,
    bug: Bug,
}

/// Claims the first job. With most bugs a lock makes the claims follow each other, so that the limit is exact.
pub(crate) async fn claim_by_hand(
    bug: Bug,
    conn: &mut AsyncPgConnection,
) -> QueryResult<Option<HandClaim>> {
    let since = Instant::now();
    let ttl = TTL.as_millis();
    let now = "clock_timestamp()";
    let is_free = match bug {
        Bug::EndlessClaim => "job.locked_until IS NULL".to_owned(),
        _ => format!("(job.locked_until IS NULL OR job.locked_until <= {now})"),
    };
    let counted = i32::from(bug != Bug::UncountedAttempt);
    let end = format!(
        "UPDATE stress.job SET failed_at = {now}, locked_until = NULL, locked_by = NULL \
         WHERE completed_at IS NULL AND failed_at IS NULL AND attempts >= {ATTEMPTS} AND {is_free}"
    );
    let claim = format!(
        "WITH first AS (SELECT id FROM stress.job AS job WHERE completed_at IS NULL AND failed_at IS NULL AND run_at <= {now} \
         AND attempts < {ATTEMPTS} AND {is_free} AND (SELECT count(*) FROM stress.job AS other \
         WHERE other.tenant = job.tenant AND other.locked_until > {now}) < {LIMIT} \
         ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) \
         UPDATE stress.job SET locked_until = {now} + interval '{ttl} ms', locked_by = gen_random_uuid()::text, \
         attempts = attempts + {counted} FROM first WHERE job.id = first.id RETURNING job.id, tenant, fails, attempts"
    );
    let job: QueryResult<Option<Job>> = conn
        .transaction(async |conn| {
            if bug != Bug::CountedLimit {
                conn.batch_execute("SELECT pg_advisory_xact_lock(9)")
                    .await?;
            }
            conn.batch_execute(&end).await?;
            diesel::sql_query(&claim).get_result(conn).await.optional()
        })
        .await;
    Ok(job?.map(|job| HandClaim { job, since, bug }))
}

impl HandClaim {
    /// Whether some works take longer than the claim lasts, which nobody renews.
    pub(crate) fn outlives(&self) -> bool {
        self.bug == Bug::LateCompletion
    }

    /// Whether this worker dies, as some do.
    fn is_dead(&self) -> bool {
        matches!(self.bug, Bug::UncountedAttempt | Bug::EndlessClaim) && self.job.id % 4 == 0
    }

    /// Completes the job, whoever has claimed it.
    pub(crate) async fn complete(&self, conn: &mut AsyncPgConnection) -> QueryResult<()> {
        let complete = format!(
            "UPDATE stress.job SET completed_at = clock_timestamp(), locked_until = NULL, locked_by = NULL WHERE id = {}",
            self.job.id
        );
        conn.batch_execute(&complete).await
    }

    /// Ends the claim, unless its worker has died or has completed the job.
    pub(crate) async fn end(&self, conn: &mut AsyncPgConnection, is_done: bool) -> QueryResult<()> {
        let Job { id, attempts, .. } = self.job;
        // It dies once, so that the job can still end.
        if self.is_dead() && attempts == i32::from(self.bug != Bug::UncountedAttempt) && !is_done {
            return Ok(());
        }
        let counted = i32::from(self.bug == Bug::UncountedAttempt);
        let end = if is_done {
            "completed_at = clock_timestamp()".to_owned()
        } else {
            format!(
                "attempts = attempts + {counted}, run_at = clock_timestamp() + interval '20 ms', \
                 failed_at = CASE WHEN attempts + {counted} >= {ATTEMPTS} THEN clock_timestamp() END"
            )
        };
        let end = format!(
            "UPDATE stress.job SET {end}, locked_until = NULL, locked_by = NULL \
             WHERE id = {id} AND completed_at IS NULL AND failed_at IS NULL"
        );
        conn.batch_execute(&end).await
    }
}
