//! The waits of a log, by lock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use advisory_runtime::monitor::{Name, Names, keys_of};
use jiff::SignedDuration;

use super::event::{self, DeadlockWait, Event, LockId, Wait};
use super::record::{Record, Time};

/// An event, for `--follow`.
pub(super) enum Incident {
    Wait(Wait),
    /// A wait that ended with an error.
    Cancelled {
        pid: Option<i32>,
        /// All locks that the statement requests.
        locks: Vec<LockId>,
        waited: Option<Duration>,
        /// That of the server.
        reason: String,
    },
    Deadlock,
}

#[derive(Default)]
pub(super) struct Waits {
    names: Names,
    pub(super) records: usize,
    pub(super) first: Option<Time>,
    pub(super) last: Option<Time>,
    pub(super) locks: BTreeMap<LockId, LockWaits>,
    pub(super) deadlocks: Vec<Deadlock>,
    /// The waits that have not ended, by process.
    open: BTreeMap<i32, OpenWait>,
    /// The name of each process, if the log has it.
    processes: BTreeMap<i32, String>,
    /// A tag or a message in another language than English, which cannot be read.
    pub(super) foreign: Option<String>,
    /// The databases' names, by `pg_database.oid`.
    pub(super) databases: BTreeMap<u32, String>,
}

/// The total of the waits for one lock.
#[derive(Default)]
pub(super) struct LockWaits {
    pub(super) names: Vec<Name>,
    pub(super) database: Option<String>,
    pub(super) waits: usize,
    pub(super) total: Duration,
    pub(super) longest: Duration,
    pub(super) cancelled: usize,
    pub(super) deadlocks: usize,
    pub(super) last: Option<Time>,
    /// The processes that held the lock during waits, with the number of those waits.
    pub(super) holders: BTreeMap<i32, usize>,
}

impl LockWaits {
    fn end(&mut self, waited: Duration) {
        self.total = self.total.saturating_add(waited);
        self.longest = self.longest.max(waited);
    }
}

/// A wait that has not ended so far.
struct OpenWait {
    lock: LockId,
    waited: Duration,
    at: Option<Time>,
    /// The holders that have been counted for this wait.
    holders: BTreeSet<i32>,
}

impl OpenWait {
    /// Returns `true` if a message about this lock is about this wait: the wait has grown by the
    /// time that has passed.
    fn is_wait(&self, lock: LockId, waited: Duration, time: Option<&Time>) -> bool {
        if self.lock != lock || waited < self.waited {
            return false;
        }
        let Some((now, then)) = time.zip(self.at.as_ref()) else {
            return true;
        };
        let grown = waited.saturating_sub(self.waited);
        let grown = SignedDuration::try_from(grown).unwrap_or(SignedDuration::MAX);
        // `%t` has whole seconds.
        let has_fraction = now.text.contains('.') && then.text.contains('.');
        let most = SignedDuration::from_millis(if has_fraction { 500 } else { 1_500 });
        now.since(then).saturating_sub(grown) <= most
    }

    /// The time for which the session had waited at this moment.
    fn until(&self, time: Option<&Time>) -> Duration {
        let times = time.zip(self.at.as_ref());
        let passed = times.and_then(|(now, then)| Duration::try_from(now.since(then)).ok());
        self.waited.saturating_add(passed.unwrap_or_default())
    }
}

/// Sessions that waited for each other.
pub(super) struct Deadlock {
    pub(super) time: Option<Time>,
    /// The process of the statement that the server ended.
    pub(super) victim: Option<i32>,
    pub(super) waits: Vec<DeadlockWait>,
}

impl Waits {
    pub(super) fn new(names: Names) -> Self {
        Self {
            names,
            ..Self::default()
        }
    }

    pub(super) fn take(&mut self, record: Record) -> Option<Incident> {
        self.records += 1;
        if let Some(time) = &record.time {
            self.first.get_or_insert_with(|| time.clone());
            self.last = Some(time.clone());
        }
        if self.foreign.is_none() {
            let tag = record.foreign_tag.clone();
            self.foreign = tag.or_else(|| event::foreign(&record));
        }
        self.note_process(&record);
        let event = event::of(&record);
        // A session that waits logs nothing else.
        if event.is_none()
            && let Some(pid) = record.pid
        {
            self.end_unlogged(pid, |_| true);
        }
        match event? {
            Event::Wait(wait) => Some(self.wait(wait, &record)),
            Event::Deadlock(waits) => Some(self.deadlock(waits, record)),
            Event::Failed => self.failed(&record),
        }
    }

