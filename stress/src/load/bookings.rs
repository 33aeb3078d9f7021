//! Visits of slots and rooms, on a connection that the task keeps for a while, or on one of the pool for each call.

use super::Load;
use crate::bug::Bug;
use crate::chance::Chance;
use crate::clock::pass;
use crate::outcome::{self, Outcome};
use crate::rival;
use crate::visit::{self, Booked, Manner, RoomLock, SlotLock, Visit};
use crate::way::{PERMITS, Subject, Way};
use advisory_runtime::Request;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::Object;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How many operations a task runs on one connection before it gives it back.
const TURNS: u32 = 8;
/// How long it waits for a connection.
const PATIENCE: Duration = Duration::from_millis(150);
const ROOMS: u32 = 2;

impl Load {
    /// Some visits on one connection.
    pub(super) async fn book(&self, chance: &mut Chance) {
        // On a task of its own, so that a connection that takes longer to open is ready for the next visit.
        let pool = self.pool.clone();
        let conn = tokio::spawn(async move { pool.get().await });
        let conn = match timeout(PATIENCE, conn).await {
            Ok(Ok(Ok(conn))) => conn,
            Ok(_) => {
                // The server is down. No operation was begun.
                pass(Duration::from_millis(10)).await;
                return;
            }
            Err(_) => {
                let op = self.begin(Way::Wait, 0);
                self.end(Way::Wait, op, Outcome::Refused, 0, "PoolExhausted");
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
            let way = self.way(chance);
            let visit = self.visit(way, chance);
            let limit = self.limit(chance);
            let call = self.call(&mut conn, &visit, way);
            let ended = until(call, &visit.hangs, limit).await;
            let is_lost = self.ended(way, &visit, ended.as_ref());
            // With the bug `guard-off` the connection is used again as if no transaction were open.
            if is_lost || (ended.is_none() && self.told.bug.is_none()) {
                return;
            }
        }
    }

    fn way(&self, chance: &mut Chance) -> Way {
        let way = match (self.told.bug, chance.below(20)) {
            (Some(Bug::CountedPermits), _) | (None, 12) => Way::Permits,
            (None, 0..3) => Way::Never,
            (None, 3..6) => Way::Bounded,
            (None, 6..8) => Way::Poll,
            (None, 8..10) => Way::RepeatableRead,
            (None, 10) => Way::Serializable,
            (None, 11) => Way::Session,
            _ => Way::Wait,
        };
        if self.told.is_pooled && !way.is_for_poolers() {
            return Way::Wait;
        }
        way
    }

    async fn call(
        &self,
        conn: &mut Object<AsyncPgConnection>,
        visit: &Visit<'_>,
        way: Way,
    ) -> Booked {
        if let Some(bug) = self.told.bug.filter(|bug| bug.is_of_visits()) {
            return rival::book(bug, conn, visit).await;
        }
        let number = visit.number;
        match way {
            Way::Never => visit::never(conn, number, visit).await,
            Way::Bounded => visit::bounded(conn, number, visit).await,
            Way::Poll => visit::poll(conn, number, visit).await,
            Way::RepeatableRead => visit::repeatable(conn, number, visit).await,
            Way::Serializable => visit::serializable(conn, number, visit).await,
            Way::Session => visit::session(conn, number, visit).await,
            Way::Permits => visit::permits(conn, number, visit).await,
            _ => visit::wait(conn, number, visit).await,
        }
    }

    /// One visit that gets its own connection from the pool.
    pub(super) async fn visit_pool(&self, way: Way, chance: &mut Chance) {
        let visit = self.visit(way, chance);
        // The pool waits without a limit.
        let limit = self.limit(chance).unwrap_or(PATIENCE * 4);
        let (pool, number) = (&self.pool, visit.number);
        let call = async {
            match way {
                Way::Queue => visit::queue(pool, number, &visit).await,
                Way::PollPool => visit::poll_pool(pool, number, &visit).await,
                Way::Permits => {
                    let request = Request::new(RoomLock { room: number });
                    let request = request.permits(u32::try_from(PERMITS).unwrap_or(1));
                    let request = request.poll(Duration::from_millis(2));
                    visit::owned(pool, request, &visit).await
                }
                _ => {
                    let request = Request::new(SlotLock { slot: number });
                    visit::owned(pool, request, &visit).await
                }
            }
        };
        let ended = until(call, &visit.hangs, Some(limit)).await;
        if self.ended(way, &visit, ended.as_ref()) {
            // The server may be down.
            pass(Duration::from_millis(50)).await;
        }
    }

    fn visit(&self, way: Way, chance: &mut Chance) -> Visit<'_> {
        let is_in_room = way.subject() == Subject::Room;
        let number = match self.told.bug {
            Some(Bug::CountedPermits) => 0,
            _ if is_in_room => i64::from(chance.below(ROOMS)),
            _ => self.slot(chance),
        };
        Visit {
            op: self.begin(way, number),
            number,
            is_in_room,
            manner: self.manner(way, chance),
            is_pooled: self.told.is_pooled,
            log: &self.log,
            ticks: &self.ticks,
            hangs: Notify::new(),
            departed: AtomicI64::new(0),
            has_ended: AtomicBool::new(false),
            is_taken: AtomicBool::new(false),
        }
    }

