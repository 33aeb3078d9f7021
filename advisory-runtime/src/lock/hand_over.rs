//! Transaction-level locks at REPEATABLE READ and SERIALIZABLE, outside of a transaction.

use super::call::{Call, Phase};
use super::refusal::{self, State};
use super::verify;
use crate::driver::Driver;
use crate::error::{Marker, is_connection_lost};
use crate::sql::{self, hand_over, session};
use crate::{Error, Wait};
use diesel::QueryResult;
use diesel::result::Error as DieselError;

pub(super) async fn begin<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    call.process = verify::own_process(conn);
    let mut begun = begin_once(conn, call).await;
    if let Err(error) = &begun
        && verify::may_repeat(conn, call, error).await
    {
        begun = Box::pin(begin_once(conn, call)).await;
    }
    begun
}

async fn begin_once<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    call.phase = Phase::Open;
    if call.budget() == Wait::Never {
        return begin_try(conn, call).await;
    }
    match call
        .send(conn, hand_over::begin(&call.request, call.process))
        .await
    {
        Ok(_) => Ok(()),
        Err(source) => Err(refused(conn, call, source).await),
    }
}

/// The try is a message of its own, so that a miss is not an error. Its session-level lock must be on the session that then opens the
/// transaction.
async fn begin_try<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    let check = hand_over::check_try(call.process);
    if let Err(source) = conn.execute(&check).await {
        return Err(refused(conn, call, source).await);
    }
    let source = match call
        .send(conn, hand_over::begin(&call.request, call.process))
        .await
    {
        Ok(Ok(false)) => return Err(refusal::missed(conn, call, Ok(()))),
        Ok(Ok(true)) => match open(conn, call).await {
            Ok(()) => return Ok(()),
            Err(source) => source,
        },
        Ok(Err(source)) | Err(source) => source,
    };
    if is_connection_lost(&source) {
        return Err(refused(conn, call, source).await);
    }
    // The session may hold the keys.
    call.close(conn).await;
    let lock = call.lock();
    Err(match Marker::of(&source) {
        Some(Marker::IsolationLevel) => Error::ForeignTransaction { lock },
        Some(Marker::PooledSession) => Error::PooledSession { lock },
        _ => Error::Database(source),
    })
}

/// Opens the transaction after a try.
async fn open<D: Driver>(conn: &mut D, call: &mut Call) -> QueryResult<()> {
    let message = match call.permit {
        Some(permit) => hand_over::open(&call.request.of_permit(permit), call.process),
        None => hand_over::open(&call.request, call.process),
    };
    conn.execute(&message).await
}

/// The connection stays usable after a refused wait that is known to have left no lock. Any other error may have come between the two
/// halves of the hand-over, while the session holds the keys, and closes it.
async fn refused<D: Driver>(conn: &mut D, call: &mut Call, source: DieselError) -> Error {
    let lock = call.lock();
    let marker = Marker::of(&source);
    if let Some(Marker::NotDeferrable | Marker::IsolationLevel) = marker {
        call.phase = Phase::Idle;
        return Error::ForeignTransaction { lock };
    }
    let is_lost = is_connection_lost(&source);
    let is_undone = !is_lost && conn.execute(sql::ROLLBACK).await.is_ok();
    if !is_undone && refusal::probe(conn, &source).await == State::Lost {
        call.phase = Phase::Idle;
        return Error::Database(source);
    }
    let error = match marker {
        Some(Marker::PooledSession) => Error::PooledSession { lock },
        _ => refusal::classify(conn, call, source).await,
    };
    let may_go_on = match error {
        // The check comes before the keys.
        Error::PooledSession { .. } => is_undone,
        Error::TimedOut { .. } | Error::Deadlock { .. } => {
            is_undone && holds_none(conn, call).await
        }
        _ => false,
    };
    if may_go_on {
        call.phase = Phase::Idle;
    } else {
        call.close(conn).await;
    }
    error
}

/// Whether the session is known to hold none of the keys by this acquisition.
async fn holds_none<D: Driver>(conn: &mut D, call: &Call) -> bool {
    let message = session::check_none(&call.request.keys, call.request.mode);
    conn.execute(&message).await.is_ok()
}
