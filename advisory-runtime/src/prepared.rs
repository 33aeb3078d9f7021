//! Which sessions have our statements prepared?
//!
//! A memory of this process, by what the server told the session at its start: its process id and secret, which no two sessions
//! share; or by a number that a blocking connection carries. A program can take the statements away all the same (`DEALLOCATE
//! ALL`, `DISCARD ALL`), and a pooler the session: then a begin is refused by name, nothing has happened, and that session goes
//! without from there on.

use crate::sql::Prepared;
use std::collections::HashMap;
#[cfg(feature = "postgres")]
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A session of a server, by the process id and the secret that a cancel request names; where these are not told, by no process and a
/// number of ours.
pub(crate) type Session = (u32, u32);

/// The session of a blocking connection with this number.
#[cfg(feature = "postgres")]
pub(crate) const fn numbered(number: u32) -> Session {
    (0, number)
}

#[cfg(feature = "postgres")]
pub(crate) fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// So many of the sessions that were used last are remembered at least, and at most twice as many.
const MOST: usize = 4_096;

static SESSIONS: Mutex<Option<Memory>> = Mutex::new(None);

/// Nobody says which sessions have ended. So those go that were not used while [`MOST`] others were.
#[derive(Default)]
struct Memory {
    latest: HashMap<Session, Known>,
    before: HashMap<Session, Known>,
}

#[derive(Clone, Copy, Debug)]
enum Known {
    Has(Prepared),
    /// It has lost them once.
    Loses,
}

impl Memory {
    fn of(&mut self, session: Session) -> Option<Known> {
        if let Some(known) = self.latest.get(&session) {
            return Some(*known);
        }
        let known = self.before.remove(&session)?;
        self.note(session, known);
        Some(known)
    }

    fn note(&mut self, session: Session, known: Known) {
        if self.latest.len() >= MOST && !self.latest.contains_key(&session) {
            self.before = std::mem::take(&mut self.latest);
        }
        self.latest.insert(session, known);
    }
}

fn sessions() -> MutexGuard<'static, Option<Memory>> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which of the `needed` statements the session still lacks, `None` if it shall do without.
pub(crate) fn missing(session: Session, needed: Prepared) -> Option<Prepared> {
    match sessions().get_or_insert_default().of(session) {
        Some(Known::Has(has)) => Some(needed.without(has)),
        Some(Known::Loses) => None,
        None => Some(needed),
    }
}

/// Remembers that the session has them.
pub(crate) fn has(session: Session, prepared: Prepared) {
    let mut sessions = sessions();
    let sessions = sessions.get_or_insert_default();
    let known = match sessions.of(session) {
        Some(Known::Has(has)) => Known::Has(has.and(prepared)),
        Some(Known::Loses) => Known::Loses,
        None => Known::Has(prepared),
    };
    sessions.note(session, known);
}

/// Remembers that it is not to be relied upon.
pub(crate) fn loses(session: Session) {
    sessions()
        .get_or_insert_default()
        .note(session, Known::Loses);
}

#[cfg(test)]
mod tests {
    use super::{MOST, has, loses, missing};
    use crate::Request;
    use crate::sql::Prepared;

    /// A session that is forgotten would prepare anew, be refused for the names, and go without for the rest of its life.
    #[test]
    fn sessions_that_are_used_are_remembered_however_many_come_and_go() {
        let needed = Prepared::needed(&Request::new(7), false).unwrap();
        let (used, without) = ((1, 1), (1, 2));
        has(used, needed);
        loses(without);
        for secret in 0..u32::try_from(3 * MOST).unwrap() {
            let passing = (2, secret);
            assert_eq!(missing(passing, needed), Some(needed));
            has(passing, needed);
            assert_eq!(missing(used, needed), Some(Prepared::default()));
            assert_eq!(missing(without, needed), None);
        }
        assert_eq!(missing((2, 0), needed), Some(needed), "forgotten");
    }
}
