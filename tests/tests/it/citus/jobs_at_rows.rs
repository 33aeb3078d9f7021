//! Jobs of a table that is distributed by tenant, without claims: each is done in one transaction,
//! under its tenant's lock at the node of the rows.

use super::cluster::{Cluster, Node, Number, cluster, execute, number, pause, row};
use advisory_runtime::{Error, advisory_lock};
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

diesel::table! {
    citus_tenant_job (tenant_id, id) {
        tenant_id -> BigInt,
        id -> BigInt,
    }
}

const JOBS: i64 = 2_000;
const TENANTS: i64 = 40;

/// A table of jobs and one of their effects, whose rows are at the node of the jobs.
async fn set_up(cluster: &Cluster) {
    cluster
        .run(&format!(
            "DROP TABLE IF EXISTS citus_tenant_job, citus_tenant_effect; \
             CREATE TABLE citus_tenant_job (tenant_id int8, id int8, done_at timestamptz, PRIMARY KEY (tenant_id, id)); \
             CREATE TABLE citus_tenant_effect (tenant_id int8, job_id int8); \
             SELECT create_distributed_table('citus_tenant_job', 'tenant_id'); \
             SELECT create_distributed_table('citus_tenant_effect', 'tenant_id', colocate_with => 'citus_tenant_job'); \
             INSERT INTO citus_tenant_job SELECT id % {TENANTS}, id FROM generate_series(1, {JOBS}) AS id; \
             ALTER TABLE citus_tenant_effect REPLICA IDENTITY FULL"
        ))
        .await;
}

/// Does the first open job of a tenant, unless somebody is at it. Its effect and its end are one
/// commit of one node.
#[advisory_lock(
    key = "citus-jobs:<tenant_id>",
    pool = pool,
    at = (citus_tenant_job::tenant_id, tenant_id),
    wait = "never",
    on_held = Ok(false)
)]
async fn work(pool: &Pool<AsyncPgConnection>, tenant_id: i64) -> Result<bool, Error> {
    let first = format!(
        "SELECT min(id) AS number FROM citus_tenant_job WHERE tenant_id = {tenant_id} AND done_at IS NULL"
    );
    let id = diesel::sql_query(first).get_result::<Number>(conn).await?;
    let Some(id) = id.number else {
        return Ok(false);
    };
    let effect = format!("INSERT INTO citus_tenant_effect VALUES ({tenant_id}, {id})");
    execute(conn, &effect).await?;
    let end = format!(
        "UPDATE citus_tenant_job SET done_at = now() WHERE tenant_id = {tenant_id} AND id = {id}"
    );
    execute(conn, &end).await?;
    Ok(true)
}

/// The tenants of the first open jobs, of all shards.
async fn tenants(pool: &Pool<AsyncPgConnection>) -> Result<Vec<i64>, Error> {
    let open = "SELECT tenant_id AS number FROM citus_tenant_job WHERE done_at IS NULL ORDER BY id LIMIT 40";
    let mut conn = pool
        .get()
        .await
        .map_err(|error| Error::Pool(advisory_runtime::PoolError::new(error)))?;
    let rows = diesel::sql_query(open).load::<Number>(&mut conn).await?;
    Ok(rows.into_iter().filter_map(|row| row.number).collect())
}

/// Works until nothing is open. Returns the errors of calls, by their texts.
async fn until_empty(node: Node, nth: usize) -> BTreeMap<String, u32> {
    let (pool, mut errors) = (node.pool(2), BTreeMap::new());
    let mut record = |error: Error| {
        let text = format!("{error:?}").chars().take(160).collect();
        *errors.entry(text).or_insert(0) += 1;
    };
    loop {
        let tenants = match tenants(&pool).await {
            Ok(tenants) => tenants,
            Err(error) => {
                record(error);
                pause(Duration::from_millis(50)).await;
                continue;
            }
        };
        if tenants.is_empty() {
            return errors;
        }
        let mut has_worked = false;
        let from = nth * tenants.len() / 3;
        for tenant in tenants[from..].iter().chain(&tenants[..from]) {
            match work(&pool, *tenant).await {
                Ok(has_found) => has_worked |= has_found,
                Err(error) => {
                    record(error);
                    pause(Duration::from_millis(50)).await;
                }
            }
        }
        if !has_worked {
            pause(Duration::from_millis(5)).await;
        }
    }
}

