//! Which operation comes next, and what is recorded of it?
//!
//! In turn bookings in all their ways, bookings through the line of this process, and leases; with a bug in place of the lock too.

use crate::assignment::Assignment;
use crate::bug::Bug;
use crate::chance::Chance;
use crate::clock::{self, pass};
use crate::history::Log;
use crate::job::{self, Job};
use crate::outcome::{self, Outcome};
use crate::rival;
use crate::visit::{self, Booked, Manner, Visit};
use advisory_runtime::Error;
use advisory_runtime::lease::{self, Lease, Leases, Request};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::{Object, Pool};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// How many operations a task makes on one connection before it gives it back.
const TURNS: u32 = 8;
/// How long it waits for one.
const PATIENCE: Duration = Duration::from_millis(150);
/// How many slots are fought for at a time, and how soon the next one takes the place of the first, in microseconds.
const SLOTS: u32 = 12;
const PACE: i64 = 4_000;
const JOBS: u32 = 4;
/// The job of the leader, and what histories call the work that is done once.
const LEADER: i64 = 50;
const ONCE: i64 = 1_000;

/// The load of one process.
pub(crate) struct Load {
    told: Assignment,
    log: Log,
    pool: Pool<AsyncPgConnection>,
    leases: Leases<Pool<AsyncPgConnection>>,
    next: AtomicI64,
    last_success: AtomicI64,
    is_over: AtomicBool,
}

impl Load {
    pub(crate) fn new(told: Assignment, pool: Pool<AsyncPgConnection>) -> io::Result<Self> {
        Ok(Self {
            log: Log::create(&told.log)?,
            leases: Leases::new(pool.clone()),
            pool,
            next: AtomicI64::new(told.number << 32),
            last_success: AtomicI64::new(0),
            is_over: AtomicBool::new(false),
            told,
        })
    }

    /// Has each task end behind its operation.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// The time of the last success, and how many operations were begun.
    pub(crate) fn progress(&self) -> (i64, i64) {
        (
            self.last_success.load(Ordering::Relaxed),
            self.next.load(Ordering::Relaxed) & 0xffff_ffff,
        )
    }

    /// One operation after the other, until the load is over.
    pub(crate) async fn task(&self, mut chance: Chance) {
        while !self.is_over() {
            let is_rival = self.told.bug == Some(Bug::Now) && chance.below(2) == 0;
            // Leases are prepared statements, which pgbouncer before 1.21 does not track.
            if is_rival || chance.below(12) == 0 && !self.told.is_pooled {
                self.lease(&mut chance).await;
                if chance.below(16) == 0 && self.told.bug.is_none() {
                    // What fails here the next one does.
                    drop(lease::sweep(&self.leases).await);
                }
            } else if chance.below(12) == 0 && self.told.bug.is_none() && !self.told.is_pooled {
                self.queue(&mut chance).await;
            } else {
                self.book(&mut chance).await;
            }
        }
    }

    fn begin(&self, slot: i64) -> i64 {
        let op = self.next.fetch_add(1, Ordering::Relaxed);
        self.log.begun(op, slot);
        op
    }

    fn end(&self, op: i64, outcome: Outcome, departed: i64, why: &str) {
        let now = clock::micros();
        self.log.ended(op, outcome, departed, now, why);
        if outcome.is_granted() {
            self.last_success.store(now, Ordering::Relaxed);
        }
    }

    /// Whether the next call is dropped. Behind a pooler that closes a connection; and of the bugs one is to show by it.
    fn drops(&self, chance: &mut Chance) -> bool {
        match self.told.bug {
            Some(Bug::GuardOff) => chance.below(4) == 0,
            Some(_) => false,
            None => !self.told.is_pooled && chance.below(12) == 0,
        }
    }

    fn slot(&self, chance: &mut Chance) -> i64 {
        let first = (clock::micros() - self.told.start) / PACE;
        first + i64::from(chance.below(SLOTS))
    }

