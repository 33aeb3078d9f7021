//! Leases: in an ordinary table of the coordinator, and the refusals of the other kinds.

use super::cluster::{Cluster, cluster, row};
use advisory_runtime::lease::{Leases, Request, Table};
use std::time::Duration;

const KINDS: [(&str, &str); 4] = [
    ("reference", "SELECT create_reference_table('{table}')"),
    (
        "distributed",
        "SELECT create_distributed_table('{table}', 'key_hash')",
    ),
    (
        "distributed, one shard",
        "SELECT create_distributed_table('{table}', NULL)",
    ),
    (
        "local that Citus manages",
        "SELECT citus_add_local_table_to_metadata('{table}')",
    ),
];

async fn set_up(cluster: &Cluster, name: &str) -> Table {
    cluster
        .run(&format!(
            "DROP TABLE IF EXISTS {name}; DROP SEQUENCE IF EXISTS {name}_token"
        ))
        .await;
    let table = Table::new().named(name).unwrap();
    table
        .set_up(&mut cluster.coordinator.connect().await)
        .await
        .unwrap();
    table
}

#[tokio::test]
async fn an_ordinary_table_of_the_coordinator_grants_leases() {
    let Some(cluster) = cluster() else { return };
    let table = set_up(&cluster, "citus_lease").await;
    let leases = Leases::new(cluster.coordinator.pool(3)).table(table);
    let request = || Request::text("report").ttl(Duration::from_secs(60));
    let mut last = 0;
    for _ in 0..3 {
        let guard = leases.acquire(request()).await.unwrap();
        let token = guard.lease().token().get();
        assert!(token > last);
        last = token;
        let held = leases.acquire(request().wait(Duration::ZERO)).await;
        assert!(held.err().is_some_and(|error| error.is_held()));
        guard
            .finish(Ok::<_, advisory_runtime::lease::Error>(()))
            .await
            .unwrap();
    }
    row(
        "leases, ordinary table of the coordinator",
        "granted, exclusive, tokens grow",
    );
}

#[tokio::test]
async fn any_other_kind_of_table_refuses_the_grant() {
    let Some(cluster) = cluster() else { return };
    for (kind, make) in KINDS {
        let table = set_up(&cluster, "citus_other_lease").await;
        cluster
            .run(&make.replace("{table}", "citus_other_lease"))
            .await;
        let leases = Leases::new(cluster.coordinator.pool(3)).table(table);
        let refused = leases
            .acquire(Request::text("report").ttl(Duration::from_secs(60)))
            .await;
        let Err(error) = refused else {
            panic!("granted: {kind}")
        };
        row(&format!("leases, {kind}"), &format!("refused: {error}"));
    }
}
