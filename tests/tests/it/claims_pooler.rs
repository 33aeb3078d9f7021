//! Claims behind a pooler in transaction mode that tracks prepared statements, which Diesel's own
//! queries need.

use crate::sync_job::{SyncJob, database, next, state_of};
use advisory_runtime::Pool as _;
use advisory_runtime::claim::{self, End, Error, State};
use advisory_tests::futures::spawn;
use advisory_tests::{Bouncer, Database, left_out};

const WHAT: &str = "claims behind a pooler";

#[tokio::test]
async fn claims_work_behind_a_pooler_that_tracks_statements() {
    let db = database(20).await;
    let settings = "pool_mode = transaction\ndefault_pool_size = 3\nserver_round_robin = 1\n\
                    max_prepared_statements = 50";
    let bouncer = match Bouncer::start_tracking(&db, settings).await {
        Ok(bouncer) => bouncer,
        Err(why) => return left_out(WHAT, why),
    };
    let pool = Database::deadpool_at(bouncer.url(&db), 4);
    let workers = (0..4).map(|_| {
        let pool = pool.clone();
        spawn(async move {
            let mut done = 0;
            loop {
                let job = claim::next::<SyncJob>("worker")
                    .first(&mut pool.connection().await?)
                    .await?;
                let Some(job) = job else {
                    return Ok::<_, Error>(done);
                };
                let renewed = claim::renew(&mut pool.connection().await?, &job).await;
                renewed?;
                claim::run(&pool, &job, End::Fail, async { Ok::<_, Error>(()) }).await?;
                done += 1;
            }
        })
    });
    let mut done = 0;
    for worker in workers.collect::<Vec<_>>() {
        done += worker.await.unwrap().unwrap();
    }
    assert_eq!(done, 20);
    db.run("INSERT INTO sync_jobs SELECT 21, 1, now()").await;
    let mut conn = pool.connection().await.unwrap();
    let job = next(&mut conn).await;
    claim::fail(&mut conn, &job, "no").await.unwrap();
    assert_eq!(state_of(&mut conn, 21).await, State::Failed);
}
