//! The events of advisory locks in the records of a log.

use std::time::Duration;

use advisory_runtime::Key;

use super::record::Record;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LockId {
    /// The database's `pg_database.oid`; 0 if the lock is known only from a statement.
    pub(super) database: u32,
    pub(super) key: Key,
}

pub(super) enum Event {
    /// A session still waits, after `deadlock_timeout` or a little more, or has acquired the lock.
    Wait(Wait),
    /// Sessions waited for each other, and the server ended the statement of the one that logged
    /// this.
    Deadlock(Vec<DeadlockWait>),
    /// A statement failed: if it was waiting, its wait has ended.
    Failed,
}

pub(super) struct Wait {
    pub(super) pid: i32,
    pub(super) lock: LockId,
    pub(super) waited: Duration,
    /// True if the session acquired the lock.
    pub(super) is_over: bool,
    pub(super) holders: Vec<i32>,
}

pub(super) struct DeadlockWait {
    pub(super) pid: i32,
    /// `None` for a lock of another kind.
    pub(super) lock: Option<LockId>,
    /// The lock that it waited for, as logged: `ShareLock on transaction 4711`.
    pub(super) target: String,
    pub(super) blocked_by: i32,
    pub(super) statement: String,
}

pub(super) fn of(record: &Record) -> Option<Event> {
    if let Some(event) = wait(record) {
        return Some(event);
    }
    if record.message == "deadlock detected" {
        let waits = deadlock(&record.detail);
        if waits.iter().any(|wait| wait.lock.is_some()) {
            return Some(Event::Deadlock(waits));
        }
    }
    record.is_error.then_some(Event::Failed)
}

/// The starts of messages that contain a statement.
const STATEMENTS: [&str; 5] = ["statement: ", "execute ", "duration: ", "parse ", "bind "];

/// The beginning of a message about a wait if it is not in English. Such a message has the numbers
/// of the lock and of the process.
pub(super) fn foreign(record: &Record) -> Option<String> {
    let message = &record.message;
    // A statement can have such numbers too.
    if STATEMENTS.iter().any(|start| message.starts_with(start)) {
        return None;
    }
    let (_, rest) = message.split_once('[')?;
    let (lock, _) = rest.split_once(']')?;
    lock_id(lock)?;
    let mut numbers = message.split(|c: char| !c.is_ascii_digit());
    let pid = record.pid?.to_string();
    let is_wait = numbers.any(|number| number == pid);
    (is_wait && wait(record).is_none()).then(|| message.chars().take(40).collect())
}

/// `process 13595 still waiting for ExclusiveLock on advisory lock [5,0,42,1] after 1003.570 ms`
fn wait(record: &Record) -> Option<Event> {
    let rest = record.message.strip_prefix("process ")?;
    let (pid, rest) = rest.split_once(' ')?;
    let pid = pid.parse().ok()?;
    let (act, rest) = rest.split_once(" on advisory lock [")?;
    let (lock, rest) = rest.split_once(']')?;
    let lock = lock_id(lock)?;
    let waited = rest.rsplit_once(" after ")?.1.strip_suffix(" ms")?;
    let waited: f64 = waited.parse().ok()?;
    let waited = Duration::try_from_secs_f64(waited / 1_000.0).ok()?;
    Some(Event::Wait(Wait {
        pid,
        lock,
        waited,
        is_over: act.starts_with("acquired "),
        holders: holders(&record.detail),
    }))
}

/// `Process holding the lock: 13547. Wait queue: 13595.`, or `Processes holding the lock: 1, 2. …`
fn holders(detail: &str) -> Vec<i32> {
    let after = detail.split_once("holding the lock: ");
    let holders = after.and_then(|(_, rest)| rest.split('.').next());
    let holders = holders.unwrap_or_default().split(", ");
    holders.filter_map(|pid| pid.parse().ok()).collect()
}

/// `5,0,42,1`: the database, the halves of the key, and 1 for a `bigint` or 2 for a pair.
fn lock_id(text: &str) -> Option<LockId> {
    let numbers: Option<Vec<u32>> = text.split(',').map(|number| number.parse().ok()).collect();
    let [database, first, second, space] = numbers?[..] else {
        return None;
    };
    let key = if space == 1 {
        Key::BigInt((u64::from(first) << 32 | u64::from(second)).cast_signed())
    } else {
        Key::IntInt(first.cast_signed(), second.cast_signed())
    };
    Some(LockId { database, key })
}

/// Parses a deadlock's detail: who waited for whom, then the statement of each session.
///
/// ```text
/// Process 1 waits for ExclusiveLock on advisory lock [5,0,1001,1]; blocked by process 2.
/// Process 2 waits for ExclusiveLock on advisory lock [5,0,1002,1]; blocked by process 1.
/// Process 1: SELECT pg_advisory_lock(1001)
/// Process 2: SELECT pg_advisory_lock(1002)
/// ```
fn deadlock(detail: &str) -> Vec<DeadlockWait> {
    let mut waits: Vec<DeadlockWait> = Vec::new();
    let mut speaker = None;
    for line in detail.lines() {
        if let Some(wait) = deadlock_wait(line).filter(|_| speaker.is_none()) {
            waits.push(wait);
            continue;
        }
        let said = line
            .strip_prefix("Process ")
            .and_then(|rest| rest.split_once(": "));
        let statement = said.and_then(|(pid, statement)| {
            let pid: i32 = pid.parse().ok()?;
            Some((waits.iter().position(|wait| wait.pid == pid)?, statement))
        });
        if let Some((at, statement)) = statement {
            speaker = Some(at);
            statement.clone_into(&mut waits[at].statement);
        } else if let Some(at) = speaker {
            waits[at].statement.push('\n');
            waits[at].statement.push_str(line);
        }
    }
    waits
}

fn deadlock_wait(line: &str) -> Option<DeadlockWait> {
    let rest = line.strip_prefix("Process ")?;
    let (pid, rest) = rest.split_once(" waits for ")?;
    let (target, rest) = rest.split_once("; blocked by process ")?;
    let lock = target.split_once(" on advisory lock [");
    let lock = lock.and_then(|(_, lock)| lock_id(lock.strip_suffix(']')?));
    Some(DeadlockWait {
        pid: pid.parse().ok()?,
        lock,
        target: target.to_owned(),
        blocked_by: rest.trim_end_matches('.').parse().ok()?,
        statement: String::new(),
    })
}
