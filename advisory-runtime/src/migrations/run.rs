//! A run: connects, waits for the lock, passes the connection to the migrations, and releases the
//! lock.

use super::apply::Run;
use super::connection::{Lock, Session, applied};
use super::error::Error;
use super::step::{Holder, OnStep, Step};
use super::{Action, Migrator, Report};
use crate::driver::depth;
use crate::error::{Marker, is_connection_lost};
use crate::lock::{self, PoolPoll};
use crate::monitor::{self, HolderId, Names};
use crate::pooler;
use crate::{Error as LockError, Request, Wait, sql};
use diesel::migration::MigrationSource as _;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const REPORT: Duration = Duration::from_secs(1);

/// The shortest pause between two tries; the longest is eight times that.
const POLL: Duration = Duration::from_millis(100);

/// Opens a connection for the run, and checks that no pooler shares its session.
#[cfg(feature = "diesel-async")]
pub(super) async fn connect(url: &str) -> Result<diesel_async::AsyncPgConnection, Error> {
    use diesel_async::{AsyncConnection, AsyncPgConnection};

    let refused = |error| Error::of_connecting(error, url);
    let mut conn = AsyncPgConnection::establish(url).await.map_err(refused)?;
    if !pooler::is_direct(&mut conn).await.map_err(Error::of_lock)? {
        let mut second = AsyncPgConnection::establish(url).await.map_err(refused)?;
        pooler::verify(&mut conn, &mut second)
            .await
            .map_err(Error::of_lock)?;
    }
    Ok(conn)
}

pub(crate) async fn migrate<S: Session>(
    mut conn: S,
    mut migrator: Migrator,
) -> Result<(Report, S), Error> {
    if let Err(error) = pooler::check_pooler(conn.driver()).await {
        return Err(match Marker::of(&error) {
            Some(Marker::PooledSession) => Error::Pooler,
            _ => Error::of_lock(LockError::Database(error)),
        });
    }
    let present = applied(conn.driver()).await;
    let present = present.map_err(|error| Error::Source(error.into()))?;
    if !has_work(&migrator, &present)? {
        return Ok((Report::default(), conn));
    }
    let started = Instant::now();
    let wait = migrator.wait.map_or(Wait::Forever, Wait::For);
    let request = migrator.request.clone().wait(wait);
    let is_test = !matches!(depth(conn.driver()), Ok(None));
    let lock = acquire(conn, request, &mut migrator.on_step, started).await?;
    let acquired = lock.info();
    let check = sql::probe::holds_all(acquired.held(), acquired.mode);
    let report = Report {
        waited: started.elapsed(),
        ..Report::default()
    };
    let work = move |harness: &mut S::Harness, is_stopped: &AtomicBool| {
        let run = Run {
            harness,
            is_stopped,
            migrator,
            check,
            is_test,
            report,
        };
        run.run()
    };
    let Some((lock, done)) = S::work(lock, work).await else {
        let cause = diesel::result::Error::BrokenTransactionManager;
        return Err(Error::Source(cause.into()));
    };
    let released = lock.end(true).await;
    let report = done?;
    match released {
        Ok(conn) => Ok((report, conn)),
        Err(source) => Err(Error::ConnectionLost {
            migration: None,
            report,
            source: source.into(),
        }),
    }
}

fn has_work(migrator: &Migrator, present: &[String]) -> Result<bool, Error> {
    // A run that reverts reads them too: two migrations of one version are always refused.
    let known = (&migrator.sources).migrations().map_err(Error::Source)?;
    let mut versions = known.iter().map(|known| known.name().version().to_string());
    Ok(match migrator.action {
        Action::Apply(_) if migrator.is_always => true,
        Action::Apply(count) => count > 0 && versions.any(|version| !present.contains(&version)),
        Action::Revert(count) => count > 0 && !present.is_empty(),
    })
}

async fn acquire<S: Session>(
    mut conn: S,
    request: Request,
    on_step: &mut OnStep,
    started: Instant,
) -> Result<Lock<S>, Error> {
    let mut tries = PoolPoll::session(request.clone().poll(POLL));
    let (mut seen, mut reported) = (HashMap::new(), None::<Instant>);
    loop {
        let ended = match lock::try_owned(&mut tries, conn, S::driver).await {
            Ok(lock) => return Ok(lock),
            Err((ended, back)) => {
                conn = back;
                ended
            }
        };
        match ended {
            Some(error) if !error.is_busy() => return Err(Error::of_lock(error)),
            Some(_) => {
                let holders = holders(&mut conn, &request, &mut seen).await?;
                let waited = started.elapsed();
                return Err(Error::TimedOut { holders, waited });
            }
            None if reported.is_none_or(|reported| reported.elapsed() >= REPORT) => {
                let holders = holders(&mut conn, &request, &mut seen).await?;
                on_step.report(&Step::Waiting { holders });
                reported = Some(Instant::now());
            }
            None => {}
        }
        tries.pause::<S::Driver>().await;
    }
}

/// Reads the holders of the lock. Returns none if the server refuses the statement, because they
/// are only for a message. `seen` maps each holder's process id to when this run first saw it.
async fn holders<S: Session>(
    conn: &mut S,
    request: &Request,
    seen: &mut HashMap<i32, Instant>,
) -> Result<Vec<Holder>, Error> {
    let locks = match monitor::read(conn.driver(), &Names::none()).await {
        Ok(locks) => locks,
        Err(LockError::Database(error)) if !is_connection_lost(&error) => return Ok(Vec::new()),
        Err(error) => return Err(Error::of_lock(error)),
    };
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
