//! Acquires locks, in either scope.

use super::acquired::Acquired;
use super::call::{Call, Scope, inside};
use super::guard::{ConnAccessor, LockGuard};
use super::poll::{ask_xact, poll};
use super::{nested, session};
use crate::debug::idle::Statements;
use crate::driver::{Driver, depth, mark_transaction_open};
use crate::{Error, Isolation, Request, Wait, debug};
use std::num::NonZeroU32;

/// Opens a transaction that holds the locks.
pub(crate) async fn begin<O: ?Sized, D: Driver>(
    owner: &mut O,
    accessor: ConnAccessor<O, D>,
    request: Request,
) -> Result<LockGuard<'_, O, D>, Error> {
    let mut guard = LockGuard::new(owner, accessor, Scope::Xact, request);
    let (conn, call) = guard.parts();
    call.telemetry = Some(call.request.telemetry(Scope::Xact.name()));
    let begun = begin_inner(conn, call).await;
    call.record_acquisition(&begun);
    begun.map(|()| guard)
}

async fn begin_inner<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    prepare(conn, call)?;
    if debug::is_on() {
        Box::pin(check(conn, call)).await?;
    }
    if call.request.poll.is_some() {
        Box::pin(poll(conn, call, None)).await?;
    } else {
        ask_xact(conn, call).await?;
    }
    mark_held(conn, call).await
}

/// Takes session-level locks.
pub(crate) async fn acquire<O: ?Sized, D: Driver>(
    owner: &mut O,
    accessor: ConnAccessor<O, D>,
    request: Request,
) -> Result<LockGuard<'_, O, D>, Error> {
    let mut guard = LockGuard::new(owner, accessor, Scope::Session, request);
    let (conn, call) = guard.parts();
    acquire_call(conn, call).await.map(|()| guard)
}

/// Takes the session-level locks of a call.
pub(super) async fn acquire_call<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    call.telemetry = Some(call.request.telemetry(Scope::Session.name()));
    let acquired = acquire_inner(conn, call).await;
    call.record_acquisition(&acquired);
    acquired
}

async fn acquire_inner<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    prepare(conn, call)?;
    if debug::is_on() {
        Box::pin(check(conn, call)).await?;
    }
    if call.request.poll.is_some() {
        Box::pin(poll(conn, call, None)).await?;
    } else {
        session::acquire(conn, call).await?;
    }
    mark_held(conn, call).await
}

/// Takes the locks in the middle of an open transaction.
pub(crate) async fn lock<O: ?Sized, D: Driver>(
    owner: &mut O,
    accessor: ConnAccessor<O, D>,
    request: Request,
) -> Result<Acquired<D>, Error> {
    let mut telemetry = request.telemetry(Scope::Xact.name());
    let mut guard = LockGuard::new(owner, accessor, Scope::Xact, request);
    let (conn, call) = guard.parts();
    let locked = lock_inner(conn, call).await;
    match &locked {
        Ok(acquired) => telemetry.record_left(acquired.waited),
        Err(error) => telemetry.record_refusal(error),
    }
    locked
}

/// Takes the locks in the middle of an open transaction if they are free, and returns whether they were.
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

async fn lock_inner<D: Driver>(conn: &mut D, call: &mut Call) -> Result<Acquired<D>, Error> {
    prepare(conn, call)?;
    let outer = call.outer;
    let Some(outer) = outer.filter(|_| is_inside(conn, outer)) else {
        return Err(Error::NotInTransaction { lock: call.lock() });
    };
    if debug::is_on() {
        Box::pin(check(conn, call)).await?;
    }
    if call.request.poll.is_some() {
        Box::pin(poll(conn, call, Some(outer))).await?;
    } else if call.budget() == Wait::Never {
        nested::try_lock(conn, call, outer).await?;
    } else {
        nested::lock(conn, call, outer).await?;
    }
    let permit = call.permit;
    call.checks.held(Some(inside(Some(outer))), permit);
    call.checks.locks.leave(outer);
    Ok(call.acquired())
}

/// Marks the locks as held, for Diesel and for the checks of a debug build.
pub(super) async fn mark_held<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    let permit = call.permit;
    if call.scope == Scope::Session {
        call.checks.held(None, permit);
        return Ok(());
    }
    mark_transaction_open(conn).map_err(Error::Database)?;
    let depth = inside(call.outer);
    let checks = &mut call.checks;
    debug::set_token(conn, checks, depth).await;
    checks.held(Some(depth), permit);
    checks.statements = Statements::follow(conn);
    Ok(())
}

/// Checks what can be known without the server.
pub(super) fn prepare<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    let request = &call.request;
    if request.keys.is_empty() {
        let (lock, slice) = (call.lock(), "keys");
        return Err(Error::NoKeys { lock, slice });
    }
    if request.keys.len() > 1 && !request.permits.is_empty() {
        let (lock, keys) = (call.lock(), request.keys.len());
        return Err(Error::TooManyKeys { lock, keys, max: 1 });
    }
    let outer = match depth(conn) {
        Ok(Some(outer)) => Some(outer),
        Ok(None) if !conn.is_broken() => None,
        _ => return Err(Error::BrokenConnection { lock: call.lock() }),
    };
    let needs_outside = call.scope == Scope::Session
        || request.refuses_nested
        || request.isolation != Isolation::ReadCommitted;
    if needs_outside && is_inside(conn, outer) {
        return Err(Error::InTransaction { lock: call.lock() });
    }
    call.outer = outer;
    Ok(())
}

/// Whether a transaction is open. One that a test began does not count.
fn is_inside<D: Driver>(conn: &mut D, outer: Option<NonZeroU32>) -> bool {
    outer.is_some_and(|outer| outer > NonZeroU32::MIN || conn.is_broken())
}

/// Runs the checks of a debug build.
pub(super) async fn check<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    let address = std::ptr::from_mut(conn).addr();
    debug::before_begin(conn, &mut call.checks, address, call.outer).await
}
