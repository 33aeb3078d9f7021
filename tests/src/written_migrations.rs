//! Migrations that a test writes.

use diesel::connection::BoxableConnection;
use diesel::migration::{
    Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion,
    Result as MigrationResult,
};
use diesel::pg::Pg;
use std::fmt;

/// A name, and its SQL.
#[derive(Clone)]
pub struct Written(pub Vec<(&'static str, &'static str)>);

struct One(&'static str, &'static str);

impl MigrationSource<Pg> for Written {
    fn migrations(&self) -> MigrationResult<Vec<Box<dyn Migration<Pg>>>> {
        let all = self.0.iter();
        Ok(all
            .map(|(name, sql)| Box::new(One(name, sql)) as _)
            .collect())
    }
}

impl Migration<Pg> for One {
    fn run(&self, conn: &mut dyn BoxableConnection<Pg>) -> MigrationResult<()> {
        Ok(conn.batch_execute(self.1)?)
    }

    fn revert(&self, _: &mut dyn BoxableConnection<Pg>) -> MigrationResult<()> {
        Ok(())
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        self
    }

    fn name(&self) -> &dyn MigrationName {
        self
    }
}

impl MigrationMetadata for One {
    fn run_in_transaction(&self) -> bool {
        !self.0.ends_with("concurrently")
    }
}

impl MigrationName for One {
    fn version(&self) -> MigrationVersion<'_> {
        MigrationVersion::from(self.0)
    }
}

impl fmt::Display for One {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
