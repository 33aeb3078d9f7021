//! Applies or reverts migrations under the lock.

use super::error::{BoxedError, Error};
use super::sources::{self, Migrations, Sources, version};
use super::step::Step;
use super::{Action, Before, OnStep, Report};
use crate::error::{Marker, is_connection_lost};
use crate::{Error as LockError, sql};
use diesel::connection::BoxableConnection;
use diesel::migration::{Migration, MigrationVersion};
use diesel::pg::Pg;
use diesel_migrations::MigrationHarness;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LEFT_OPEN: &str = "it left a transaction open, which was rolled back: end it with `COMMIT`, or leave the transaction to Diesel, which \
     begins one unless `run_in_transaction` is `false`";

/// What a run does, apart from its connection.
pub(super) struct Work {
    pub(super) sources: Sources,
    pub(super) action: Action,
    pub(super) before: Option<Box<Before>>,
    pub(super) on_step: OnStep,
    /// Fails if the session does not hold the lock.
    pub(super) check: String,
    /// Whether the connection is in the transaction that a test began.
    pub(super) is_test: bool,
    pub(super) waited: Duration,
}

impl Work {
    pub(super) fn run<H>(self, harness: &mut H, is_stopped: &AtomicBool) -> Result<Report, Error>
    where
        H: MigrationHarness<Pg> + BoxableConnection<Pg>,
    {
        let report = Report {
            waited: self.waited,
            ..Report::default()
        };
        let running = Running {
            harness,
            is_stopped,
            check: &self.check,
            is_test: self.is_test,
            sources: &self.sources,
            on_step: self.on_step,
            report,
        };
        match self.action {
            Action::Apply => running.apply(self.before),
            Action::Revert(count) => running.revert(count),
        }
    }
}

struct Running<'r, H> {
    harness: &'r mut H,
    is_stopped: &'r AtomicBool,
    check: &'r str,
    is_test: bool,
    sources: &'r Sources,
    on_step: OnStep,
    report: Report,
}

