//! What becomes of a connection when a locked call ends in no orderly way: dropped while it waits, dropped in the body,
//! or unwound by a panic.
//!
//! Without this the backend goes on waiting, gets the lock, and sits idle in transaction; and the next `transaction()` on
//! the connection becomes a savepoint that is never committed.

use crate::error::LockName;
use crate::holding::Run;
use crate::kept::Standing;
use crate::link::{Cancel, Link, Sent, return_to};
use crate::request::{Acquired, Keys};
use crate::sql::{self, Around, Taken};
use crate::trail::Trail;
use crate::{Mode, Request};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// From what the guard borrows to the connection, and whether a pool replaces it. A function's address and not a closure's own
/// type, so that a thousand lock sites are compiled as one.
pub(crate) type Place<O, L> = fn(&mut O) -> (&mut L, bool);

/// One lock or several, being taken, held or released, together with the place that the connection stands in.
///
/// Dropping it gives the lock up: a statement still running is cancelled, the transaction is rolled back, and session-level
/// locks are released. A connection of your own goes on; its next statement starts a tenth of a second later, or up to 0.35
/// seconds (0.85 with session-level locks), so that a cancel request that comes late hits nothing else. A pooled connection is
/// closed, and the pool opens another.
#[must_use = "dropping a held lock rolls its transaction back"]
pub struct Held<'o, O: ?Sized, L: Link> {
    owner: &'o mut O,
    place: Place<O, L>,
    pub(crate) scope: Scope,
    /// The depth of the transaction around this one, by Diesel's count.
    pub(crate) outer: Option<NonZeroU32>,
    pub(crate) token: u64,
    pub(crate) lock: LockName,
    pub(crate) keys: Keys,
    pub(crate) mode: Mode,
    /// Taken as session-level locks and handed over to the transaction.
    pub(crate) is_handed_over: bool,
    pub(crate) phase: Phase,
    pub(crate) started: Instant,
    pub(crate) acquired_at: Instant,
    pub(crate) waited: Duration,
    pub(crate) max_hold: Option<Duration>,
    is_shown: bool,
    /// Begun by statements that the session has prepared.
    pub(crate) is_prepared: bool,
    /// What the connection is known to hold ends with the value too.
    pub(crate) standing: Standing,
    /// Ends with the value, if it does not end before.
    pub(crate) trail: Option<Trail>,
    runtime: L::Runtime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Xact,
    Session,
}

/// How far a call has come: what the server may have of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing was sent, or all is answered.
    Idle,
    /// The locks were asked for.
    Waiting,
    Held,
    /// The end was asked for.
    Finishing,
}

impl<'o, O: ?Sized, L: Link> Held<'o, O, L> {
    pub(crate) fn new(
        owner: &'o mut O,
        place: Place<O, L>,
        scope: Scope,
        token: u64,
        request: &Request,
    ) -> Self {
        Self {
            owner,
            place,
            scope,
            outer: None,
            token,
            lock: LockName::new(request.lock, &request.keys),
            keys: request.keys.clone(),
            mode: request.mode,
            is_handed_over: request.isolation != crate::Isolation::ReadCommitted,
            phase: Phase::Idle,
            started: Instant::now(),
            acquired_at: Instant::now(),
            waited: Duration::ZERO,
            max_hold: request.max_hold,
            is_shown: request.shown.is_some(),
            is_prepared: false,
            standing: Standing::default(),
            trail: None,
            runtime: L::runtime(),
        }
    }

    /// The connection that holds the lock, or what it is part of.
    pub fn conn(&mut self) -> &mut O {
        self.owner
    }

    /// Which lock it is, and how long it took to get.
    #[must_use]
    pub fn acquired(&self) -> Acquired {
        Acquired {
            keys: self.keys.clone(),
            waited: self.waited,
        }
    }

    /// What the body runs under, and [`conn`](Self::conn): one call is less for the compiler than two.
    #[doc(hidden)]
    pub fn run(&mut self) -> (Run, &mut O) {
        let address = self.address();
        let taken = self.standing.taken();
        let run = Run::new(address, taken, self.max_hold, self.trail.as_ref());
        (run, self.owner)
    }

    pub(crate) fn pg(&mut self) -> &mut L {
        (self.place)(self.owner).0
    }

    /// Where the connection is: it cannot move while it is borrowed here.
    pub(crate) fn address(&mut self) -> usize {
        std::ptr::from_mut(self.pg()).addr()
    }

