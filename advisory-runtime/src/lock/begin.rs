//! Acquires locks, in either scope.

use super::acquired::Acquired;
use super::guard::{Held, Place, Scope, inside};
use super::poll::{ask_xact, poll};
use super::{nested, session};
use crate::debug::idle::Statements;
use crate::driver::{Driver, depth, mark_transaction_open};
use crate::observe::Telemetry;
use crate::{Error, Isolation, Request, Wait, debug};
use std::num::NonZeroU32;

/// Opens a transaction that holds the locks.
pub(crate) async fn begin<O: ?Sized, D: Driver>(
    owner: &mut O,
    place: Place<O, D>,
    request: Request,
) -> Result<Held<'_, O, D>, Error> {
    let telemetry = request.telemetry(Scope::Xact.name());
    let begun = begin_inner(owner, place, request).await;
    record_outcome(telemetry, begun)
}

async fn begin_inner<O: ?Sized, D: Driver>(
    owner: &mut O,
    place: Place<O, D>,
    request: Request,
) -> Result<Held<'_, O, D>, Error> {
    let mut held = prepare_guard(owner, place, Scope::Xact, &request)?;
    if debug::is_on() {
        Box::pin(check(&mut held)).await?;
    }
    if request.poll.is_some() {
        Box::pin(poll(&mut held, &request, None)).await?;
    } else {
        ask_xact(&mut held, &request).await?;
    }
    mark_held(&mut held).await?;
    Ok(held)
}

/// Takes the locks in the middle of an open transaction.
pub(crate) async fn lock<O: ?Sized, D: Driver>(
    owner: &mut O,
    place: Place<O, D>,
    request: Request,
) -> Result<Acquired, Error> {
    let mut telemetry = request.telemetry(Scope::Xact.name());
    let locked = lock_inner(owner, place, request).await;
    match &locked {
        Ok(acquired) => telemetry.record_left(acquired.waited),
        Err(error) => telemetry.record_refusal(error),
    }
    locked
}

/// Takes the locks in the middle of an open transaction if they are free, and returns whether they were.
pub(crate) async fn try_lock<O: ?Sized, D: Driver>(
    owner: &mut O,
    place: Place<O, D>,
    request: Request,
) -> Result<bool, Error> {
    let request = Request {
        poll: None,
        ..request.wait(Wait::Never)
    };
    match lock(owner, place, request).await {
        Ok(_) => Ok(true),
        Err(Error::NotAvailable { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn lock_inner<O: ?Sized, D: Driver>(
    owner: &mut O,
    place: Place<O, D>,
    request: Request,
) -> Result<Acquired, Error> {
    let mut held = prepare_guard(owner, place, Scope::Xact, &request)?;
    let outer = held.outer;
    let Some(outer) = outer.filter(|_| is_inside(held.driver(), outer)) else {
        let lock = held.name.text();
        return Err(Error::NotInTransaction { lock });
    };
    if debug::is_on() {
        Box::pin(check(&mut held)).await?;
    }
    if request.poll.is_some() {
        Box::pin(poll(&mut held, &request, Some(outer))).await?;
    } else if request.budget() == Wait::Never {
        nested::try_lock(&mut held, outer, &request).await?;
    } else {
        nested::lock(&mut held, outer, &request).await?;
    }
    let permit = held.permit;
    held.checks.held(Some(inside(Some(outer))), permit);
    held.checks.locks.leave(outer);
    Ok(held.acquired())
}

/// Takes session-level locks.
pub(crate) async fn acquire<O: ?Sized, D: Driver>(
    owner: &mut O,
    place: Place<O, D>,
    request: Request,
) -> Result<Held<'_, O, D>, Error> {
    let telemetry = request.telemetry(Scope::Session.name());
    let acquired = acquire_inner(owner, place, request).await;
    record_outcome(telemetry, acquired)
}

async fn acquire_inner<O: ?Sized, D: Driver>(
    owner: &mut O,
    place: Place<O, D>,
    request: Request,
) -> Result<Held<'_, O, D>, Error> {
    let mut held = prepare_guard(owner, place, Scope::Session, &request)?;
    if debug::is_on() {
        Box::pin(check(&mut held)).await?;
    }
    if request.poll.is_some() {
        Box::pin(poll(&mut held, &request, None)).await?;
    } else {
        session::acquire(&mut held, &request).await?;
    }
    mark_held(&mut held).await?;
    Ok(held)
}

/// Marks the locks as held, for Diesel and for the checks of a debug build.
pub(super) async fn mark_held<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
) -> Result<(), Error> {
    let permit = held.permit;
    if held.scope == Scope::Session {
        held.checks.held(None, permit);
        return Ok(());
    }
    mark_transaction_open(held.driver()).map_err(Error::Database)?;
    let depth = inside(held.outer);
    let (conn, checks) = held.driver_and_checks();
    debug::set_token(conn, checks, depth).await;
    checks.held(Some(depth), permit);
    checks.statements = Statements::follow(conn);
    Ok(())
}

pub(super) fn record_outcome<O: ?Sized, D: Driver>(
    mut telemetry: Telemetry,
    held: Result<Held<'_, O, D>, Error>,
) -> Result<Held<'_, O, D>, Error> {
    match held {
        Ok(mut held) => {
            telemetry.record_acquired(held.waited);
            held.telemetry = Some(telemetry);
            Ok(held)
        }
        Err(error) => {
            telemetry.record_refusal(&error);
            Err(error)
        }
    }
}

/// Checks what can be known without the server.
pub(super) fn prepare_guard<'o, O: ?Sized, D: Driver>(
    owner: &'o mut O,
    place: Place<O, D>,
    scope: Scope,
    request: &Request,
) -> Result<Held<'o, O, D>, Error> {
    let mut held = Held::new(owner, place, scope, request);
    let name = held.name;
    if request.keys.is_empty() {
        let (lock, slice) = (name.text(), "keys");
        return Err(Error::NoKeys { lock, slice });
    }
    if request.keys.len() > 1 && !request.permits.is_empty() {
        let (lock, keys) = (name.text(), request.keys.len());
        return Err(Error::TooManyKeys { lock, keys, max: 1 });
    }
    if let Some(permits) = request.refused_permits {
        let lock = name.text();
        return Err(Error::InvalidPermits { lock, permits });
    }
    let conn = held.driver();
    let outer = match depth(conn) {
        Ok(Some(outer)) => Some(outer),
        Ok(None) if !conn.is_broken() => None,
        _ => return Err(Error::BrokenConnection { lock: name.text() }),
    };
    let needs_outside = scope == Scope::Session
        || request.refuses_nested
        || request.isolation != Isolation::ReadCommitted;
    if needs_outside && is_inside(conn, outer) {
        return Err(Error::InTransaction { lock: name.text() });
    }
    held.outer = outer;
    Ok(held)
}

/// Whether a transaction is open. One that a test began does not count.
fn is_inside<D: Driver>(conn: &mut D, outer: Option<NonZeroU32>) -> bool {
    outer.is_some_and(|outer| outer > NonZeroU32::MIN || conn.is_broken())
}

/// Runs the checks of a debug build.
pub(super) async fn check<O: ?Sized, D: Driver>(held: &mut Held<'_, O, D>) -> Result<(), Error> {
    let (address, outer) = (held.address(), held.outer);
    let (conn, checks) = held.driver_and_checks();
    debug::before_begin(conn, checks, address, outer).await
}
