//! Acquires locks, in either scope.

use super::call::{Call, CallPhase, Way, answer_limit, inside};
use super::guard::{ConnAccessor, LockGuard};
use super::lock_info::LockInfo;
use super::poll::poll;
use super::way;
use crate::debug::idle::Statements;
use crate::driver::{Driver, depth, mark_transaction_open};
use crate::{Error, Isolation, Request, Wait, debug};
use std::num::NonZeroU32;
use std::pin::pin;

#[doc(hidden)]
pub async fn begin<O: ?Sized, D: Driver>(
    owner: &mut O,
    accessor: ConnAccessor<O, D>,
    request: Request,
) -> Result<LockGuard<'_, O, D>, Error> {
    let mut guard = LockGuard::new(owner, accessor, Way::Transaction, request);
    let (conn, call) = guard.parts();
    take_recorded(conn, call).await.map(|()| guard)
}

#[doc(hidden)]
pub async fn acquire<O: ?Sized, D: Driver>(
    owner: &mut O,
    accessor: ConnAccessor<O, D>,
    request: Request,
) -> Result<LockGuard<'_, O, D>, Error> {
    let mut guard = LockGuard::new(owner, accessor, Way::Session, request);
    let (conn, call) = guard.parts();
    take_recorded(conn, call).await.map(|()| guard)
}

pub(super) async fn take_recorded<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    call.telemetry = Some(call.request.telemetry(call.way.scope()));
    let taken = take(conn, call).await;
    call.record_acquisition(&taken);
    taken
}

async fn take<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    choose_way(conn, call)?;
    let limit = answer_limit(&call.request);
    let taken = D::timeout(limit, pin!(take_inner(conn, call))).await;
    close_unanswered(conn, call, taken).await
}

async fn take_inner<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    if debug::is_on() {
        Box::pin(debug::before_begin(conn, &mut call.checks, call.outer)).await?;
    }
    if call.request.poll.is_some() {
        Box::pin(poll(conn, call)).await?;
    } else {
        way::acquire(conn, call).await?;
    }
    mark_held(conn, call).await
}

/// Closes the connection of a call without an answer in time: the session may hold the locks.
pub(super) async fn close_unanswered<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    taken: Option<Result<(), Error>>,
) -> Result<(), Error> {
    if let Some(answer) = taken {
        return answer;
    }
    call.close(conn).await;
    Err(call.timed_out(None))
}

pub(crate) async fn lock<O: ?Sized, D: Driver>(
    owner: &mut O,
    accessor: ConnAccessor<O, D>,
    request: Request,
) -> Result<LockInfo<D>, Error> {
    // `choose_way` sets the depth.
    let within = Way::Within(NonZeroU32::MIN);
    let mut telemetry = request.telemetry(within.scope());
    let mut guard = LockGuard::new(owner, accessor, within, request);
    let (conn, call) = guard.parts();
    let locked = take(conn, call).await.map(|()| call.info());
    match &locked {
        Ok(acquired) => telemetry.record_left(acquired.waited),
        Err(error) => telemetry.record_refusal(error),
    }
    locked
}

pub(crate) async fn try_lock<O: ?Sized, D: Driver>(
    owner: &mut O,
    accessor: ConnAccessor<O, D>,
    request: Request,
) -> Result<bool, Error> {
    let request = Request {
        poll: None,
        ..request.wait(Wait::Never)
    };
    match lock(owner, accessor, request).await {
        Ok(_) => Ok(true),
        Err(Error::NotAvailable { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Marks the locks as held, for Diesel and for the checks of a debug build.
pub(super) async fn mark_held<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    let permit = call.permit;
    match call.way {
        Way::Session => {
            call.checks.held(None, permit);
            call.phase = CallPhase::Held;
            return Ok(());
        }
        Way::Within(outer) | Way::Try(outer) => {
            call.checks.held(Some(inside(Some(outer))), permit);
            call.checks.locks.hand_to_transaction(outer);
            return Ok(());
        }
        Way::Transaction | Way::Strict | Way::Savepoint(_) => {}
    }
    mark_transaction_open(conn).map_err(Error::Database)?;
    let depth = inside(call.outer);
    let checks = &mut call.checks;
    debug::set_mark(conn, checks, depth).await;
    checks.held(Some(depth), permit);
    checks.statements = Statements::follow(conn);
    call.phase = CallPhase::Held;
    Ok(())
}

/// Chooses the call's way, or refuses a call that cannot succeed. It does not ask the server.
pub(super) fn choose_way<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    let request = &call.request;
    if request.keys.is_empty() {
        let (lock, slice) = (call.lock_name(), "keys");
        return Err(Error::NoKeys { lock, slice });
    }
    if request.keys.len() > 1 && !request.permits.is_empty() {
        let (lock, keys) = (call.lock_name(), request.keys.len());
        return Err(Error::TooManyKeys { lock, keys, max: 1 });
    }
    if let Some(permits) = request.refused_permits {
        let lock = call.lock_name();
        return Err(Error::InvalidPermits { lock, permits });
    }
    let lock = || call.lock_name();
    let outer = match depth(conn) {
        Ok(Some(outer)) => Some(outer),
        Ok(None) if !conn.is_broken() => None,
        _ => return Err(Error::BrokenConnection { lock: lock() }),
    };
    // The transaction that a test began does not count.
    let is_inside = outer.is_some_and(|outer| outer > NonZeroU32::MIN || conn.is_broken());
    let is_strict = request.isolation != Isolation::ReadCommitted;
    if is_inside && (call.way == Way::Session || request.refuses_nested || is_strict) {
        return Err(Error::InTransaction { lock: lock() });
    }
    call.way = match (call.way, outer) {
        (Way::Session, _) => Way::Session,
        (Way::Within(_), Some(outer)) if is_inside && request.budget() == Wait::Never => {
            Way::Try(outer)
        }
        (Way::Within(_), Some(outer)) if is_inside => Way::Within(outer),
        (Way::Within(_), _) => return Err(Error::NotInTransaction { lock: lock() }),
        (_, Some(outer)) => Way::Savepoint(outer),
        (_, None) if is_strict => Way::Strict,
        (_, None) => Way::Transaction,
    };
    call.outer = outer;
    Ok(())
}
