//! A run: connects, waits for the lock, reads what is pending, applies it, and releases the lock.

use super::error::Error;
use super::session::{Session, applied};
use super::step::{Holder, Step};
use super::{Migrator, OnStep, Report};
use crate::error::Marker;
use crate::lock::{self, OwnedLock, Tries};
use crate::monitor::HolderId;
use crate::{Error as LockError, Request, Wait, sql};
use diesel::connection::SimpleConnection;
use diesel::migration::{Migration, MigrationSource};
use diesel::pg::Pg;
use diesel_migrations::MigrationHarness;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a waiting run reports the holders.
const REPORT: Duration = Duration::from_secs(1);

/// The shortest pause between two tries; it grows to eight times that.
const POLL: Duration = Duration::from_millis(100);

/// Opens a connection for the run, and checks that no pooler shares its session.
pub(super) async fn connect<D: Session>(url: &str) -> Result<D, Error> {
    let mut conn = D::open(url).await?;
    let is_direct = match conn.told_process_id() {
        Some(process) => lock::is_answered_by(&mut conn, process).await?,
        None => false,
    };
    if !is_direct {
        let mut second = D::open(url).await?;
        lock::verify(&mut conn, &mut second).await?;
    }
    Ok(conn)
}

pub(super) async fn migrate<D: Session, S>(
    mut conn: D,
    mut migrator: Migrator<S>,
) -> Result<Report, Error>
where
    S: MigrationSource<Pg> + Send + 'static,
{
    if let Err(error) = lock::check_pooler(&mut conn).await {
        return Err(match Marker::of(&error) {
            Some(Marker::PooledSession) => Error::Pooler,
            _ => LockError::Database(error).into(),
        });
    }
    let present = match applied(&mut conn).await {
        Ok(present) => present,
        Err(error) => return Err(Error::Source(error.into())),
    };
    let known = migrator.source.migrations();
    if known
        .map_err(Error::Source)?
        .iter()
        .all(|known| present.contains(&known.name().version().to_string()))
    {
        return Ok(Report::default());
    }
    let started = Instant::now();
    let lock = acquire(conn, &mut migrator, started).await?;
    let waited = started.elapsed();
    let check = sql::session::check(lock.acquired().held(), lock.acquired().mode);
    let apply = move |harness: &mut D::Harness, is_stopped: &AtomicBool| {
        let applying = Applying {
            harness,
            is_stopped,
            check: &check,
            on_step: &mut migrator.on_step,
            applied: Vec::new(),
        };
        applying.apply(&migrator.source, waited)
    };
    let Some((lock, applied)) = lock.lend(|conn| conn.work(apply)).await else {
        let cause = diesel::result::Error::BrokenTransactionManager;
        return Err(Error::Source(cause.into()));
    };
    let released = lock.finish().await;
    let applied = applied?;
    match released {
        Ok(_) => Ok(Report { applied, waited }),
        Err(failed) => Err(Error::ConnectionLost {
            migration: None,
            applied,
            source: failed.error.into(),
        }),
    }
}

/// Tries to take the lock again and again, and reports who holds it.
async fn acquire<D: Session, S>(
    mut conn: D,
    migrator: &mut Migrator<S>,
    started: Instant,
) -> Result<OwnedLock<D, D>, Error> {
    let wait = migrator.wait.map_or(Wait::Forever, Wait::For);
    let request = migrator.request.clone().wait(wait).poll(POLL);
    let mut tries = Tries::session(request);
    let (mut seen, mut reported) = (HashMap::new(), None::<Instant>);
    loop {
        let ended = match lock::try_owned(&mut tries, conn, |conn| conn).await {
            Ok(lock) => return Ok(lock),
            Err((ended, back)) => {
                conn = back;
                ended
            }
        };
        match ended {
            Some(error) if !error.is_busy() => return Err(error.into()),
            Some(_) => {
                let holders = holders(&mut conn, &migrator.request, &mut seen).await?;
                let waited = started.elapsed();
                return Err(Error::TimedOut { holders, waited });
            }
            None if reported.is_none_or(|reported| reported.elapsed() >= REPORT) => {
                let holders = holders(&mut conn, &migrator.request, &mut seen).await?;
                migrator.on_step.report(&Step::Waiting { holders });
                reported = Some(Instant::now());
            }
            None => {}
        }
        tries.pause::<D>().await;
    }
}