    fn manner(&self, way: Way, chance: &mut Chance) -> Manner {
        // Inside a session-level lock the transaction is Diesel's, which does not report an ignored error.
        let is_of_diesel = matches!(way, Way::Session | Way::Owned | Way::Permits);
        match (chance.below(40), self.told.bug) {
            (0..4, _) => Manner::Thinks,
            (4, _) => Manner::Fails,
            (5, None) if !is_of_diesel => Manner::Swallows,
            (6, None) if !self.told.is_pooled => Manner::Hangs,
            (6..14, Some(Bug::GuardOff)) => Manner::Hangs,
            _ => Manner::Plain,
        }
    }

    /// When the next call is dropped, in whatever state it is. Behind a pooler that would close a connection; see the worker.
    fn limit(&self, chance: &mut Chance) -> Option<Duration> {
        let drops = self.told.bug.is_none() && !self.told.is_pooled && chance.below(16) == 0;
        drops.then(|| Duration::from_millis(chance.below(6).into()))
    }

    /// Records the outcome of a visit, and returns whether the connection may be lost.
    fn ended(&self, way: Way, visit: &Visit<'_>, ended: Option<&Booked>) -> bool {
        let has_ended = visit.has_ended.load(Ordering::Relaxed);
        let is_taken = visit.is_taken.load(Ordering::Relaxed);
        // If the transaction is Diesel's own, nothing says whether its commit may have happened.
        let is_unknown = has_ended
            && (self.told.bug.is_some() || matches!(way, Way::Session | Way::Owned | Way::Permits));
        let (outcome, why) = match ended {
            Some(Ok(true)) => (Outcome::Confirmed, "-".to_owned()),
            Some(Ok(false)) => (Outcome::Taken, "-".to_owned()),
            Some(Err(_)) if is_taken => (Outcome::Taken, "-".to_owned()),
            Some(Err(error)) if is_unknown => {
                (Outcome::Unknown, outcome::name(error, error.database()))
            }
            Some(Err(error)) => (
                outcome::of_error(error),
                outcome::name(error, error.database()),
            ),
            None if has_ended => (Outcome::Unknown, "Dropped".to_owned()),
            None => (Outcome::Dropped, "Dropped".to_owned()),
        };
        let departed = visit.departed.load(Ordering::Relaxed);
        self.end(way, visit.op, outcome, departed, &why);
        matches!(outcome, Outcome::Failed | Outcome::Unknown)
    }
}

/// The outcome of a call, unless it is dropped: when it hangs, or when its time is over.
pub(super) async fn until<T>(
    call: impl Future<Output = T>,
    hangs: &Notify,
    limit: Option<Duration>,
) -> Option<T> {
    let limit = limit.unwrap_or(Duration::MAX);
    tokio::select! {
        ended = call => Some(ended),
        () = hangs.notified() => None,
        () = pass(limit) => None,
    }
}
