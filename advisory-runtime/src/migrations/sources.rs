//! The sources of a run, which Diesel's harness sees as one.

use super::sql;
use diesel::connection::BoxableConnection;
use diesel::migration::{
    self, Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion,
};
use diesel::pg::Pg;

#[derive(Default)]
pub(super) struct Sources(pub(super) Vec<Box<dyn MigrationSource<Pg> + Send>>);

impl MigrationSource<Pg> for &Sources {
    /// Returns all migrations in the order of their versions. Diesel's table contains only the
    /// version, so two different migrations must not share one.
    fn migrations(&self) -> migration::Result<Vec<Box<dyn Migration<Pg>>>> {
        let mut all: Vec<Box<dyn Migration<Pg>>> = Vec::new();
        for source in &self.0 {
            let migrations = source.migrations()?.into_iter();
            all.extend(migrations.map(|one| Box::new(KeepsSearchPath(one)) as _));
        }
        all.sort_by_key(|migration| version(&**migration));
        for pair in all.windows(2) {
            let [one, other] = pair else { continue };
            let names = [one, other].map(|migration| migration.name().to_string());
            if version(&**one) == version(&**other) && names[0] != names[1] {
                let [one, other] = names;
                let both = format!(
                    "the migrations `{one}` and `{other}` have the same version, and Diesel would \
                     apply one of them: rename one"
                );
                return Err(both.into());
            }
        }
        all.dedup_by_key(|migration| version(&**migration));
        Ok(all)
    }
}

pub(super) fn version(migration: &dyn Migration<Pg>) -> MigrationVersion<'static> {
    migration.name().version().as_owned()
}

/// A migration that leaves the session's `search_path` unchanged.
///
/// A baseline by `pg_dump` empties it for the session. Diesel would then not find its own table,
/// into which it writes the version next.
struct KeepsSearchPath(Box<dyn Migration<Pg>>);

impl KeepsSearchPath {
    fn around(
        conn: &mut dyn BoxableConnection<Pg>,
        run: impl FnOnce(&mut dyn BoxableConnection<Pg>) -> migration::Result<()>,
    ) -> migration::Result<()> {
        conn.batch_execute(&sql::save_search_path())?;
        let ran = run(&mut *conn);
        // Also after an error: outside of a transaction no rollback restores it.
        let restored = conn.batch_execute(&sql::restore_search_path());
        ran?;
        Ok(restored?)
    }
}

impl Migration<Pg> for KeepsSearchPath {
    fn run(&self, conn: &mut dyn BoxableConnection<Pg>) -> migration::Result<()> {
        Self::around(conn, |conn| self.0.run(conn))
    }

    fn revert(&self, conn: &mut dyn BoxableConnection<Pg>) -> migration::Result<()> {
        Self::around(conn, |conn| self.0.revert(conn))
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        self.0.metadata()
    }

    fn name(&self) -> &dyn MigrationName {
        self.0.name()
    }
}
