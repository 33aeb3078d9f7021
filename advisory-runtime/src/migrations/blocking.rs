//! Runs migrations with blocking Diesel.

use super::run::migrate;
use super::{Error, Migrator, Report};
use crate::driver::answered;
use crate::lock;
use diesel::Connection;
use diesel::migration::MigrationSource;
use diesel::pg::{Pg, PgConnection};

/// Runs the pending migrations, one process at a time, with the defaults of [`Migrator`].
///
/// # Locking
///
/// As [`Migrator::run`].
///
/// # Errors
///
/// As [`Migrator::run`].
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::migrations;
/// # type Migrations = diesel_migrations::FileBasedMigrations;
/// # fn embedded() -> Migrations { Migrations::find_migrations_directory().unwrap() }
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let url = std::env::var("DATABASE_URL")?;
///     // `embed_migrations!()` in your program.
///     let migrations: Migrations = embedded();
///     migrations::blocking::run(&url, migrations)?;
///     Ok(())
/// }
/// ```
pub fn run<S>(url: &str, migrations: S) -> Result<Report, Error>
where
    S: MigrationSource<Pg> + Send + 'static,
{
    Migrator::new(migrations).run_blocking(url)
}

impl Migrator {
    /// Runs the pending migrations with blocking Diesel; as [`run`](Self::run).
    ///
    /// Diesel's blocking connections do not show whether there is a pooler. So each run opens a second connection and calls
    /// [`blocking::session::verify`](crate::blocking::session::verify).
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_blocking(self, url: &str) -> Result<Report, Error> {
        let open =
            || PgConnection::establish(url).map_err(|error| Error::of_connecting(error, url));
        let (mut conn, mut second) = (open()?, open()?);
        answered(lock::verify(&mut conn, &mut second)).map_err(Error::of_lock)?;
        drop(second);
        self.run_blocking_on(&mut conn)
    }

    /// Runs the pending migrations on a blocking connection of yours; as [`run_on`](Self::run_on), but it does not look for a pooler.
    ///
    /// The connection stays usable, also after an error and after a panic of a callback, unless it was lost.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_blocking_on(self, conn: &mut PgConnection) -> Result<Report, Error> {
        let (report, _) = answered(migrate(conn, self))?;
        Ok(report)
    }
}
