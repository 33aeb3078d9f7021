//! Which sessions have our statements prepared?
//!
//! A memory of this process, by what the server told the session at its start: its process id and secret, which no two sessions
//! share. A program can take the statements away all the same (`DEALLOCATE ALL`, `DISCARD ALL`), and a pooler the session: then a begin
//! is refused by name, nothing has happened, and that session goes without from there on.

use crate::sql::Prepared;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A session of a server, by the process id and the secret that a cancel request names.
pub(crate) type Session = (u32, u32);

/// So many sessions are remembered; with more it begins anew.
const MOST: usize = 4_096;

static SESSIONS: Mutex<Option<HashMap<Session, Known>>> = Mutex::new(None);

#[derive(Clone, Copy, Debug)]
enum Known {
    Has(Prepared),
    /// It has lost them once.
    Loses,
}

fn sessions() -> MutexGuard<'static, Option<HashMap<Session, Known>>> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which of the `needed` statements the session still lacks, `None` if it shall do without.
pub(crate) fn missing(session: Session, needed: Prepared) -> Option<Prepared> {
    match sessions().as_ref().and_then(|known| known.get(&session)) {
        Some(Known::Has(has)) => Some(needed.without(*has)),
        Some(Known::Loses) => None,
        None => Some(needed),
    }
}

/// Remembers that the session has them.
pub(crate) fn has(session: Session, prepared: Prepared) {
    let mut sessions = sessions();
    let sessions = sessions.get_or_insert_default();
    if sessions.len() >= MOST {
        sessions.clear();
    }
    let known = sessions.entry(session).or_insert(Known::Has(prepared));
    if let Known::Has(has) = known {
        *has = has.and(prepared);
    }
}

/// Remembers that it is not to be relied upon.
pub(crate) fn loses(session: Session) {
    sessions()
        .get_or_insert_default()
        .insert(session, Known::Loses);
}
