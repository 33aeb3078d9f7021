//! Polls for locks instead of waiting at the server.
//!
//! A wait at the server is a statement, and a statement has a snapshot, for which `CREATE INDEX CONCURRENTLY` waits. A call that polls
//! has no snapshot between two tries.

use super::call::{Call, Scope};
use super::pauses::{Pauses, random};
use super::{hand_over, nested, session, xact};
use crate::driver::Driver;
use crate::{Error, Isolation};
use std::num::NonZeroU32;

/// Tries until the locks are free. Between two tries nothing is in flight, so dropping the call there leaves the connection open. With
/// `outer`, the transaction of that depth keeps the locks.
pub(super) async fn poll<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: Option<NonZeroU32>,
) -> Result<(), Error> {
    let request = call.request.clone();
    let mut pauses = Pauses::new(&request);
    loop {
        call.request = request.attempt(random());
        match ask(conn, call, outer).await {
            Ok(()) => return Ok(()),
            Err(error) => D::pause(pauses.after(error)?).await,
        }
    }
}

/// Asks for the locks once. With `outer`, the transaction of that depth keeps them.
pub(super) async fn ask<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: Option<NonZeroU32>,
) -> Result<(), Error> {
    match (call.scope, outer) {
        (Scope::Xact, Some(outer)) => nested::lock(conn, call, outer).await,
        (Scope::Xact, None) => ask_xact(conn, call).await,
        (Scope::Session, _) => session::acquire(conn, call).await,
    }
}

/// Asks for transaction-level locks.
pub(super) async fn ask_xact<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    match call.outer {
        None if call.request.isolation == Isolation::ReadCommitted => xact::begin(conn, call).await,
        None => Box::pin(hand_over::begin(conn, call)).await,
        Some(outer) => nested::begin(conn, call, outer).await,
    }
}
