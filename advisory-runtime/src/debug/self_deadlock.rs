//! Detection of a call that waits for a lock that its own task holds on another connection.

use super::bodies::addresses_of_bodies;
use super::connection_locks;
use super::wait_graph::{has_no_limit, held_in_database};
use crate::driver::Driver;
use crate::{Key, Request};

/// Returns whether the call waits for its own task. With a pooler between the call and the server
/// too: only the process of the connection that holds the lock must be known.
pub(super) async fn waits_forever<D: Driver>(
    conn: &mut D,
    address: usize,
    request: &Request,
) -> bool {
    // Another permit can come free.
    if request.limit().is_some() || !request.permits.is_empty() {
        return false;
    }
    let held = held_by_this_task(address, request);
    // The same number may be held in another database.
    !held.is_empty()
        && has_no_limit(conn, request).await
        && !held_in_database(conn, &held).await.is_empty()
}

/// The keys of a request that this task holds on connections other than the one at this address, in
/// a mode that excludes the request, with the server process of each. With a pooler the process is
/// not known.
fn held_by_this_task(address: usize, request: &Request) -> Vec<(Key, u32)> {
    let mut held = Vec::new();
    for other in addresses_of_bodies() {
        if other == address {
            continue;
        }
        for here in connection_locks::held_here(other) {
            let Some(process) = here.process else {
                continue;
            };
            if here.locks.mode.excludes(request.mode) {
                let keys = here.locks.keys_and_names(here.permit).map(|(key, _)| key);
                let asked = keys.filter(|key| request.keys.contains(key));
                held.extend(asked.map(|key| (key, process)));
            }
        }
    }
    held.sort_unstable();
    held.dedup();
    held
}