    pub(crate) fn around(&self) -> Around {
        match self.outer {
            None => Around::Nothing,
            Some(_) => Around::TestTransaction,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.max_hold
            .is_some_and(|max_hold| self.acquired_at.elapsed() > max_hold)
    }

    pub(crate) fn for_release(&self) -> sql::Held<'_> {
        sql::Held {
            keys: &self.keys,
            mode: self.mode,
            token: self.token,
            is_bounded: self.max_hold.is_some(),
            is_shown: self.is_shown,
        }
    }

    /// Gives the lock up without waiting for an answer: cancelled, undone, and the connection as the caller had it.
    ///
    /// Returns what tells whether a cancel request was sent, if one was needed.
    pub(crate) fn give_up(&mut self, closes: bool) -> Option<Sent> {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        let runtime = std::mem::replace(&mut self.runtime, L::runtime());
        let cancel = match phase {
            Phase::Finishing => Cancel::Needless,
            _ => self.pg().can_cancel(&runtime),
        };
        let cancels = cancel == Cancel::Possible;
        let (outer, token) = (self.outer, self.token);
        let is_valid = self.pg().status().transaction_depth().is_ok();
        let is_test = self.scope == Scope::Session && outer.is_some();
        // What cannot be cancelled may run for long, and would hold up whoever uses the connection next.
        if closes || !is_valid || is_test || cancel == Cancel::Impossible {
            return self.terminate(runtime, cancel);
        }
        let messages = match self.scope {
            Scope::Xact if phase == Phase::Waiting && self.is_handed_over => {
                let mut messages = vec![sql::end_hand_over(token, self.keys.len())];
                messages.extend(self.release_all(phase, cancels));
                messages
            }
            Scope::Xact => undo(phase, outer, token, cancels),
            Scope::Session => self.release_all(phase, cancels),
        };
        let conn = self.pg();
        for message in messages {
            conn.enqueue(&message);
        }
        return_to(conn, outer);
        cancels.then(|| conn.cancel(runtime))
    }

    /// Ends the session, and with it whatever it holds.
    fn terminate(&mut self, runtime: L::Runtime, cancel: Cancel) -> Option<Sent> {
        let conn = self.pg();
        // Twice, since the cancel request can hit the first.
        conn.enqueue(sql::TERMINATE);
        conn.enqueue(sql::TERMINATE);
        conn.status().set_in_error();
        match cancel {
            Cancel::Needless => None,
            Cancel::Possible => Some(conn.cancel(runtime)),
            // Nothing ends what runs, so nobody has to wait for it.
            Cancel::Impossible => Some(Box::pin(std::future::ready(false))),
        }
    }

    fn release_all(&self, phase: Phase, cancels: bool) -> Vec<String> {
        let taken = match phase {
            Phase::Waiting => Taken::Interrupted,
            Phase::Idle | Phase::Held | Phase::Finishing => Taken::All,
        };
        let release = sql::release_taken(&self.for_release(), taken);
        let mut messages = vec![sql::ROLLBACK.to_owned(), release.clone()];
        if cancels {
            messages.push(sql::ROLLBACK.to_owned());
            messages.push(release);
            messages.push(sql::pause_after_release(self.token, self.keys.len()));
            messages.push(sql::PAUSE.to_owned());
        }
        messages
    }
}

/// What undoes a transaction, or a savepoint, behind whatever is running.
fn undo(phase: Phase, outer: Option<NonZeroU32>, token: u64, cancels: bool) -> Vec<String> {
    if let (Phase::Finishing, Some(_)) = (phase, outer) {
        // The end of the savepoint is on its way, and nothing interrupts it.
        return Vec::new();
    }
    let undo = match outer {
        None => sql::ROLLBACK.to_owned(),
        Some(outer) => sql::rollback_to_savepoint(outer, token),
    };
    if cancels {
        // Again, since the cancel request can hit each.
        vec![
            sql::await_cancel(outer, token),
            undo.clone(),
            undo.clone(),
            sql::pause(),
            undo,
            sql::erase_trace(),
        ]
    } else {
        vec![undo]
    }
}

impl<O: ?Sized, L: Link> Drop for Held<'_, O, L> {
    fn drop(&mut self) {
        if self.phase != Phase::Idle {
            let closes = (self.place)(self.owner).1;
            drop(self.give_up(closes));
        }
    }
}

impl<O: ?Sized, L: Link> std::fmt::Debug for Held<'_, O, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held")
            .field("lock", &self.lock.text())
            .field("scope", &self.scope)
            .field("outer", &self.outer)
            .finish_non_exhaustive()
    }
}