/// Who holds the lock. `seen` has since when this run has seen each process hold it.
async fn holders<D: Session>(
    conn: &mut D,
    request: &Request,
    seen: &mut HashMap<i32, Instant>,
) -> Result<Vec<Holder>, Error> {
    let locks = conn.locks().await?;
    let now = Instant::now();
    let mut holders = Vec::new();
    let of_key = locks.locks.iter();
    let of_key = of_key.filter(|lock| request.keys.contains(&lock.key));
    for holder in of_key.flat_map(|lock| &lock.holders) {
        let HolderId::Backend(pid) = holder.id else {
            continue;
        };
        let backend = locks.backend(pid);
        holders.push(Holder {
            pid,
            application: backend.map_or_else(String::new, |known| known.application.clone()),
            since: now.duration_since(*seen.entry(pid).or_insert(now)),
        });
    }
    seen.retain(|pid, _| holders.iter().any(|holder| holder.pid == *pid));
    Ok(holders)
}

/// Applies pending migrations under the lock.
struct Applying<'r, H> {
    harness: &'r mut H,
    is_stopped: &'r AtomicBool,
    /// Fails if the session does not hold the lock.
    check: &'r str,
    on_step: &'r mut OnStep,
    applied: Vec<String>,
}

impl<H: MigrationHarness<Pg> + SimpleConnection> Applying<'_, H> {
    fn apply<S: MigrationSource<Pg>>(
        mut self,
        source: &S,
        waited: Duration,
    ) -> Result<Vec<String>, Error> {
        let all = self.pending(source)?;
        let pending = all.len();
        self.on_step.report(&Step::Locked { pending, waited });
        for (number, migration) in (1..).zip(&all) {
            if self.is_stopped.load(Ordering::Relaxed) {
                break;
            }
            if number > 1 {
                self.check_lock()?;
            }
            self.run(&**migration, number, pending)?;
        }
        if pending > 0 {
            self.check_lock()?;
        }
        Ok(self.applied)
    }

    /// The migrations that are not applied now, in their order.
    fn pending<S: MigrationSource<Pg>>(
        &mut self,
        source: &S,
    ) -> Result<Vec<Box<dyn Migration<Pg>>>, Error> {
        let applied = match self.harness.applied_migrations() {
            Ok(applied) => applied,
            Err(error) => return Err(self.lost(None).unwrap_or(Error::Source(error))),
        };
        let mut pending = source.migrations().map_err(Error::Source)?;
        pending.retain(|migration| !applied.contains(&migration.name().version().as_owned()));
        pending.sort_unstable_by(|one, other| one.name().version().cmp(&other.name().version()));
        Ok(pending)
    }

    fn run(
        &mut self,
        migration: &dyn Migration<Pg>,
        number: usize,
        of: usize,
    ) -> Result<(), Error> {
        let name = migration.name().to_string();
        self.on_step.report(&Step::Running {
            migration: name.clone(),
            number,
            of,
        });
        let started = Instant::now();
        if let Err(source) = self.harness.run_migration(migration) {
            return Err(self.lost(Some(&name)).unwrap_or_else(|| Error::Migration {
                migration: name,
                applied: std::mem::take(&mut self.applied),
                source,
            }));
        }
        self.applied.push(name.clone());
        self.on_step.report(&Step::Done {
            migration: name,
            took: started.elapsed(),
        });
        Ok(())
    }

    fn check_lock(&mut self) -> Result<(), Error> {
        let Err(source) = self.harness.batch_execute(self.check) else {
            return Ok(());
        };
        if Marker::of(&source) == Some(Marker::LockLost) {
            let applied = std::mem::take(&mut self.applied);
            return Err(Error::LockLost { applied });
        }
        let lost = self.lost(None);
        Err(lost.unwrap_or_else(|| LockError::Database(source).into()))
    }

    /// Rolls back what has failed. Returns an error if the connection is lost.
    fn lost(&mut self, migration: Option<&str>) -> Option<Error> {
        let source = self.harness.batch_execute(sql::ROLLBACK).err()?;
        Some(Error::ConnectionLost {
            migration: migration.map(str::to_owned),
            applied: std::mem::take(&mut self.applied),
            source: source.into(),
        })
    }
}
