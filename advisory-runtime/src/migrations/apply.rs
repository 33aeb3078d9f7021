//! The part of a run under the lock: the hooks, and Diesel's harness for each migration.

use super::error::{BoxedError, Error};
use super::sources::version;
use super::step::Step;
use super::{Action, Hook, Migrator, Report};
use crate::error::{Marker, is_connection_lost};
use crate::{Error as LockError, sql};
use diesel::connection::BoxableConnection;
use diesel::migration::{Migration, MigrationSource as _, MigrationVersion};
use diesel::pg::Pg;
use diesel_migrations::MigrationHarness;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const LEFT_OPEN: &str = "it left a transaction open, which was rolled back: end it with `COMMIT`, \
     or leave the transaction to Diesel, which begins one unless `run_in_transaction` is `false`";

/// A run on the connection that holds the lock.
pub(super) struct Run<'r, H> {
    pub(super) harness: &'r mut H,
    pub(super) is_stopped: &'r AtomicBool,
    pub(super) migrator: Migrator,
    /// Fails if the session does not hold the lock.
    pub(super) check: String,
    /// True if the connection is in the transaction that a test began.
    pub(super) is_test: bool,
    pub(super) report: Report,
}

type Migrations = Vec<Box<dyn Migration<Pg>>>;

impl<H: MigrationHarness<Pg> + BoxableConnection<Pg>> Run<'_, H> {
    /// Runs the migrations until `is_stopped`.
    pub(super) fn run(mut self) -> Result<Report, Error> {
        if !self.is_stopped() {
            match self.migrator.action {
                Action::Apply(count) => self.apply(count)?,
                Action::Revert(count) => self.revert(count)?,
            }
        }
        Ok(self.report)
    }

    fn apply(&mut self, count: usize) -> Result<(), Error> {
        let mut pending = self.pending()?;
        self.report_locked(pending.len().min(count), 0);
        let runs_hooks = self.migrator.is_always || !pending.is_empty();
        if let Some(before) = self.migrator.before.take().filter(|_| runs_hooks) {
            self.call(before, |_, source| Error::Before(source))?;
            // The function may have applied some, or marked them as applied.
            pending = self.pending()?;
        }
        let mut rest = count;
        while rest > 0 && !self.is_stopped() && !pending.is_empty() {
            let done = self.report.applied.len();
            match self.step(&*pending[0], done + 1, done + pending.len().min(rest)) {
                Ok(()) => {
                    pending.remove(0);
                    rest -= 1;
                }
                Err(error) => pending = self.skip(&*pending[0], error)?,
            }
        }
        if let Some(after) = self.migrator.after.take().filter(|_| runs_hooks) {
            self.call(after, |report, source| Error::After { report, source })?;
        }
        Ok(())
    }

    fn call(
        &mut self,
        hook: Box<Hook>,
        error: fn(Report, BoxedError) -> Error,
    ) -> Result<(), Error> {
        if self.is_stopped() {
            return Ok(());
        }
        let done = hook(&mut *self.harness).and_then(|()| self.check_transaction());
        if let Err(source) = done {
            let lost = self.lost(None);
            return Err(lost.unwrap_or_else(|| error(mem::take(&mut self.report), source)));
        }
        self.check_lock()
    }

    /// Applies or reverts one migration, then checks the transaction and the lock.
    fn step(
        &mut self,
        migration: &dyn Migration<Pg>,
        number: usize,
        of: usize,
    ) -> Result<(), Error> {
        let name = migration.name().to_string();
        let is_revert = matches!(self.migrator.action, Action::Revert(_));
        let (begun, started) = (name.clone(), Instant::now());
        let (step, act): (_, fn(&mut H, _) -> _) = if is_revert {
            let step = Step::Reverting {
                migration: begun,
                number,
                of,
            };
            (step, H::revert_migration)
        } else {
            let step = Step::Running {
                migration: begun,
                number,
                of,
            };
            (step, H::run_migration)
        };
        self.migrator.on_step.report(&step);
        let done = act(self.harness, migration);
        if let Err(source) = done.and_then(|_| self.check_transaction()) {
            if let Some(lost) = self.lost(Some(&name)) {
                return Err(lost);
            }
            let report = self.report.clone();
            let migration = name;
            return Err(if is_revert {
                Error::Revert {
                    migration,
                    report,
                    source,
                }
            } else {
                Error::Migration {
                    migration,
                    report,
                    source,
                }
            });
        }
        let report = &mut self.report;
        let done = if is_revert {
            &mut report.reverted
        } else {
            &mut report.applied
        };
        done.push(name.clone());
        let took = started.elapsed();
        self.migrator.on_step.report(&Step::Done {
            migration: name,
            took,
        });
        self.check_lock()
    }

    /// Returns the migrations that are pending now if this one failed because a program that does
    /// not take the lock has applied it: that program may have applied others too. Returns the
    /// migration's error otherwise.
    fn skip(&mut self, migration: &dyn Migration<Pg>, error: Error) -> Result<Migrations, Error> {
        if !matches!(error, Error::Migration { .. }) {
            return Err(error);
        }
        let failed = version(migration);
        match self.pending() {
            Ok(others) if others.iter().all(|one| version(&**one) != failed) => {
                let migration = migration.name().to_string();
                let step = Step::Skipped { migration };
                self.migrator.on_step.report(&step);
                Ok(others)
            }
            // The list cannot be read: the migration's own error says more.
            Ok(_) | Err(Error::Source(_)) => Err(error),
            Err(lost) => Err(lost),
        }
    }

    fn revert(&mut self, count: usize) -> Result<(), Error> {
        let applied = self.applied()?;
        let last = &applied[..count.min(applied.len())];
        let of = last.len();
        self.report_locked(0, of);
        let known = (&self.migrator.sources).migrations();
        let mut known = known.map_err(Error::Source)?;
        // Diesel's harness would revert the later ones before it fails at an unknown one.
        let mut reverting = Vec::new();
        for applied in last {
            let Some(at) = known.iter().position(|known| version(&**known) == *applied) else {
                let unknown = format!(
                    "migration `{applied}` is applied, and none of the sources has it: add the \
                         source that it came from"
                );
                return Err(Error::Source(unknown.into()));
            };
            reverting.push(known.swap_remove(at));
        }
        for (number, migration) in (1..).zip(&reverting) {
            if self.is_stopped() {
                break;
            }
            self.step(&**migration, number, of)?;
        }
        Ok(())
    }

    /// Reads the versions that are applied now, the last one first.
    fn applied(&mut self) -> Result<Vec<MigrationVersion<'static>>, Error> {
        let applied = self.harness.applied_migrations();
        applied.map_err(|error| self.lost(None).unwrap_or(Error::Source(error)))
    }

    /// Reads the migrations that are pending now, in their order.
    fn pending(&mut self) -> Result<Migrations, Error> {
        let pending = self.harness.pending_migrations(&self.migrator.sources);
        pending.map_err(|error| self.lost(None).unwrap_or(Error::Source(error)))
    }

    fn check_lock(&mut self) -> Result<(), Error> {
        let Err(source) = self.harness.batch_execute(&self.check) else {
            return Ok(());
        };
        if Marker::of(&source) == Some(Marker::LockLost) {
            let report = mem::take(&mut self.report);
            return Err(Error::LockLost { report });
        }
        let lost = self.lost(None);
        Err(lost.unwrap_or_else(|| Error::of_lock(LockError::Database(source))))
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Fails if a transaction is open that Diesel does not know of and would not commit.
    fn check_transaction(&mut self) -> Result<(), BoxedError> {
        if self.is_test {
            return Ok(());
        }
        let check = sql::probe::check_session(false);
        match self.harness.batch_execute(&check) {
            Err(error) if Marker::of(&error) == Some(Marker::ForeignTransaction) => {
                Err(LEFT_OPEN.into())
            }
            // `check_lock`, which follows, reports any other error.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Rolls back a transaction that has failed, except for a test's. Returns an error if the
    /// connection is lost.
    fn lost(&mut self, migration: Option<&str>) -> Option<Error> {
        let source = if self.is_test {
            let failed = self.harness.batch_execute(sql::probe::ALIVE).err();
            failed.filter(is_connection_lost)?
        } else {
            self.harness.batch_execute(sql::ROLLBACK).err()?
        };
        Some(Error::ConnectionLost {
            migration: migration.map(str::to_owned),
            report: mem::take(&mut self.report),
            source: source.into(),
        })
    }

    fn report_locked(&mut self, pending: usize, reverts: usize) {
        let waited = self.report.waited;
        self.migrator.on_step.report(&Step::Locked {
            pending,
            reverts,
            waited,
        });
    }
}
