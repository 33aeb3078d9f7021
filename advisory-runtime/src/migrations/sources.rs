//! The migrations of all sources of a run, in their order.

use super::error::Error;
use diesel::migration::{Migration, MigrationSource, MigrationVersion};
use diesel::pg::Pg;

pub(super) type Sources = Vec<Box<dyn MigrationSource<Pg> + Send>>;

pub(super) type Migrations = Vec<Box<dyn Migration<Pg>>>;

/// All migrations by their versions. Diesel's table has only the version, so two different migrations must not share one.
pub(super) fn all(sources: &Sources) -> Result<Migrations, Error> {
    let mut all = Vec::new();
    for source in sources {
        all.extend(source.migrations().map_err(Error::Source)?);
    }
    all.sort_by(|one, other| one.name().version().cmp(&other.name().version()));
    for pair in all.windows(2) {
        let [one, other] = pair else { continue };
        let versions = [one, other].map(|migration| version(&**migration));
        let [one, other] = [one, other].map(|migration| migration.name().to_string());
        if versions[0] == versions[1] && one != other {
            let both = format!(
                "the migrations `{one}` and `{other}` have the same version, and Diesel would apply one of them: rename one"
            );
            return Err(Error::Source(both.into()));
        }
    }
    all.dedup_by(|one, other| one.name().version() == other.name().version());
    Ok(all)
}

pub(super) fn version(migration: &dyn Migration<Pg>) -> MigrationVersion<'static> {
    migration.name().version().as_owned()
}