    /// The number of waits that had not ended at the end of the log.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    pub(super) fn who(&self, pid: i32) -> Option<&str> {
        self.processes.get(&pid).map(String::as_str)
    }

    fn note_process(&mut self, record: &Record) {
        let Some(pid) = record.pid else { return };
        let application = record.application.as_deref().unwrap_or_default();
        let user = record.user.as_deref().unwrap_or_default();
        let who = match (application, user) {
            ("" | "[unknown]", "" | "[unknown]") => return,
            ("" | "[unknown]", user) => user.to_owned(),
            (application, "" | "[unknown]") => application.to_owned(),
            (application, user) => format!("{application} ({user})"),
        };
        self.processes.insert(pid, who);
    }

    /// The entry of a lock, with the lock's name if the statement contains it.
    fn entry(&mut self, lock: LockId, statement: &str, record: &Record) -> &mut LockWaits {
        if let (Some(name), true) = (&record.database, lock.database != 0) {
            self.databases.insert(lock.database, name.clone());
        }
        let database = self.databases.get(&lock.database);
        let database = database.or(record.database.as_ref()).cloned();
        if !self.locks.contains_key(&lock) {
            // Waits that were recorded before the database's number was known.
            let unplaced = LockId {
                database: 0,
                ..lock
            };
            let is_same = |of_it: &LockWaits| of_it.database == database;
            let before = self.locks.get(&unplaced).is_some_and(is_same);
            let before = before.then(|| self.locks.remove(&unplaced)).flatten();
            self.locks.insert(lock, before.unwrap_or_default());
        }
        let entry = self.locks.entry(lock).or_default();
        if entry.names.is_empty() {
            entry.names = self.names.of_lock(lock.key, statement, database.as_deref());
        }
        entry.database = database;
        if record.time.is_some() {
            entry.last.clone_from(&record.time);
        }
        entry
    }

    /// Ends the wait of a process if it is over, although the log does not say how it ended. It has
    /// lasted at least as long as the log says.
    fn end_unlogged(&mut self, pid: i32, is_over: impl Fn(&OpenWait) -> bool) {
        if self.open.get(&pid).is_some_and(is_over)
            && let Some(open) = self.open.remove(&pid)
            && let Some(entry) = self.locks.get_mut(&open.lock)
        {
            entry.end(open.waited);
        }
    }

    fn wait(&mut self, wait: Wait, record: &Record) -> Incident {
        let at = record.time.as_ref();
        self.end_unlogged(wait.pid, |open| !open.is_wait(wait.lock, wait.waited, at));
        let before = self.open.remove(&wait.pid);
        let entry = self.entry(wait.lock, &record.statement, record);
        // The log may begin in the middle of a wait that is over.
        if before.is_none() {
            entry.waits += 1;
        }
        if wait.is_over {
            entry.end(wait.waited);
            return Incident::Wait(wait);
        }
        let mut counted = before.map(|open| open.holders).unwrap_or_default();
        for holder in &wait.holders {
            if counted.insert(*holder) {
                *entry.holders.entry(*holder).or_default() += 1;
            }
        }
        let open = OpenWait {
            lock: wait.lock,
            waited: wait.waited,
            at: record.time.clone(),
            holders: counted,
        };
        self.open.insert(wait.pid, open);
        Incident::Wait(wait)
    }

    fn deadlock(&mut self, waits: Vec<DeadlockWait>, record: Record) -> Incident {
        for wait in &waits {
            let Some(lock) = wait.lock else { continue };
            self.end_unlogged(wait.pid, |open| open.lock != lock);
            let open = self.open.get_mut(&wait.pid);
            let is_open = open.is_some();
            let is_counted = open.is_some_and(|open| !open.holders.insert(wait.blocked_by));
            let is_victim = record.pid == Some(wait.pid);
            let open = is_victim.then(|| self.open.remove(&wait.pid)).flatten();
            let entry = self.entry(lock, &wait.statement, &record);
            entry.deadlocks += 1;
            // A wait shorter than `deadlock_timeout`, or any wait without `log_lock_waits`, is
            // logged only here.
            if !is_open {
                entry.waits += 1;
            }
            if let Some(open) = open {
                entry.end(open.until(record.time.as_ref()));
            }
            if !is_counted {
                *entry.holders.entry(wait.blocked_by).or_default() += 1;
            }
        }
        self.deadlocks.push(Deadlock {
            time: record.time,
            victim: record.pid,
            waits,
        });
        Incident::Deadlock
    }

    /// A statement failed. This ended a long wait, or a short one that the log has only in this
    /// error.
    fn failed(&mut self, record: &Record) -> Option<Incident> {
        let reason = record.message.clone();
        let starts = [
            "canceling statement due to ",
            "terminating connection due to ",
        ];
        if !starts.iter().any(|start| reason.starts_with(start)) {
            // A statement that waits fails only for these reasons, so the wait was over.
            if let Some(pid) = record.pid {
                self.end_unlogged(pid, |_| true);
            }
            return None;
        }
        let open = record.pid.and_then(|pid| self.open.remove(&pid));
        let (locks, waited) = if let Some(open) = open {
            (vec![open.lock], Some(open.until(record.time.as_ref())))
        } else {
            let database = self.number_of(record.database.as_deref());
            let keys = keys_of(&record.statement).into_iter();
            (keys.map(|key| LockId { database, key }).collect(), None)
        };
        for lock in &locks {
            let entry = self.entry(*lock, &record.statement, record);
            entry.cancelled += 1;
            match waited {
                Some(waited) => entry.end(waited),
                None => entry.waits += 1,
            }
        }
        (!locks.is_empty()).then_some(Incident::Cancelled {
            pid: record.pid,
            locks,
            waited,
            reason,
        })
    }

    /// The number of a database if another record has it, or 0. Without a name, the only number in
    /// the log.
    fn number_of(&self, name: Option<&str>) -> u32 {
        let Some(name) = name else {
            let mut numbers: Vec<u32> = self.locks.keys().map(|lock| lock.database).collect();
            numbers.dedup();
            return match numbers[..] {
                [number] => number,
                _ => 0,
            };
        };
        let mut known = self.databases.iter();
        let known = known.find(|(_, known)| *known == name);
        known.map_or(0, |(number, _)| *number)
    }
}

pub(super) fn ordered(waits: &Waits) -> Vec<(&LockId, &LockWaits)> {
    let mut locks: Vec<(&LockId, &LockWaits)> = waits.locks.iter().collect();
    locks.sort_by_key(|(_, of_it)| std::cmp::Reverse((of_it.total, of_it.waits)));
    locks
}
