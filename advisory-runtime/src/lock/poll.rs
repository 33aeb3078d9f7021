//! Polls for locks instead of waiting at the server.
//!
//! A wait at the server is a statement, and a statement has a snapshot, for which
//! `CREATE INDEX CONCURRENTLY` waits. A call that polls has no snapshot between two tries.

use super::call::Call;
use super::pauses::Pauses;
use super::way;
use crate::Error;
use crate::driver::Driver;

/// Tries until the locks are free. Between two tries nothing is in flight, so dropping the call
/// there leaves the connection open.
pub(super) async fn poll<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    let request = call.request.clone();
    let mut pauses = Pauses::new(&request);
    loop {
        call.request = request.attempt();
        match way::acquire(conn, call).await {
            Ok(()) => return Ok(()),
            Err(error) => D::pause(pauses.after(error)?).await,
        }
    }
}
