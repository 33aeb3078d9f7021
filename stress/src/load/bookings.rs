//! Operations on slots and rooms, on a connection that the task keeps for a while, or on one of the
//! pool for each call.

use super::Load;
use crate::bug::Bug;
use crate::buggy;
use crate::chance::Chance;
use crate::clock::pass;
use crate::critical_section::{self, Booked, CriticalSection, Manner, RoomLock, SlotLock};
use crate::operation_kind::{OperationKind, PERMITS, Subject};
use crate::outcome::{self, Outcome};
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
    /// Some operations on one connection.
    pub(super) async fn book(&self, chance: &mut Chance) {
        // On a task of its own, so that a connection that takes longer to open is ready for the
        // next operation.
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
                let op = self.begin(OperationKind::Wait, 0);
                self.end(
                    OperationKind::Wait,
                    op,
                    Outcome::Refused,
                    0,
                    "PoolExhausted",
                );
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
            let kind = self.kind(chance);
            let section = self.section(kind, chance);
            let limit = self.limit(chance);
            let call = self.call(&mut conn, &section, kind);
            let ended = until(call, &section.hangs, limit).await;
            let is_lost = self.ended(kind, &section, ended.as_ref());
            // With the bug `guard-off` the connection is used again as if no transaction were open.
            if is_lost || (ended.is_none() && self.assignment.bug.is_none()) {
                return;
            }
        }
    }

    fn kind(&self, chance: &mut Chance) -> OperationKind {
        let kind = match (self.assignment.bug, chance.below(20)) {
            (Some(Bug::CountedPermits), _) | (None, 12) => OperationKind::Permits,
            (None, 0..3) => OperationKind::Never,
            (None, 3..6) => OperationKind::Bounded,
            (None, 6..8) => OperationKind::Poll,
            (None, 8..10) => OperationKind::RepeatableRead,
            (None, 10) => OperationKind::Serializable,
            (None, 11) => OperationKind::Session,
            _ => OperationKind::Wait,
        };
        if self.assignment.is_pooled && !kind.is_for_poolers() {
            return OperationKind::Wait;
        }
        kind
    }

    async fn call(
        &self,
        conn: &mut Object<AsyncPgConnection>,
        section: &CriticalSection<'_>,
        kind: OperationKind,
    ) -> Booked {
        if let Some(bug) = self.assignment.bug.filter(|bug| bug.is_of_slots()) {
            return buggy::book(bug, conn, section).await;
        }
        let number = section.number;
        match kind {
            OperationKind::Never => critical_section::never(conn, number, section).await,
            OperationKind::Bounded => critical_section::bounded(conn, number, section).await,
            OperationKind::Poll => critical_section::poll(conn, number, section).await,
            OperationKind::RepeatableRead => {
                critical_section::repeatable(conn, number, section).await
            }
            OperationKind::Serializable => {
                critical_section::serializable(conn, number, section).await
            }
            OperationKind::Session => critical_section::session(conn, number, section).await,
            OperationKind::Permits => critical_section::permits(conn, number, section).await,
            _ => critical_section::wait(conn, number, section).await,
        }
    }

    /// One operation that gets its own connection from the pool.
    pub(super) async fn enter_pool(&self, kind: OperationKind, chance: &mut Chance) {
        let section = self.section(kind, chance);
        // The pool waits without a limit.
        let limit = self.limit(chance).unwrap_or(PATIENCE * 4);
        let (pool, number) = (&self.pool, section.number);
        let call = async {
            match kind {
                OperationKind::Queue => critical_section::queue(pool, number, &section).await,
                OperationKind::PollPool => {
                    critical_section::poll_pool(pool, number, &section).await
                }
                OperationKind::Permits => {
                    let request = Request::new(RoomLock { room: number });
                    let request = request.permits(u32::try_from(PERMITS).unwrap_or(1));
                    let request = request.poll(Duration::from_millis(2));
                    critical_section::owned(pool, request, &section).await
                }
                _ => {
                    let request = Request::new(SlotLock { slot: number });
                    critical_section::owned(pool, request, &section).await
                }
            }
        };
        let ended = until(call, &section.hangs, Some(limit)).await;
        if self.ended(kind, &section, ended.as_ref()) {
            // The server may be down.
            pass(Duration::from_millis(50)).await;
        }
    }

    fn section(&self, kind: OperationKind, chance: &mut Chance) -> CriticalSection<'_> {
        let is_in_room = kind.subject() == Subject::Room;
        let number = match self.assignment.bug {
            Some(Bug::CountedPermits) => 0,
            _ if is_in_room => i64::from(chance.below(ROOMS)),
            _ => self.slot(chance),
        };
        CriticalSection {
            op: self.begin(kind, number),
            number,
            is_in_room,
            manner: self.manner(kind, chance),
            is_pooled: self.assignment.is_pooled,
            log: &self.log,
            ticks: &self.ticks,
            hangs: Notify::new(),
            departed: AtomicI64::new(0),
            has_ended: AtomicBool::new(false),
            is_taken: AtomicBool::new(false),
        }
    }

    fn manner(&self, kind: OperationKind, chance: &mut Chance) -> Manner {
        match (chance.below(40), self.assignment.bug) {
            (0..4, _) => Manner::Pauses,
            (4, _) => Manner::Fails,
            (5, None) if !kind.is_of_diesel() => Manner::Swallows,
            (6, None) if !self.assignment.is_pooled => Manner::Hangs,
            (6..14, Some(Bug::GuardOff)) => Manner::Hangs,
            _ => Manner::Plain,
        }
    }

    /// When the next call is dropped, in whatever state it is. Behind a pooler that would close a
    /// connection; see the worker.
    fn limit(&self, chance: &mut Chance) -> Option<Duration> {
        let drops =
            self.assignment.bug.is_none() && !self.assignment.is_pooled && chance.below(16) == 0;
        drops.then(|| Duration::from_millis(chance.below(6).into()))
    }

    /// Records the outcome of an operation, and returns whether the connection may be lost.
    fn ended(
        &self,
        kind: OperationKind,
        section: &CriticalSection<'_>,
        ended: Option<&Booked>,
    ) -> bool {
        let has_ended = section.has_ended.load(Ordering::Relaxed);
        let is_taken = section.is_taken.load(Ordering::Relaxed);
        let is_unknown = has_ended && (self.assignment.bug.is_some() || kind.is_of_diesel());
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
        let departed = section.departed.load(Ordering::Relaxed);
        self.end(kind, section.op, outcome, departed, &why);
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