impl<H: MigrationHarness<Pg> + BoxableConnection<Pg>> Running<'_, H> {
    fn apply(mut self, before: Option<Box<Before>>) -> Result<Report, Error> {
        if self.is_stopped() {
            return Ok(self.report);
        }
        let mut pending = self.pending()?;
        self.report_locked(pending.len(), 0);
        if let Some(before) = before.filter(|_| !pending.is_empty() && !self.is_stopped()) {
            let done = before(&mut *self.harness).and_then(|()| self.check_transaction());
            if let Err(source) = done {
                return Err(self.lost(None).unwrap_or(Error::Before(source)));
            }
            self.check_lock()?;
            // It can have applied some, or marked them as applied.
            pending = self.pending()?;
        }
        let mut is_first = true;
        while let Some(migration) = pending.first() {
            if self.is_stopped() {
                break;
            }
            if !std::mem::take(&mut is_first) {
                self.check_lock()?;
            }
            match self.run(&**migration, pending.len())? {
                None => drop(pending.remove(0)),
                Some(others) => pending = others,
            }
        }
        if !is_first {
            self.check_lock()?;
        }
        Ok(self.report)
    }

    /// Applies one of so many pending migrations. If it failed because another program has applied it, one that does not take the lock of
    /// this run, the answer is the migrations that are pending now: that program may have applied others too.
    fn run(
        &mut self,
        migration: &dyn Migration<Pg>,
        pending: usize,
    ) -> Result<Option<Migrations>, Error> {
        let name = migration.name().to_string();
        let done = self.report.applied.len();
        self.on_step.report(&Step::Running {
            migration: name.clone(),
            number: done + 1,
            of: done + pending,
        });
        let started = Instant::now();
        let ran = self.harness.run_migration(migration);
        if let Err(source) = ran.and_then(|_| self.check_transaction()) {
            if let Some(lost) = self.lost(Some(&name)) {
                return Err(lost);
            }
            let failed = version(migration);
            match self.pending() {
                Ok(others) if others.iter().all(|one| version(&**one) != failed) => {
                    self.on_step.report(&Step::Skipped { migration: name });
                    return Ok(Some(others));
                }
                // The list cannot be read: the migration's own error says more, and has what was applied before.
                Ok(_) | Err(Error::Source(_)) => {}
                Err(lost) => return Err(lost),
            }
            return Err(Error::Migration {
                migration: name,
                report: self.take_report(),
                source,
            });
        }
        self.report.applied.push(name.clone());
        self.report_done(name, started);
        Ok(None)
    }

    /// Reverts the last migrations, so many at most.
    fn revert(mut self, count: usize) -> Result<Report, Error> {
        let applied = self.applied()?;
        let last = &applied[..count.min(applied.len())];
        let of = last.len();
        self.report_locked(0, of);
        let mut known = sources::all(self.sources)?;
        // Before the first is reverted: the order of the others would be wrong.
        let mut reverting = Vec::new();
        for applied in last {
            let known_at = known.iter().position(|known| version(&**known) == *applied);
            match known_at {
                Some(at) => reverting.push(known.swap_remove(at)),
                None => return Err(Error::Source(unknown(applied).into())),
            }
        }
        for (number, migration) in (1..).zip(&reverting) {
            if self.is_stopped() {
                break;
            }
            if number > 1 {
                self.check_lock()?;
            }
            let name = migration.name().to_string();
            self.on_step.report(&Step::Reverting {
                migration: name.clone(),
                number,
                of,
            });
            let started = Instant::now();
            let reverted = self.harness.revert_migration(&**migration);
            if let Err(source) = reverted.and_then(|_| self.check_transaction()) {
                return Err(self.lost(Some(&name)).unwrap_or_else(|| Error::Revert {
                    migration: name,
                    report: self.take_report(),
                    source,
                }));
            }
            self.report.reverted.push(name.clone());
            self.report_done(name, started);
        }
        if of > 0 {
            self.check_lock()?;
        }
        Ok(self.report)
    }

    /// The versions that are applied now, the last one first.
    fn applied(&mut self) -> Result<Vec<MigrationVersion<'static>>, Error> {
        match self.harness.applied_migrations() {
            Ok(applied) => Ok(applied),
            Err(error) => Err(self.lost(None).unwrap_or(Error::Source(error))),
        }
    }

    /// The migrations that are not applied now, in their order.
    fn pending(&mut self) -> Result<Migrations, Error> {
        let applied = self.applied()?;
        let mut pending = sources::all(self.sources)?;
        pending.retain(|migration| !applied.contains(&version(&**migration)));
        Ok(pending)
    }

    fn check_lock(&mut self) -> Result<(), Error> {
        let Err(source) = self.harness.batch_execute(self.check) else {
            return Ok(());
        };
        if Marker::of(&source) == Some(Marker::LockLost) {
            let report = self.take_report();
            return Err(Error::LockLost { report });
        }
        let lost = self.lost(None);
        Err(lost.unwrap_or_else(|| Error::of_lock(LockError::Database(source))))
    }

    /// Whether the run was dropped.
    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Fails if a transaction is open that Diesel does not know of: what was done in it is not committed.
    fn check_transaction(&mut self) -> Result<(), BoxedError> {
        if self.is_test {
            return Ok(());
        }
        match self
            .harness
            .batch_execute(&sql::probe::check_session(false))
        {
            Err(error) if Marker::of(&error) == Some(Marker::ForeignTransaction) => {
                Err(LEFT_OPEN.into())
            }
            // Another error comes again where the lock is checked.
            _ => Ok(()),
        }
    }

    /// Rolls back what has failed, except for a test's transaction. Returns an error if the connection is lost.
    fn lost(&mut self, migration: Option<&str>) -> Option<Error> {
        let source = if self.is_test {
            let failed = self.harness.batch_execute(sql::probe::ALIVE).err();
            failed.filter(is_connection_lost)?
        } else {
            self.harness.batch_execute(sql::ROLLBACK).err()?
        };
        Some(Error::ConnectionLost {
            migration: migration.map(str::to_owned),
            report: self.take_report(),
            source: source.into(),
        })
    }

    fn report_locked(&mut self, pending: usize, reverts: usize) {
        self.on_step.report(&Step::Locked {
            pending,
            reverts,
            waited: self.report.waited,
        });
    }

    fn report_done(&mut self, migration: String, started: Instant) {
        let took = started.elapsed();
        self.on_step.report(&Step::Done { migration, took });
    }

    fn take_report(&mut self) -> Report {
        std::mem::take(&mut self.report)
    }
}

fn unknown(version: &MigrationVersion<'_>) -> String {
    format!(
        "migration `{version}` is applied, and none of the sources has it: add the source that it came from"
    )
}
