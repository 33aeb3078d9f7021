//! `doctor` on a node of Citus. Here it is a PostgreSQL with the catalogs of the extension, as far
//! as they are read. `scripts/citus` uses a real one.

use advisory_runtime::lease::Table;
use advisory_tests::Database;

use crate::diagnosis::{findings, fix, job_program, level, message, problems};
use crate::programs::assert_has;

async fn node(group: i32) -> Database {
    let db = Database::create().await;
    db.run(&format!(
        "INSERT INTO pg_catalog.pg_extension VALUES (99999, 'citus', 10, 11, false, '1', NULL, NULL); \
         SET allow_system_table_mods = on; CREATE TABLE pg_catalog.pg_dist_local_group (groupid int NOT NULL); \
         INSERT INTO pg_catalog.pg_dist_local_group VALUES ({group}); \
         CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass NOT NULL, partmethod \"char\" NOT NULL, \
         colocationid int NOT NULL, repmodel \"char\" NOT NULL, autoconverted bool NOT NULL)"
    ))
    .await;
    db
}

/// Adds a table to the catalog, or replaces its row.
async fn manage(db: &Database, table: &str, columns: &str) {
    db.run(&format!(
        "SET allow_system_table_mods = on; DELETE FROM pg_catalog.pg_dist_partition WHERE logicalrelid = '{table}'::regclass; \
         INSERT INTO pg_catalog.pg_dist_partition VALUES ('{table}', {columns})"
    ))
    .await;
}

const DISTRIBUTED: &str = "'h', 1, 's', false";
const ONE_SHARD: &str = "'n', 1, 's', false";
const REFERENCE: &str = "'n', 1, 't', false";
const LOCAL: &str = "'n', 0, 's', false";
const CONVERTED: &str = "'n', 0, 's', true";

#[tokio::test(flavor = "multi_thread")]
async fn only_a_worker_node_is_a_problem() {
    let coordinator = findings(node(0).await.url(), &[]).await;
    assert_eq!(level(&coordinator, "engine"), "advice");
    assert_eq!(problems(&coordinator), [""; 0]);
    let worker = findings(node(2).await.url(), &[]).await;
    assert_eq!(problems(&worker), ["engine"]);
    let said = message(&worker, "engine");
    assert_has(&said, "this is a worker node");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_table_that_citus_manages_is_a_problem() {
    let db = node(0).await;
    Table::new().set_up(&mut db.connect().await).await.unwrap();
    let ordinary = findings(db.url(), &[]).await;
    assert_eq!(level(&ordinary, "lease_table"), "fine");
    for (columns, kind) in [
        (DISTRIBUTED, "a distributed table of Citus"),
        (ONE_SHARD, "a distributed table of Citus"),
        (REFERENCE, "a reference table of Citus"),
        (LOCAL, "a local table that Citus manages"),
    ] {
        manage(&db, "advisory_lease", columns).await;
        let found = findings(db.url(), &[]).await;
        assert_eq!(problems(&found), ["lease_table"], "{kind}");
        let expected = format!("`public.advisory_lease` is {kind}, which refuses every grant");
        assert_eq!(message(&found, "lease_table"), expected);
        let undistribute = "SELECT undistribute_table('public.advisory_lease');";
        assert_eq!(fix(&found, "lease_table"), [undistribute], "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_table_that_a_foreign_key_has_converted_is_a_problem() {
    let db = node(0).await;
    db.run(
        "CREATE TABLE tenant (id int8 PRIMARY KEY); \
         CREATE TABLE mail (id int8 PRIMARY KEY, tenant_id int8 NOT NULL REFERENCES tenant, run_at timestamptz NOT NULL DEFAULT now(), \
         attempts int4 NOT NULL DEFAULT 0, locked_until timestamptz, locked_by text, completed_at timestamptz, failed_at timestamptz, \
         error_message text)",
    )
    .await;
    manage(&db, "tenant", REFERENCE).await;
    manage(&db, "mail", CONVERTED).await;
    let found = findings(db.url(), &["--artifact", &job_program("mail", None)]).await;
    assert_eq!(problems(&found), ["job_tables"]);
    let said = message(&found, "job_tables");
    let expected = "`mail` is a table that Citus manages since a foreign key connects it with a reference table, which refuses every claim";
    assert_has(&said, expected);
    let drop = "ALTER TABLE mail DROP CONSTRAINT mail_tenant_id_fkey;".to_owned();
    assert!(fix(&found, "job_tables").contains(&drop));
}

/// Only with a setting of Citus that says so are triggers of such tables accepted.
#[tokio::test(flavor = "multi_thread")]
async fn triggers_that_run_on_other_nodes_are_named() {
    let db = node(0).await;
    db.run(
        "CREATE TABLE note (id int8 PRIMARY KEY); \
         CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NOTIFY note; RETURN NULL; END'; \
         CREATE TRIGGER note_tells AFTER INSERT ON note EXECUTE FUNCTION tell()",
    )
    .await;
    for (columns, is_named) in [(LOCAL, false), (REFERENCE, true), (DISTRIBUTED, true)] {
        manage(&db, "note", columns).await;
        let found = findings(db.url(), &[]).await;
        let said = message(&found, "engine");
        assert_eq!(
            said.contains("`note_tells` of `note`"),
            is_named,
            "{columns}: {said}"
        );
    }
}
