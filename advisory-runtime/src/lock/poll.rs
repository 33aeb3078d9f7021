//! Polls for locks instead of waiting at the server.
//!
//! A wait at the server is a statement, and a statement has a snapshot, for which `CREATE INDEX CONCURRENTLY` waits. A call that polls
//! has no snapshot between two tries.

use super::guard::{Held, Scope};
use super::pauses::{Pauses, random};
use super::{hand_over, nested, session, xact};
use crate::driver::Driver;
use crate::{Error, Isolation, Request, Wait};
use std::num::NonZeroU32;

/// Tries on the connection of the guard until the locks are free. Between two tries nothing is in flight, so dropping the call there
/// leaves the connection open. With `outer`, the transaction of that depth keeps the locks.
pub(super) async fn poll<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
    outer: Option<NonZeroU32>,
) -> Result<(), Error> {
    let mut pauses = Pauses::new(request);
    held.budget = Wait::Never;
    loop {
        let attempt = request.attempt(random());
        held.permits.clone_from(&attempt.permits);
        match ask(held, &attempt, outer).await {
            Ok(()) => return Ok(()),
            Err(error) => D::pause(pauses.after(error)?).await,
        }
    }
}

/// Asks for the locks once. With `outer`, the transaction of that depth keeps them.
pub(super) async fn ask<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
    outer: Option<NonZeroU32>,
) -> Result<(), Error> {
    match (held.scope, outer) {
        (Scope::Xact, Some(outer)) => nested::lock(held, outer, request).await,
        (Scope::Xact, None) => ask_xact(held, request).await,
        (Scope::Session, _) => session::acquire(held, request).await,
    }
}

/// Asks for transaction-level locks.
pub(super) async fn ask_xact<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    match held.outer {
        None if request.isolation == Isolation::ReadCommitted => xact::begin(held, request).await,
        None => Box::pin(hand_over::begin(held, request)).await,
        Some(outer) => nested::begin(held, outer, request).await,
    }
}
