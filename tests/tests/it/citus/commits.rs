//! Commits that reach several nodes.

use super::cluster::{Cluster, INTERNAL, Node, cluster, execute, number, row};
use super::jobs::{create, effect};
use advisory_runtime::{Error, advisory_lock, claim};
use advisory_tests::assert_error;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::process::Command;

/// With a standby that there is not, a commit waits after it is on disk.
const STANDBY: &str = "ALTER SYSTEM SET synchronous_standby_names = 'nobody'";
const NO_STANDBY: &str = "ALTER SYSTEM RESET synchronous_standby_names";

/// The sessions whose commit, or whose preparation of one, is on disk and not yet answered.
const UNANSWERED: &str =
    "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'";

impl Node {
    pub(super) async fn hold_answers(&self, holds: bool) {
        self.run(if holds { STANDBY } else { NO_STANDBY }).await;
        self.run("SELECT pg_reload_conf()").await;
        // A session reads it again before its next statement.
        let shows = format!(
            "SELECT CASE WHEN (current_setting('synchronous_standby_names') <> '') = {holds} THEN 1 ELSE 0 END::int8 AS number"
        );
        self.until("the setting", &shows).await;
    }

    pub(super) async fn until_unanswered(&self) {
        let counts = format!("SELECT count(*) AS number {UNANSWERED}");
        self.until("a commit without an answer", &counts).await;
    }

    pub(super) async fn terminate(&self, sessions: &str) {
        self.run(&format!(
            "SELECT pg_terminate_backend(pid, 5000) {sessions}"
        ))
        .await;
    }
}

impl Cluster {
    /// The worker that has the second row of a table of balances.
    async fn worker_of_second(&self, table: &str) -> &Node {
        let port = format!(
            "SELECT nodeport::int8 AS number FROM pg_dist_shard_placement WHERE shardid = \
             get_shard_id_for_distribution_column('{table}', (SELECT max(id) FROM {table}))"
        );
        let port = self.coordinator.number(&port).await;
        let mut workers = self.workers.iter();
        let is_there = |worker: &&Node| worker.url().contains(&format!(":{port}/"));
        workers.find(is_there).unwrap()
    }
}

/// Adds one to the balances under this condition, and then runs what the test does before the
/// commit.
#[advisory_lock(key = "citus-commit", name = "citus-commit", pool = pool)]
async fn add<F: Future<Output = ()>>(
    pool: &Pool<AsyncPgConnection>,
    table: &str,
    condition: &str,
    then: F,
) -> Result<(), Error> {
    execute(
        conn,
        &format!("UPDATE {table} SET balance = balance + 1 WHERE {condition}"),
    )
    .await?;
    then.await;
    Ok(())
}