    fn visit(&self, chance: &mut Chance) -> Visit<'_> {
        let slot = self.slot(chance);
        Visit {
            op: self.begin(slot),
            slot,
            manner: match chance.below(40) {
                0..4 => Manner::Thinks,
                4 => Manner::Fails,
                5 if self.told.bug.is_none() => Manner::Swallows,
                _ => Manner::Plain,
            },
            is_pooled: self.told.is_pooled,
            log: &self.log,
            departed: AtomicI64::new(0),
            has_ended: AtomicBool::new(false),
            is_taken: AtomicBool::new(false),
        }
    }

    /// A few bookings on one connection.
    async fn book(&self, chance: &mut Chance) {
        let conn = match timeout(PATIENCE, self.pool.get()).await {
            Ok(Ok(conn)) => conn,
            Ok(Err(_)) => {
                // The server is away. No operation was begun.
                pass(Duration::from_millis(10)).await;
                return;
            }
            Err(_) => {
                let op = self.begin(0);
                self.end(op, Outcome::Refused, 0, "PoolExhausted");
                return;
            }
        };
        self.turns(conn, chance).await;
    }

    async fn turns(&self, mut conn: Object<AsyncPgConnection>, chance: &mut Chance) {
        for _ in 0..TURNS {
            if self.is_over() {
                return;
            }
            let visit = self.visit(chance);
            // Inside a session-level lock the transaction is Diesel's, which says nothing of a swallowed error.
            let is_session =
                chance.below(12) == 0 && !self.told.is_pooled && visit.manner != Manner::Swallows;
            let drops = self.drops(chance);
            let way = chance.below(16);
            let call = self.call(&mut conn, &visit, is_session, way);
            let ended = if drops {
                let time = Duration::from_millis(chance.below(6).into());
                timeout(time, call).await.ok()
            } else {
                Some(call.await)
            };
            let is_lost = self.ended(&visit, is_session, ended.as_ref());
            // With the guard off the connection goes on as if nothing was open.
            if is_lost || (ended.is_none() && self.told.bug.is_none()) {
                return;
            }
        }
    }

    async fn call(
        &self,
        conn: &mut Object<AsyncPgConnection>,
        visit: &Visit<'_>,
        is_session: bool,
        way: u32,
    ) -> Booked {
        if let Some(bug) = self.told.bug {
            return rival::book(bug, conn, visit).await;
        }
        let slot = visit.slot;
        // What needs a session of its own is none of a pooler's.
        match way {
            _ if is_session => visit::session(conn, slot, visit).await,
            0..3 => visit::never_wait(conn, slot, visit).await,
            3..6 => visit::bounded(conn, slot, visit).await,
            6 | 7 if !visit.is_pooled => visit::repeatable(conn, slot, visit).await,
            8 if !visit.is_pooled => visit::serializable(conn, slot, visit).await,
            _ => visit::wait(conn, slot, visit).await,
        }
    }

    /// Through the line that waits for the key in this process.
    async fn queue(&self, chance: &mut Chance) {
        let visit = self.visit(chance);
        let call = timeout(PATIENCE * 4, visit::queued(&self.pool, visit.slot, &visit));
        let ended = call.await.ok();
        self.ended(&visit, false, ended.as_ref());
    }

    /// Records what came of a visit, and says whether the connection may be lost.
    fn ended(&self, visit: &Visit<'_>, is_session: bool, ended: Option<&Booked>) -> bool {
        let has_ended = visit.has_ended.load(Ordering::Relaxed);
        let (outcome, why) = match ended {
            Some(Ok(true)) => (Outcome::Confirmed, "-".to_owned()),
            Some(Ok(false)) => (Outcome::Taken, "-".to_owned()),
            Some(Err(_)) if visit.is_taken.load(Ordering::Relaxed) => {
                (Outcome::Taken, "-".to_owned())
            }
            // The body has committed by itself, or tried to.
            Some(Err(error)) if is_session && has_ended => (Outcome::Unknown, outcome::name(error)),
            // A transaction of Diesel's own does not say whether its commit may have happened.
            Some(Err(error)) if self.told.bug.is_some() && has_ended => {
                (Outcome::Unknown, outcome::name(error))
            }
            Some(Err(error)) => (outcome::of_error(error), outcome::name(error)),
            None if has_ended => (Outcome::Unknown, "Dropped".to_owned()),
            None => (Outcome::Dropped, "Dropped".to_owned()),
        };
        let departed = visit.departed.load(Ordering::Relaxed);
        self.end(visit.op, outcome, departed, &why);
        matches!(outcome, Outcome::Failed | Outcome::Unknown)
    }

    async fn lease(&self, chance: &mut Chance) {
        let is_rival = self.told.bug == Some(Bug::Now);
        let is_once = !is_rival && chance.below(4) == 0;
        let number = if is_once {
            self.slot(chance)
        } else {
            i64::from(chance.below(if is_rival { 1 } else { JOBS }))
        };
        let job = Job {
            op: self.begin(-1 - if is_once { ONCE } else { number }),
            number,
            thought: match (chance.below(20), is_rival) {
                // Long enough to be renewed.
                (0, false) | (0..5, true) => job::TTL / 2,
                (_, true) => Duration::from_millis(5),
                (1..6, false) => Duration::from_millis(20),
                _ => Duration::ZERO,
            },
            log: &self.log,
            has_ended: AtomicBool::new(false),
        };
        let (waits, drops) = (chance.below(4) == 0, self.drops(chance));
        let call = async {
            if is_rival {
                rival::job(&self.pool, &job).await
            } else if is_once {
                let done = job::once(&self.leases, &self.pool, number, &job).await;
                done.map(|()| true)
            } else if waits {
                let done = job::wait(&self.leases, &self.pool, number, &job).await;
                done.map(|()| true)
            } else {
                let done = job::never_wait(&self.leases, &self.pool, number, &job).await;
                done.map(|()| true)
            }
        };
        let ended = if drops {
            let time = Duration::from_millis(chance.below(30).into());
            timeout(time, call).await.ok()
        } else {
            Some(call.await)
        };
        if self.ended_job(&job, ended.as_ref()) == Outcome::Failed {
            pass(Duration::from_millis(5)).await;
        }
    }

    fn ended_job(&self, job: &Job<'_>, ended: Option<&Result<bool, Error>>) -> Outcome {
        let has_ended = job.has_ended.load(Ordering::Relaxed);
        let (outcome, why) = match ended {
            Some(Ok(true)) => (Outcome::Confirmed, "-".to_owned()),
            Some(Ok(false)) => (Outcome::Refused, "NotAvailable".to_owned()),
            Some(Err(error)) if has_ended => (Outcome::Unknown, outcome::name(error)),
            Some(Err(error)) => (outcome::of_error(error), outcome::name(error)),
            None if has_ended => (Outcome::Unknown, "Dropped".to_owned()),
            None => (Outcome::Dropped, "Dropped".to_owned()),
        };
        self.end(job.op, outcome, 0, &why);
        outcome
    }

    /// Campaigns, and writes as the leader, until the load is over.
    pub(crate) async fn lead(&self) {
        if self.told.is_pooled || self.told.bug.is_some() {
            return;
        }
        let over = async {
            while !self.is_over() {
                pass(Duration::from_millis(20)).await;
            }
        };
        let campaign = Request::text(format!("job:{LEADER}")).ttl(job::TTL);
        let ended = lease::lead_until(&self.leases, campaign, over, async |term: Lease| {
            while term.is_held() {
                let job = Job {
                    op: self.begin(-1 - LEADER),
                    number: LEADER,
                    thought: Duration::from_millis(20),
                    log: &self.log,
                    has_ended: AtomicBool::new(false),
                };
                let worked = job.work(&self.pool, &term).await;
                self.ended_job(&job, Some(&worked.map(|()| true)));
                pass(Duration::from_millis(20)).await;
            }
            Ok(())
        });
        let ended: Result<(), Error> = Box::pin(ended).await;
        if let Err(error) = ended {
            let op = self.begin(-1 - LEADER);
            self.end(op, Outcome::Failed, 0, &outcome::name(&error));
        }
    }
}
