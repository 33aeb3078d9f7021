//! The choice of the next operation, and what is recorded of it.
//!
//! `load::bookings` contains the operations on slots and rooms, `load::leases` the work under a
//! lease, `load::migrations` the migrations, and `load::jobs` the works on jobs. With a bug they
//! use the code of `buggy` instead of the lock.

mod bookings;
mod jobs;
mod leases;
mod migrations;

use crate::absence::{Absence, NextAbsence};
use crate::assignment::Assignment;
use crate::bug::Bug;
use crate::buggy::Hand;
use crate::chance::Chance;
use crate::clock;
use crate::history::Log;
use crate::operation_kind::{OperationKind, Subject};
use crate::outcome::Outcome;
use crate::progress::Progress;
use advisory_runtime::lease::Leases;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::Pool;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many slots are contended at a time, and after how many ticks the next one replaces the
/// first: each operation draws two.
const SLOTS: u32 = 12;
const TICKS_A_SLOT: i64 = 10;

/// The load of one process.
pub(crate) struct Load {
    assignment: Assignment,
    log: Log,
    pool: Pool<AsyncPgConnection>,
    leases: Leases<Pool<AsyncPgConnection>>,
    next: AtomicI64,
    /// How many ticks were drawn, as far as this process knows.
    ticks: AtomicI64,
    last_success: AtomicI64,
    progress: Mutex<Progress>,
    is_over: AtomicBool,
    lease_absence: NextAbsence,
    job_absence: NextAbsence,
    /// With a bug.
    hand: Hand,
}

impl Load {
    pub(crate) fn new(assignment: Assignment, pool: Pool<AsyncPgConnection>) -> io::Result<Self> {
        Ok(Self {
            log: Log::create(&assignment.log)?,
            leases: Leases::new(pool.clone()),
            pool,
            next: AtomicI64::new(assignment.number << 32),
            ticks: AtomicI64::new(0),
            last_success: AtomicI64::new(0),
            progress: Mutex::default(),
            is_over: AtomicBool::new(false),
            lease_absence: NextAbsence::default(),
            job_absence: NextAbsence::default(),
            hand: Hand::new(&assignment.url),
            assignment,
        })
    }

    /// Makes each task end after its operation.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Makes the next bodies of a lease and of a job outlast their ttl.
    pub(crate) fn make_absent(&self, absence: Absence) {
        self.lease_absence.set(absence);
        // A claim of 600 ms leaves too little time to open another connection on a busy machine.
        if absence == Absence::Blocks || self.assignment.bug.is_some() {
            self.job_absence.set(absence);
        }
    }

    /// Starts the tasks, also again.
    pub(crate) fn resume(&self) {
        self.is_over.store(false, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// The time of the last success, and the counts.
    pub(crate) fn progress(&self) -> (i64, Progress) {
        let success = self.last_success.load(Ordering::Relaxed);
        (success, self.counts().clone())
    }

    fn counts(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs operations until the load ends.
    pub(crate) async fn task(&self, mut chance: Chance) {
        while !self.is_over() {
            match self.assignment.bug {
                Some(bug) if bug.is_of_leases() && chance.below(2) == 0 => {
                    self.lease(OperationKind::Lease, &mut chance).await;
                }
                Some(Bug::CompletedApart) if chance.below(2) == 0 => {
                    self.lease(OperationKind::Complete, &mut chance).await;
                }
                Some(_) => self.book(&mut chance).await,
                // Leases use prepared statements, which pgbouncer before 1.21 does not track; the
                // others need sessions or too many connections.
                None if self.assignment.is_pooled => self.book(&mut chance).await,
                None => match chance.below(12) {
                    0 => self.lease(OperationKind::Lease, &mut chance).await,
                    1 => self.lease(OperationKind::Complete, &mut chance).await,
                    2 => self.enter_pool(OperationKind::Queue, &mut chance).await,
                    3 => self.enter_pool(OperationKind::PollPool, &mut chance).await,
                    4 => self.enter_pool(OperationKind::Owned, &mut chance).await,
                    5 => self.enter_pool(OperationKind::Permits, &mut chance).await,
                    6 if chance.below(4) == 0 => self.sweep().await,
                    _ => self.book(&mut chance).await,
                },
            }
        }
    }

    fn begin(&self, kind: OperationKind, number: i64) -> i64 {
        let op = self.next.fetch_add(1, Ordering::Relaxed);
        self.log.begun(op, kind, number);
        self.counts().begun += 1;
        op
    }

    fn end(&self, kind: OperationKind, op: i64, outcome: Outcome, departed: i64, why: &str) {
        let now = clock::micros();
        self.log.ended(op, outcome, departed, now, why);
        if outcome.is_granted() {
            self.last_success.store(now, Ordering::Relaxed);
            let mut progress = self.counts();
            let is_of_slot = kind.subject() == Subject::Slot;
            progress.booked += i64::from(is_of_slot && outcome == Outcome::Confirmed);
            progress.taken += i64::from(is_of_slot && outcome == Outcome::Taken);
            // A run that found no pending migration took no lock.
            let held = kind != OperationKind::Migrate || outcome == Outcome::Confirmed;
            progress.granted[kind.index()] += i64::from(held);
        }
    }

    /// One of the contended slots.
    fn slot(&self, chance: &mut Chance) -> i64 {
        self.stage(TICKS_A_SLOT) + i64::from(chance.below(SLOTS))
    }

    /// The progress of the load in ticks. Ticks, not a clock, move it from one slot to the next, so
    /// it works on a slow machine too.
    fn stage(&self, ticks: i64) -> i64 {
        self.ticks.load(Ordering::Relaxed) / ticks
    }
}
