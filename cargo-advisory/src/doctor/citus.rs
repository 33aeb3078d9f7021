//! The role of this node in a cluster of Citus, and the tables and triggers that Citus manages.

use tokio_postgres::{Client, SimpleQueryRow};

use crate::database::{cell, literal, rows};
use crate::failure::Result;
use crate::text::one_line;

/// The group of a node. The coordinator's is 0.
const GROUP: &str = "SELECT groupid FROM pg_catalog.pg_dist_local_group";

/// Triggers that notify or look for locks, on tables with rows on other nodes. Citus accepts them
/// only with `citus.enable_unsafe_triggers`.
const TRIGGERS: &str = "SELECT t.tgname, t.tgrelid::regclass::text FROM pg_catalog.pg_trigger AS t \
     JOIN pg_catalog.pg_dist_partition AS p ON p.logicalrelid::oid = t.tgrelid \
     JOIN pg_catalog.pg_proc AS f ON f.oid = t.tgfoid \
     WHERE NOT t.tgisinternal AND f.prosrc ~* 'notify|pg_locks|advisory' \
     AND (p.partmethod <> 'n' OR p.repmodel = 't' \
     OR p.colocationid <> 0) ORDER BY 2, 1 LIMIT 5";

#[derive(Default)]
pub(super) struct Node {
    pub(super) is_worker: bool,
    /// Triggers that run on other nodes, and so have no effect here.
    pub(super) triggers: Vec<String>,
}

impl Node {
    pub(super) async fn ask(client: &Client) -> Result<Self> {
        let group = rows(client, GROUP).await?;
        let triggers = rows(client, TRIGGERS).await?;
        let name = |row: &SimpleQueryRow| {
            let text = |at: usize| one_line(row.get(at).unwrap_or_default());
            format!("`{}` of `{}`", text(0), text(1))
        };
        Ok(Self {
            is_worker: cell(&group, 0).is_some_and(|group| group != "0"),
            triggers: triggers.iter().map(name).collect(),
        })
    }
}

/// Looks at how Citus manages a table: `a reference table of Citus`, and the statements that turn it
/// into an ordinary one. Such a table refuses the writes of leases and claims. `None` for an
/// ordinary table. `name` is its name in SQL.
pub(super) async fn managed(
    client: &Client,
    name: &str,
) -> Result<Option<(&'static str, Vec<String>)>> {
    let table = format!("to_regclass({})::oid", literal(name));
    let question = format!(
        "SELECT CASE WHEN p.partmethod <> 'n' THEN 'distributed' \
         WHEN p.repmodel = 't' THEN 'reference' \
         WHEN p.colocationid <> 0 THEN 'distributed' \
         WHEN p.autoconverted THEN 'converted' ELSE 'local' END FROM pg_catalog.pg_dist_partition AS p \
         WHERE p.logicalrelid::oid = {table}"
    );
    let found = rows(client, &question).await?;
    let Some(kind) = cell(&found, 0) else {
        return Ok(None);
    };
    // Once the last foreign key is dropped, Citus turns the table into an ordinary one.
    let question = format!(
        "SELECT format('ALTER TABLE %s DROP CONSTRAINT %I;', k.conrelid::regclass, k.conname) \
         FROM pg_catalog.pg_constraint AS k JOIN pg_catalog.pg_dist_partition AS p \
         ON p.logicalrelid::oid = \
         CASE WHEN k.conrelid = {table} THEN k.confrelid ELSE k.conrelid END \
         WHERE k.contype = 'f' AND k.conrelid <> k.confrelid \
         AND (k.conrelid = {table} OR k.confrelid = {table}) ORDER BY 1"
    );
    let found = rows(client, &question).await?;
    let drops = found.iter().filter_map(|row| row.get(0)).map(str::to_owned);
    let undistribute = vec![format!("SELECT undistribute_table({});", literal(name))];
    Ok(Some(match kind {
        "distributed" => ("a distributed table of Citus", undistribute),
        "reference" => ("a reference table of Citus", undistribute),
        "converted" => (
            "a table that Citus manages since a foreign key connects it with a reference table",
            drops.collect(),
        ),
        _ => ("a local table that Citus manages", undistribute),
    }))
}
