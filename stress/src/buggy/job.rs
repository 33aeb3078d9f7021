//! Jobs that are claimed by hand.

use crate::absence::TTL;
use crate::bug::Bug;
use crate::clock::pass;
use crate::job::{ATTEMPTS, Job};
use crate::operation_kind::LIMIT;
use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::task::JoinHandle;

pub(crate) struct HandClaim {
    pub(crate) job: Job,
    until: Arc<Mutex<Instant>>,
    renewal: Option<JoinHandle<()>>,
    bug: Bug,
}

/// What a process keeps with a bug.
pub(crate) struct Hand {
    url: String,
    /// For renewals.
    one: Arc<tokio::sync::Mutex<Option<AsyncPgConnection>>>,
    /// For claims that are prepared once.
    prepared: tokio::sync::Mutex<Option<AsyncPgConnection>>,
}

impl Hand {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            one: Arc::default(),
            prepared: tokio::sync::Mutex::default(),
        }
    }

    /// Claims with a statement that is prepared once, and never again.
    async fn claim_prepared(&self, claim: &str) -> QueryResult<Vec<Job>> {
        let mut prepared = self.prepared.lock().await;
        if prepared.is_none() {
            let Ok(mut conn) = AsyncPgConnection::establish(&self.url).await else {
                return Ok(Vec::new());
            };
            conn.batch_execute(&format!("PREPARE claim AS {claim}"))
                .await?;
            *prepared = Some(conn);
        }
        let Some(conn) = prepared.as_mut() else {
            return Ok(Vec::new());
        };
        conn.transaction(async |conn| {
            conn.batch_execute(LOCK).await?;
            diesel::sql_query("EXECUTE claim").get_results(conn).await
        })
        .await
    }

    /// Renews a claim on a task of the application's runtime: on a new connection each time, or on
    /// one for all.
    fn renew(&self, bug: Bug, job: i64, until: &Arc<Mutex<Instant>>) -> JoinHandle<()> {
        let (url, one, until) = (self.url.clone(), Arc::clone(&self.one), Arc::clone(until));
        let ttl = TTL.as_millis();
        let renew = format!(
            "UPDATE stress.job SET locked_until = clock_timestamp() + interval '{ttl} ms' \
             WHERE id = {job} AND locked_until > clock_timestamp()"
        );
        tokio::spawn(async move {
            loop {
                pass(TTL / 4).await;
                let since = Instant::now();
                let mut one = one.lock().await;
                if one.is_none() || bug == Bug::TaskRenewal {
                    *one = AsyncPgConnection::establish(&url).await.ok();
                }
                if let Some(conn) = one.as_mut() {
                    let renewed = diesel::sql_query(&renew).execute(conn).await;
                    if renewed == Ok(1) {
                        *until.lock().unwrap_or_else(PoisonError::into_inner) = since + TTL;
                    }
                }
            }
        })
    }
}

impl Drop for HandClaim {
    fn drop(&mut self) {
        if let Some(renewal) = &self.renewal {
            renewal.abort();
        }
    }
}

/// Makes claims follow each other, so that the limit is exact.
const LOCK: &str = "SELECT pg_advisory_xact_lock(9)";

/// Claims the first job, or with `SameNeighbours` some that its worker runs one after the other.
/// With most bugs a lock makes the claims follow each other, so that the limit is exact.
pub(crate) async fn claim_by_hand(
    bug: Bug,
    conn: &mut AsyncPgConnection,
    hand: &Hand,
) -> QueryResult<Vec<HandClaim>> {
    let since = Instant::now();
    let ttl = TTL.as_millis();
    let now = "clock_timestamp()";
    let is_free = match bug {
        Bug::EndlessClaim => "job.locked_until IS NULL".to_owned(),
        _ => format!("(job.locked_until IS NULL OR job.locked_until <= {now})"),
    };
    let counted = i32::from(bug != Bug::UncountedAttempt);
    let (first, batch) = match bug {
        Bug::SameNeighbours => ("locked_until NULLS LAST, ", 4),
        _ => ("", 1),
    };
    let end = format!(
        "UPDATE stress.job SET failed_at = {now}, locked_until = NULL, locked_by = NULL \
         WHERE completed_at IS NULL AND failed_at IS NULL AND attempts >= {ATTEMPTS} AND {is_free}"
    );
    let claim = format!(
        "WITH first AS (SELECT id FROM stress.job AS job WHERE completed_at IS NULL AND failed_at IS NULL AND run_at <= {now} \
         AND attempts < {ATTEMPTS} AND {is_free} AND (SELECT count(*) FROM stress.job AS other \
         WHERE other.tenant = job.tenant AND other.locked_until > {now}) < {LIMIT} \
         ORDER BY {first}run_at, id LIMIT {batch} FOR UPDATE SKIP LOCKED) \
         UPDATE stress.job SET locked_until = {now} + interval '{ttl} ms', locked_by = gen_random_uuid()::text, \
         attempts = attempts + {counted} FROM first WHERE job.id = first.id RETURNING job.id, tenant, fails, label, attempts"
    );
    if bug == Bug::KeptPlan {
        let jobs = hand.claim_prepared(&claim).await?;
        return Ok(HandClaim::all(bug, jobs, since, hand));
    }
    let jobs: QueryResult<Vec<Job>> = conn
        .transaction(async |conn| {
            if bug != Bug::CountedLimit {
                conn.batch_execute(LOCK).await?;
            }
            conn.batch_execute(&end).await?;
            diesel::sql_query(&claim).get_results(conn).await
        })
        .await;
    let mut jobs = jobs?;
    jobs.sort_unstable_by_key(|job| job.id);
    Ok(HandClaim::all(bug, jobs, since, hand))
}

impl HandClaim {
    fn all(bug: Bug, jobs: Vec<Job>, since: Instant, hand: &Hand) -> Vec<Self> {
        let claims = jobs.into_iter();
        claims.map(|job| Self::new(bug, job, since, hand)).collect()
    }

    fn new(bug: Bug, job: Job, since: Instant, hand: &Hand) -> Self {
        let until = Arc::new(Mutex::new(since + TTL));
        let is_renewed = matches!(bug, Bug::TaskRenewal | Bug::OneConnection);
        let renewal = is_renewed.then(|| hand.renew(bug, job.id, &until));
        Self {
            job,
            until,
            renewal,
            bug,
        }
    }

    /// Whether the claim lasts, as far as its worker knows.
    pub(crate) fn is_current(&self) -> bool {
        Instant::now() < *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
        let Job { id, attempts, .. } = &self.job;
        let attempts = *attempts;
        // It dies once, so that the job can still end.
        if self.is_dead() && attempts == i32::from(self.bug != Bug::UncountedAttempt) && !is_done {
            return Ok(());
        }
        let counted = i32::from(self.bug == Bug::UncountedAttempt);
        let text = match self.bug {
            Bug::RefusedText => "error_message = 'planned', ",
            _ => "",
        };
        let end = if is_done {
            "completed_at = clock_timestamp()".to_owned()
        } else {
            format!(
                "attempts = attempts + {counted}, run_at = clock_timestamp() + interval '20 ms', \
                 {text}failed_at = CASE WHEN attempts + {counted} >= {ATTEMPTS} THEN clock_timestamp() END"
            )
        };
        let end = format!(
            "UPDATE stress.job SET {end}, locked_until = NULL, locked_by = NULL \
             WHERE id = {id} AND completed_at IS NULL AND failed_at IS NULL"
        );
        conn.batch_execute(&end).await
    }
}
