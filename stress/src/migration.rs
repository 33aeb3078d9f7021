//! The migrations of the load. Each records when it started and ended.

use diesel::connection::BoxableConnection;
use diesel::migration::{
    Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion, Result,
};
use diesel::pg::Pg;
use std::fmt;

/// Every second migration runs outside a transaction, like one that builds an index concurrently.
pub(crate) const fn is_in_transaction(version: i64) -> bool {
    version % 2 == 0
}

/// The work of a migration. Its row is committed after a moment.
pub(crate) fn sql(version: i64, op: i64) -> String {
    format!(
        "WITH entered AS MATERIALIZED (SELECT stress.tick() AS tick), \
         passed AS MATERIALIZED (SELECT pg_catalog.pg_sleep(0.005) FROM entered) \
         INSERT INTO stress.migrated (version, op, entered) SELECT {version}, {op}, tick FROM entered, passed"
    )
}

/// The version in the form that Diesel orders and stores.
pub(crate) fn name(version: i64) -> String {
    format!("{version:010}")
}

/// The newest migrations that an operation knows.
pub(crate) struct Migrations {
    pub(crate) op: i64,
    pub(crate) versions: Vec<i64>,
}

struct One {
    op: i64,
    version: i64,
    name: Name,
    metadata: Metadata,
}

struct Name(String);

struct Metadata {
    is_in_transaction: bool,
}

impl MigrationSource<Pg> for Migrations {
    fn migrations(&self) -> Result<Vec<Box<dyn Migration<Pg>>>> {
        let all = self.versions.iter().map(|version| {
            Box::new(One {
                op: self.op,
                version: *version,
                name: Name(name(*version)),
                metadata: Metadata {
                    is_in_transaction: is_in_transaction(*version),
                },
            }) as Box<dyn Migration<Pg>>
        });
        Ok(all.collect())
    }
}

impl Migration<Pg> for One {
    fn run(&self, conn: &mut dyn BoxableConnection<Pg>) -> Result<()> {
        Ok(conn.batch_execute(&sql(self.version, self.op))?)
    }

    fn revert(&self, _: &mut dyn BoxableConnection<Pg>) -> Result<()> {
        Err("migrations are not reverted here".into())
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        &self.metadata
    }

    fn name(&self) -> &dyn MigrationName {
        &self.name
    }
}

impl MigrationMetadata for Metadata {
    fn run_in_transaction(&self) -> bool {
        self.is_in_transaction
    }
}

impl MigrationName for Name {
    fn version(&self) -> MigrationVersion<'_> {
        MigrationVersion::from(&self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
