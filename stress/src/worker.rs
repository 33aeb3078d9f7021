//! What does one process do? It runs operations side by side, records what came of each, and listens to the house.
//!
//! On standard input: `go` begins the load, `hog MS` takes all connections of the pool for so long, `stop` ends the load, and the end of the input, as
//! when the house is gone, ends the process. On standard output: the time of the last success and how many operations were begun, and `quiet` once the load has ended.
//! The pool stays open until then: what a broken guard leaves in it is to be seen.

use crate::assignment::Assignment;
use crate::bug::Bug;
use crate::chance::Chance;
use crate::clock::{self, pass};
use crate::history::Log;
use crate::job::{self, Job};
use crate::outcome::{self, Outcome};
use crate::rival;
use crate::visit::{self, Booked, Manner, Visit};
use advisory_runtime::lease::Leases;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::{Object, Pool};
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod,
};
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// More of them than connections.
const TASKS: u32 = 10;
const CONNECTIONS: usize = 7;
/// Behind a pooler so few that no connection is opened, or closed, while others are at work; see [`Worker::open`].
const POOLED_TASKS: u32 = 3;
/// How many operations a task makes on one connection before it gives it back.
const TURNS: u32 = 8;
/// How long it waits for one.
const PATIENCE: Duration = Duration::from_millis(150);
/// How many slots are fought for at a time, and how soon the next one takes the place of the first, in microseconds.
const SLOTS: u32 = 12;
const PACE: i64 = 4_000;
const JOBS: u32 = 4;

struct Worker {
    told: Assignment,
    log: Log,
    pool: Pool<AsyncPgConnection>,
    leases: Leases<Pool<AsyncPgConnection>>,
    next: AtomicI64,
    last_success: AtomicI64,
    goes: Notify,
    is_over: AtomicBool,
}

/// Runs until the house is gone.
pub(crate) fn run(told: Assignment) -> Result<(), Box<dyn std::error::Error>> {
    let mut config = ManagerConfig::default();
    if told.is_pooled {
        config.recycling_method = RecyclingMethod::Fast;
    }
    let manager = AsyncDieselConnectionManager::new_with_config(&told.url, config);
    let pool = Pool::builder(manager).max_size(CONNECTIONS).build()?;
    let worker = Arc::new(Worker {
        log: Log::create(&told.log)?,
        leases: Leases::new(pool.clone()),
        pool,
        next: AtomicI64::new(told.number << 32),
        last_success: AtomicI64::new(0),
        goes: Notify::new(),
        is_over: AtomicBool::new(false),
        told,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let listener = Arc::clone(&worker);
    let handle = runtime.handle().clone();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            match line.split_once(' ') {
                None if line == "go" => listener.goes.notify_one(),
                Some(("hog", time)) => {
                    let time = Duration::from_millis(time.parse().unwrap_or(0));
                    handle.spawn(hog(listener.pool.clone(), time));
                }
                _ => listener.is_over.store(true, Ordering::Relaxed),
            }
        }
        std::process::exit(0);
    });
    runtime.block_on(load(&worker));
    Ok(())
}

/// Takes every connection, and gives them back after a while.
async fn hog(pool: Pool<AsyncPgConnection>, time: Duration) {
    let mut lent = Vec::new();
    let taken = timeout(time, async {
        for _ in 0..CONNECTIONS {
            lent.extend(pool.get().await.ok());
        }
        pass(time).await;
    });
    drop(taken.await);
}

async fn load(worker: &Arc<Worker>) {
    let is_pooled = worker.told.is_pooled;
    if is_pooled {
        worker.open().await;
    }
    say("open");
    worker.goes.notified().await;
    let mut tasks = JoinSet::new();
    for number in 0..if is_pooled { POOLED_TASKS } else { TASKS } {
        let seed =
            worker.told.seed ^ (u64::from(number) << 40) ^ worker.told.number.cast_unsigned();
        tasks.spawn(task(Arc::clone(worker), Chance(seed)));
    }
    let mut ended = tokio::spawn(async move { while tasks.join_next().await.is_some() {} });
    while timeout(Duration::from_millis(20), &mut ended)
        .await
        .is_err()
    {
        let count = worker.next.load(Ordering::Relaxed) & 0xffff_ffff;
        let success = worker.last_success.load(Ordering::Relaxed);
        say(&format!("{success} {count}"));
    }
    say("quiet");
    std::future::pending::<()>().await;
}

async fn task(worker: Arc<Worker>, mut chance: Chance) {
    while !worker.is_over.load(Ordering::Relaxed) {
        if chance.below(12) == 0 || worker.told.bug == Some(Bug::Now) && chance.below(2) == 0 {
            worker.lease(&mut chance).await;
        } else if chance.below(12) == 0 && worker.told.bug.is_none() && !worker.told.is_pooled {
            worker.queue(&mut chance).await;
        } else {
            worker.book(&mut chance).await;
        }
    }
}

fn say(line: &str) {
    let mut stdout = io::stdout().lock();
    let said = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    if said.is_err() {
        // Nobody listens any more.
        std::process::exit(1);
    }
}

impl Worker {
    /// Opens all connections before anybody works. diesel-async sets one up with prepared statements, sent without waiting in
    /// between; where that fails, or where it is closed soon after, pgbouncer before 1.21 lends the backend to another client while
    /// its answers are still to come, and that client takes them for its own.
    async fn open(&self) {
        let mut lent = Vec::new();
        while lent.len() < CONNECTIONS {
            lent.extend(self.pool.get().await.ok());
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
            if self.is_over.load(Ordering::Relaxed) {
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
        let number = i64::from(chance.below(if is_rival { 1 } else { JOBS }));
        let job = Job {
            op: self.begin(-1 - number),
            number,
            thought: match (chance.below(20), is_rival) {
                // Long enough to be renewed.
                (0, false) | (0..5, true) => job::TTL / 2,
                (_, true) => Duration::from_millis(5),
                (1..6, false) => Duration::from_millis(20),
                _ => Duration::ZERO,
            },
            is_pooled: self.told.is_pooled,
            log: &self.log,
            has_ended: AtomicBool::new(false),
        };
        let (waits, drops) = (chance.below(4) == 0, self.drops(chance));
        let call = async {
            if is_rival {
                rival::job(&self.pool, &job).await
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
        let has_ended = job.has_ended.load(Ordering::Relaxed);
        let (outcome, why) = match &ended {
            Some(Ok(true)) => (Outcome::Confirmed, "-".to_owned()),
            Some(Ok(false)) => (Outcome::Refused, "NotAvailable".to_owned()),
            Some(Err(error)) if has_ended => (Outcome::Unknown, outcome::name(error)),
            Some(Err(error)) => (outcome::of_error(error), outcome::name(error)),
            None if has_ended => (Outcome::Unknown, "Dropped".to_owned()),
            None => (Outcome::Dropped, "Dropped".to_owned()),
        };
        self.end(job.op, outcome, 0, &why);
        if outcome == Outcome::Failed {
            pass(Duration::from_millis(5)).await;
        }
    }
}
