//! Diesel's migrations, run by one process at a time, with blocking Diesel; like
//! [`crate::migrations`].
//!
//! ```no_run
//! use advisory_runtime::{blocking, migrations};
//! use diesel_migrations::EmbeddedMigrations;
//!
//! fn start(url: &str, embedded: EmbeddedMigrations) -> Result<(), migrations::Error> {
//!     blocking::migrations::run(url, embedded)?;
//!     Ok(())
//! }
//! ```

use crate::driver::block_on;
use crate::migrations::{Error, Migrator, Report, migrate};
use crate::pooler;
use diesel::Connection;
use diesel::pg::PgConnection;

/// Runs the pending migrations, one process at a time; like [`Migrator::run`].
///
/// It takes the migrations, for a run with the defaults of [`Migrator`], or a `Migrator`. Each run
/// opens a second connection, because a single blocking connection does not show whether there is a
/// pooler.
pub fn run(url: &str, migrations: impl Into<Migrator>) -> Result<Report, Error> {
    let open = || PgConnection::establish(url).map_err(|error| Error::of_connecting(error, url));
    let (mut conn, mut second) = (open()?, open()?);
    block_on(pooler::verify(&mut conn, &mut second)).map_err(Error::of_lock)?;
    drop(second);
    run_on(&mut conn, migrations)
}

/// Runs the pending migrations on a connection of yours, without looking for a pooler; otherwise
/// like [`Migrator::run_on`].
///
/// Unless the connection is lost, it stays usable, even after an error or a panic of a callback.
pub fn run_on(conn: &mut PgConnection, migrations: impl Into<Migrator>) -> Result<Report, Error> {
    let (report, _) = block_on(migrate(conn, migrations.into()))?;
    Ok(report)
}
