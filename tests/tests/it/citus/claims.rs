//! Claims: of an ordinary table of the coordinator, and the refusals of the other kinds.

use super::cluster::{Cluster, cluster, row};
use super::jobs::{create, freed, limited, ordinary, other};
use advisory_runtime::claim::{Claim, Claimed, Error, Worker};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_workers_run_each_job_of_an_ordinary_table_once() {
    const JOBS: u32 = 1_000;
    let Some(cluster) = cluster() else { return };
    create(&cluster, "citus_job", JOBS).await;
    let ran = Arc::new(Mutex::new(BTreeMap::new()));
    let workers = (0..3).map(|nth| {
        let (pool, ran) = (cluster.coordinator.pool(3), Arc::clone(&ran));
        tokio::spawn(async move {
            let worker = Worker::new(&pool, format!("worker-{nth}")).concurrency(4);
            let ran = worker
                .until_empty()
                .run(async |job: Claimed<ordinary::Job>| {
                    *ran.lock()
                        .unwrap()
                        .entry((job.tenant_id, job.id))
                        .or_insert(0) += 1;
                    Ok::<_, Error>(())
                });
            ran.await
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap().unwrap();
    }
    let ran = std::mem::take(&mut *ran.lock().unwrap());
    assert_eq!(ran.len(), JOBS as usize);
    assert!(ran.values().all(|times| *times == 1), "{ran:?}");
    let open = "SELECT count(*) AS number FROM citus_job WHERE completed_at IS NULL";
    assert_eq!(cluster.coordinator.number(open).await, 0);
    row(
        "claims, ordinary table of the coordinator, three workers",
        &format!("{} of {JOBS} jobs ran, each once", ran.len()),
    );
}

/// The error of a worker on a table, which ends it before it has waited for anything.
async fn refusal<T: Claim + std::fmt::Debug + Send + Sync + 'static>(cluster: &Cluster) -> String {
    let pool = cluster.coordinator.pool(3);
    let begun = Instant::now();
    let worker = Worker::new(&pool, "worker").until_empty();
    let ran = worker.run(async |_: Claimed<T>| Ok::<_, Error>(())).await;
    let error = ran.unwrap_err().to_string();
    assert!(begun.elapsed() < Duration::from_secs(5), "{error}");
    error
}

#[tokio::test]
async fn a_worker_on_any_other_kind_of_table_ends_at_once() {
    let Some(cluster) = cluster() else { return };
    let table = "citus_other_job";
    for (kind, make) in [
        (
            "distributed by the tenant",
            "SELECT create_distributed_table('citus_other_job', 'tenant_id')",
        ),
        (
            "reference",
            "SELECT create_reference_table('citus_other_job')",
        ),
        (
            "distributed, one shard",
            "SELECT create_distributed_table('citus_other_job', NULL)",
        ),
        (
            "local, with a foreign key to a reference table",
            "DROP TABLE IF EXISTS citus_tenant; CREATE TABLE citus_tenant (id int8 PRIMARY KEY); \
             SELECT create_reference_table('citus_tenant'); INSERT INTO citus_tenant SELECT generate_series(0, 7); \
             ALTER TABLE citus_other_job ADD FOREIGN KEY (tenant_id) REFERENCES citus_tenant",
        ),
    ] {
        create(&cluster, table, 3).await;
        let drop_triggers = cluster.coordinator.lines(
            "SELECT format('DROP TRIGGER %I ON citus_other_job', tgname) AS line FROM pg_trigger \
             WHERE tgrelid = 'citus_other_job'::regclass AND NOT tgisinternal",
        );
        for statement in drop_triggers.await {
            cluster.run(&statement).await;
        }
        cluster.run(make).await;
        let said = refusal::<other::Job>(&cluster).await;
        row(&format!("claims, {kind}"), &format!("refused: {said}"));
        let limited = refusal::<limited::Job>(&cluster).await;
        row(
            &format!("claims with `per`, {kind}"),
            &format!("refused: {limited}"),
        );
    }
}

/// Citus makes an ordinary table of it again.
#[tokio::test]
async fn a_job_table_without_its_foreign_key_is_claimed_again() {
    let Some(cluster) = cluster() else { return };
    create(&cluster, "citus_freed_job", 3).await;
    for statement in [
        "DROP TABLE IF EXISTS citus_owner; CREATE TABLE citus_owner (id int8 PRIMARY KEY)",
        "SELECT create_reference_table('citus_owner'); INSERT INTO citus_owner SELECT generate_series(0, 7)",
        "ALTER TABLE citus_freed_job ADD CONSTRAINT owned FOREIGN KEY (tenant_id) REFERENCES citus_owner",
    ] {
        cluster.run(statement).await;
    }
    refusal::<freed::Job>(&cluster).await;
    cluster
        .run("ALTER TABLE citus_freed_job DROP CONSTRAINT owned")
        .await;
    let pool = cluster.coordinator.pool(3);
    let worker = Worker::new(&pool, "worker").until_empty();
    worker
        .run(async |_: Claimed<freed::Job>| Ok::<_, Error>(()))
        .await
        .unwrap();
    row(
        "claims, after the foreign key to a reference table is dropped",
        "the jobs run",
    );
}

#[tokio::test]
async fn the_triggers_of_a_queue_are_refused_where_rows_are_on_other_nodes() {
    let Some(cluster) = cluster() else { return };
    let table = "citus_trigger_job";
    create(&cluster, table, 1).await;
    for make in [
        "create_distributed_table('citus_trigger_job', 'tenant_id')",
        "create_reference_table('citus_trigger_job')",
    ] {
        let said = cluster.coordinator.refusal(&format!("SELECT {make}")).await;
        row(
            &format!("a job table with the triggers of `Schema`, `{make}`"),
            &format!("refused: {said}"),
        );
    }
    cluster
        .run("DROP TABLE IF EXISTS citus_note; CREATE TABLE citus_note (id int8 PRIMARY KEY)")
        .await;
    cluster
        .run("SELECT create_distributed_table('citus_note', 'id')")
        .await;
    let trigger = "CREATE TRIGGER note AFTER INSERT ON citus_note FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()";
    let said = cluster.coordinator.refusal(trigger).await;
    row(
        "`CREATE TRIGGER` on a distributed table",
        &format!("refused: {said}"),
    );
}
