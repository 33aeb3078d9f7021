//! A run: connect, wait, look again, apply, release.

use super::error::Error;
use super::session::{Harness, Session, applied};
use super::step::{Holder, Step};
use super::{Migrator, OnStep, Report};
use crate::error::Marker;
use crate::lock::{self, OwnedLock, Tries};
use crate::monitor::HolderId;
use crate::{Error as LockError, Request, Wait, sql};
use diesel::migration::{Migration, MigrationSource};
use diesel::pg::Pg;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a run says for whom it waits.
const SAYING: Duration = Duration::from_secs(1);

/// The shortest pause between two tries; they grow to eight times that.
const POLL: Duration = Duration::from_millis(100);

/// Opens a connection for the run, and makes sure that it is the session's own.
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
    lock::check_pooler(&mut conn).await.map_err(not_asked)?;
    let known = versions(&migrator.source)?;
    let present = applied(&mut conn).await.map_err(not_read)?;
    if known.iter().all(|version| present.contains(version)) {
        return Ok(Report::default());
    }
    let started = Instant::now();
    let lock = acquire(conn, &mut migrator, started).await?;
    let waited = started.elapsed();
    let check = sql::session::check(lock.acquired().held(), lock.acquired().mode);
    let apply = move |harness: &mut dyn Harness, is_stopped: &AtomicBool| {
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

fn versions<S: MigrationSource<Pg>>(source: &S) -> Result<Vec<String>, Error> {
    let migrations = source.migrations().map_err(Error::Source)?;
    let versions = migrations
        .iter()
        .map(|one| one.name().version().to_string());
    Ok(versions.collect())
}

fn not_asked(error: diesel::result::Error) -> Error {
    match Marker::of(&error) {
        Some(Marker::PooledSession) => Error::Pooler,
        _ => LockError::Database(error).into(),
    }
}

fn not_read(error: diesel::result::Error) -> Error {
    Error::Source(error.into())
}

/// Asks for the lock again and again, and says for whom it waits.
async fn acquire<D: Session, S>(
    mut conn: D,
    migrator: &mut Migrator<S>,
    started: Instant,
) -> Result<OwnedLock<D, D>, Error> {
    let wait = migrator.wait.map_or(Wait::Forever, Wait::For);
    let request = migrator.request.clone().wait(wait).poll(POLL);
    let mut tries = Tries::session(request);
    let (mut seen, mut said) = (Seen::default(), None::<Instant>);
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
            None if said.is_none_or(|said| said.elapsed() >= SAYING) => {
                let holders = holders(&mut conn, &migrator.request, &mut seen).await?;
                migrator.on_step.say(&Step::Waiting { holders });
                said = Some(Instant::now());
            }
            None => {}
        }
        tries.pause::<D>().await;
    }
}

/// The processes that were seen to hold the lock, and since when.
#[derive(Default)]
struct Seen(Vec<(i32, Instant)>);

impl Seen {
    fn since(&self, pid: i32) -> Option<Instant> {
        let mut of = self.0.iter().filter(|(seen, _)| *seen == pid);
        of.next().map(|(_, since)| *since)
    }
}

async fn holders<D: Session>(
    conn: &mut D,
    request: &Request,
    seen: &mut Seen,
) -> Result<Vec<Holder>, Error> {
    let locks = conn.locks().await?;
    let now = Instant::now();
    let of_key = locks
        .locks
        .iter()
        .filter(|lock| request.keys.contains(&lock.key));
    let pids = of_key
        .flat_map(|lock| &lock.holders)
        .filter_map(|holder| match holder.id {
            HolderId::Backend(pid) => Some(pid),
            HolderId::Prepared { .. } => None,
        });
    let pids: Vec<_> = pids
        .map(|pid| (pid, seen.since(pid).unwrap_or(now)))
        .collect();
    let holders = pids.iter().map(|(pid, since)| Holder {
        pid: *pid,
        application: locks
            .backend(*pid)
            .map(|backend| backend.application.clone())
            .unwrap_or_default(),
        since: now.duration_since(*since),
    });
    let holders = holders.collect();
    seen.0 = pids;
    Ok(holders)
}

/// Pending migrations being applied, under the lock.
struct Applying<'r> {
    harness: &'r mut dyn Harness,
    is_stopped: &'r AtomicBool,
    /// Fails where the session does not hold the lock.
    check: &'r str,
    on_step: &'r mut OnStep,
    applied: Vec<String>,
}

impl Applying<'_> {
    fn apply<S: MigrationSource<Pg>>(
        mut self,
        source: &S,
        waited: Duration,
    ) -> Result<Vec<String>, Error> {
        let pending = self.pending(source)?;
        let of = pending.len();
        self.on_step.say(&Step::Locked {
            pending: of,
            waited,
        });
        for (number, migration) in (1..).zip(&pending) {
            if self.is_stopped.load(Ordering::Relaxed) {
                break;
            }
            if number > 1 {
                self.check_lock()?;
            }
            self.run(&**migration, number, of)?;
        }
        if of > 0 {
            self.check_lock()?;
        }
        Ok(self.applied)
    }

    /// Those that are not applied, as of now, in their order.
    fn pending<S: MigrationSource<Pg>>(
        &mut self,
        source: &S,
    ) -> Result<Vec<Box<dyn Migration<Pg>>>, Error> {
        let applied = match self.harness.applied() {
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
        self.on_step.say(&Step::Running {
            migration: name.clone(),
            number,
            of,
        });
        let started = Instant::now();
        if let Err(source) = self.harness.run(migration) {
            return Err(self.lost(Some(&name)).unwrap_or_else(|| Error::Migration {
                migration: name,
                applied: std::mem::take(&mut self.applied),
                source,
            }));
        }
        self.applied.push(name.clone());
        self.on_step.say(&Step::Done {
            migration: name,
            took: started.elapsed(),
        });
        Ok(())
    }

    fn check_lock(&mut self) -> Result<(), Error> {
        let Err(source) = self.harness.execute(self.check) else {
            return Ok(());
        };
        if Marker::of(&source) == Some(Marker::LockLost) {
            let applied = std::mem::take(&mut self.applied);
            return Err(Error::LockLost { applied });
        }
        Err(self
            .lost(None)
            .unwrap_or_else(|| LockError::Database(source).into()))
    }

    /// Leaves a transaction that has failed. The error where the connection is lost.
    fn lost(&mut self, migration: Option<&str>) -> Option<Error> {
        let source = self.harness.execute(sql::ROLLBACK).err()?;
        Some(Error::ConnectionLost {
            migration: migration.map(str::to_owned),
            applied: std::mem::take(&mut self.applied),
            source: source.into(),
        })
    }
}