/// Three workers, each on a node of its own, while something disturbs them. Returns the jobs a
/// second and the errors.
async fn run<F>(cluster: &Arc<Cluster>, disturb: F) -> (f64, BTreeMap<String, u32>)
where
    F: Future<Output = ()> + Send + 'static,
{
    set_up(cluster).await;
    let begun = Instant::now();
    let disturbing = tokio::spawn(disturb);
    let workers = cluster.nodes().into_iter().cloned().enumerate();
    let workers: Vec<_> = workers
        .map(|(nth, node)| tokio::spawn(until_empty(node, nth)))
        .collect();
    let mut errors = BTreeMap::new();
    for worker in workers {
        for (error, times) in worker.await.unwrap() {
            *errors.entry(error).or_insert(0) += times;
        }
    }
    let rate = f64::from(u32::try_from(JOBS).unwrap()) / begun.elapsed().as_secs_f64();
    disturbing.await.unwrap();
    let once = "SELECT count(*) AS number FROM (SELECT job_id FROM citus_tenant_effect GROUP BY tenant_id, job_id HAVING count(*) = 1) AS once";
    assert_eq!(cluster.coordinator.number(once).await, JOBS, "{errors:#?}");
    let all = "SELECT count(*) AS number FROM citus_tenant_effect";
    assert_eq!(cluster.coordinator.number(all).await, JOBS, "{errors:#?}");
    (rate, errors)
}

fn shown(errors: &BTreeMap<String, u32>) -> String {
    let calls: u32 = errors.values().sum();
    format!("{calls} calls failed and were repeated")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_workers_on_three_nodes_do_each_job_once() {
    let Some(cluster) = cluster().map(Arc::new) else {
        return;
    };
    let (rate, errors) = run(&cluster, async {}).await;
    assert!(errors.is_empty(), "{errors:?}");
    row(
        "2,000 jobs of 40 tenants, each in one transaction under its tenant's lock with `at`, three workers on three nodes",
        &format!("each done once, {rate:.0} jobs a second"),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_done_once_while_their_shards_move() {
    let Some(cluster) = cluster().map(Arc::new) else {
        return;
    };
    let count = Arc::new(AtomicU64::new(0));
    let disturb = {
        let (cluster, count) = (Arc::clone(&cluster), Arc::clone(&count));
        async move {
            let mut conn = cluster.coordinator.connect().await;
            for tenant in 0..8 {
                for mode in ["block_writes", "force_logical"] {
                    let from = format!(
                        "SELECT nodeport::int8 AS number FROM pg_dist_shard_placement WHERE shardid = \
                         get_shard_id_for_distribution_column('citus_tenant_job', {tenant})"
                    );
                    let from = number(&mut conn, &from).await;
                    let sql = format!(
                        "SELECT citus_move_shard_placement(get_shard_id_for_distribution_column('citus_tenant_job', {tenant}), \
                         '127.0.0.1', {from}, '127.0.0.1', nodeport, '{mode}') FROM pg_dist_node \
                         WHERE groupid <> 0 AND nodeport <> {from}"
                    );
                    if conn.batch_execute(&sql).await.is_ok() {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    };
    let (_, errors) = run(&cluster, disturb).await;
    let moves = AtomicU64::load(&count, Ordering::Relaxed);
    assert!(moves > 1, "{moves}");
    row(
        &format!("2,000 such jobs, while {moves} shards move"),
        &format!("each done once; {}", shown(&errors)),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_done_once_while_a_worker_node_crashes() {
    let Some(cluster) = cluster().map(Arc::new) else {
        return;
    };
    let node = cluster.workers[0].clone();
    let crashes = async move {
        for _ in 0..2 {
            pause(Duration::from_millis(700)).await;
            node.crash().await;
        }
    };
    let (_, errors) = run(&cluster, crashes).await;
    assert!(!errors.is_empty());
    row(
        "2,000 such jobs, while a worker node crashes and starts again, twice",
        &format!("each done once; {}", shown(&errors)),
    );
}