#[advisory_lock(key = "citus-commit", name = "citus-commit", pool = pool)]
async fn sum(pool: &Pool<AsyncPgConnection>, table: &str) -> Result<i64, Error> {
    Ok(number(
        conn,
        &format!("SELECT sum(balance)::int8 AS number FROM {table}"),
    )
    .await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_at_the_commit_is_unknown_and_can_be_a_commit() {
    let Some(cluster) = cluster() else { return };
    let table = "citus_unknown";
    let second = format!("id = {}", cluster.accounts(table).await);
    let pool = cluster.coordinator.pool(2);
    let worker = cluster.worker_of_second(table).await;
    // The worker's session ends as it begins to commit.
    let shard = format!(
        "SELECT get_shard_id_for_distribution_column('{table}', (SELECT max(id) FROM {table})) AS number"
    );
    let shard = cluster.coordinator.number(&shard).await;
    worker
        .run(&format!(
            "SET citus.enable_ddl_propagation TO off; \
             CREATE OR REPLACE FUNCTION citus_end() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN PERFORM pg_terminate_backend(pg_backend_pid());RETURN NULL;END'; \
             CREATE CONSTRAINT TRIGGER ends AFTER UPDATE ON {table}_{shard} DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION citus_end()"
        ))
        .await;
    let before = add(&pool, table, &second, async {}).await.unwrap_err();
    assert_error!(before, CommitUnknown);
    assert_eq!(sum(&pool, table).await.unwrap(), 0);
    worker
        .run(&format!("DROP TRIGGER ends ON {table}_{shard}"))
        .await;
    // It ends after it has committed.
    worker.hold_answers(true).await;
    let (after, ()) = tokio::join!(add(&pool, table, &second, async {}), async {
        worker.until_unanswered().await;
        worker.terminate(UNANSWERED).await;
    });
    let after = after.unwrap_err();
    worker.hold_answers(false).await;
    assert_error!(after, CommitUnknown);
    assert_eq!(sum(&pool, table).await.unwrap(), 1);
    let [before, after] = [before, after].map(|error| error.database().unwrap().to_string());
    assert_eq!(before, after);
    row(
        "a worker's session lost as it begins to commit, and after it has committed",
        "`CommitUnknown` with the same text; the row is not written, and is written",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_two_nodes_can_release_the_lock_before_its_write_is_visible() {
    let Some(cluster) = cluster() else { return };
    let table = "citus_late";
    cluster.accounts(table).await;
    let pool = cluster.coordinator.pool(3);
    let worker = cluster.worker_of_second(table).await;
    cluster.coordinator.hold_answers(true).await;
    let (added, ()) = tokio::join!(add(&pool, table, "true", async {}), async {
        // Both workers have prepared, and the decision is on disk.
        cluster.coordinator.until_unanswered().await;
        worker.terminate(INTERNAL).await;
        cluster.coordinator.hold_answers(false).await;
    });
    added.unwrap();
    let next = sum(&pool, table).await.unwrap();
    assert_eq!(next, 1, "one of two rows");
    cluster.run("SELECT recover_prepared_transactions()").await;
    assert_eq!(sum(&pool, table).await.unwrap(), 2);
    row(
        "a call that wrote on two workers, of which one lost its session between preparing and committing",
        &format!(
            "`Ok`; the next holder of the lock saw {next} of 2 rows until the recovery of Citus ran"
        ),
    );
}

/// Claims a job of the coordinator's table, writes on one worker, and completes the job in the same
/// transaction. The coordinator crashes when the worker has committed or prepared. Returns the
/// balance and the number of completed jobs.
async fn complete_and_crash(cluster: &Cluster, is_two_phase: bool) -> (i64, i64) {
    let table = "citus_effect";
    let second = cluster.accounts(table).await;
    create(cluster, "citus_effect_job", 1).await;
    cluster
        .run(
            "DROP TABLE IF EXISTS citus_two_phase; CREATE TABLE citus_two_phase (id int PRIMARY KEY); \
             SELECT citus_add_local_table_to_metadata('citus_two_phase')",
        )
        .await;
    let worker = cluster.worker_of_second(table).await;
    let mut conn = cluster.coordinator.connect().await;
    let job = claim::next::<effect::Job>("worker")
        .first(&mut conn)
        .await
        .unwrap()
        .unwrap();
    let pid = number(&mut conn, "SELECT pg_backend_pid()::int8 AS number").await;
    worker.hold_answers(true).await;
    let completed = conn.transaction(async |conn| {
        execute(
            conn,
            &format!("UPDATE {table} SET balance = balance + 1 WHERE id = {second}"),
        )
        .await?;
        if is_two_phase {
            execute(conn, "DELETE FROM citus_two_phase WHERE false").await?;
        }
        claim::complete(conn, &job).await
    });
    let (completed, ()) = tokio::join!(completed, async {
        worker.until_unanswered().await;
        // As a crash does: the session waits for the worker, and no request to end it is heard.
        let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
        assert!(killed.unwrap().success());
        worker.hold_answers(false).await;
    });
    assert!(completed.is_err());
    cluster.run("SELECT recover_prepared_transactions()").await;
    let balance = "SELECT sum(balance)::int8 AS number FROM citus_effect";
    let done = "SELECT count(*) AS number FROM citus_effect_job WHERE completed_at IS NOT NULL";
    (
        cluster.coordinator.number(balance).await,
        cluster.coordinator.number(done).await,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claims_complete_is_atomic_with_one_workers_row_only_by_two_phase_commit() {
    let Some(cluster) = cluster() else { return };
    assert_eq!(complete_and_crash(&cluster, false).await, (1, 0));
    row(
        "`claim::complete` with rows of one worker, a crash between their commits",
        "the row is written, the job is not complete, and runs again",
    );
    assert_eq!(complete_and_crash(&cluster, true).await, (0, 0));
    row(
        "the same, after a `DELETE` that touches a table of Citus",
        "neither: two-phase commit",
    );
}

/// Reads `citus_read` and writes `citus_written` and a row of a worker.
#[advisory_lock(key = "citus-serializable", pool = pool, isolation = "serializable")]
async fn add_serializable<F: Future<Output = ()>>(
    pool: &Pool<AsyncPgConnection>,
    id: i64,
    then: F,
) -> Result<(), Error> {
    number(conn, "SELECT sum(id)::int8 AS number FROM citus_read").await;
    execute(conn, "UPDATE citus_written SET id = id + 1").await?;
    execute(
        conn,
        &format!("UPDATE citus_serializable SET balance = balance + 1 WHERE id = {id}"),
    )
    .await?;
    then.await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_at_the_commit_can_leave_the_workers_row() {
    let Some(cluster) = cluster() else { return };
    let second = cluster.accounts("citus_serializable").await;
    cluster
        .run(
            "DROP TABLE IF EXISTS citus_read, citus_written; CREATE TABLE citus_read AS SELECT 1 AS id; \
             CREATE TABLE citus_written AS SELECT 1 AS id",
        )
        .await;
    let pool = cluster.coordinator.pool(2);
    let mut other = cluster.coordinator.connect().await;
    let added = add_serializable(&pool, second, async {
        let crosses = "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT * FROM citus_written; UPDATE citus_read SET id = id + 1; COMMIT";
        other.batch_execute(crosses).await.unwrap();
    });
    let error = added.await.unwrap_err();
    let written = "SELECT id::int8 AS number FROM citus_written";
    assert_eq!(cluster.coordinator.number(written).await, 1);
    let balance = "SELECT sum(balance)::int8 AS number FROM citus_serializable";
    let balance = cluster.coordinator.number(balance).await;
    assert_error!(error, CommitUnknown);
    assert_eq!(balance, 1);
    row(
        "`isolation = \"serializable\"`, a conflict (40001) at the commit",
        "`CommitUnknown`: the coordinator's row is rolled back, the worker's is written",
    );
}
