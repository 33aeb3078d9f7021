//! Sessions of a pooler that hold a lock and that this command has used too.
//!
//! A session-level lock that a program leaves on a pooler's session stays there. PostgreSQL shows
//! the program that used the session last, which can be this command if it reads the locks through
//! the pooler.

use advisory_runtime::monitor::{Activity, Backend, HolderId, Locks, Scope, State};

use crate::cli::NAME;

/// Removes the traces of this command from sessions that hold locks, and returns their process ids.
/// This command acquires no lock, so each of these sessions belongs to a pooler, and their locks
/// are session-level.
pub(super) fn remove_traces(locks: &mut Locks) -> Vec<i32> {
    let reader = locks.reader;
    // pgbouncer can add a hyphen and the client's address to a name.
    let is_own = |backend: &Backend| {
        let rest = backend.application.strip_prefix(NAME);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" - "))
    };
    let used = locks.backends.iter();
    let used = used.filter(|backend| backend.pid == reader || is_own(backend));
    let used: Vec<i32> = used.map(|backend| backend.pid).collect();
    let mut pooled = Vec::new();
    for holder in locks.locks.iter_mut().flat_map(|lock| &mut lock.holders) {
        if let HolderId::Backend(pid) = holder.id
            && used.contains(&pid)
        {
            holder.scope = Some(Scope::Session);
            pooled.push(pid);
        }
    }
    pooled.sort_unstable();
    pooled.dedup();
    let backends = locks.backends.iter_mut();
    for backend in backends.filter(|backend| pooled.contains(&backend.pid)) {
        backend.application.clear();
        backend.is_pooled = true;
        if let Activity::Visible {
            state,
            query,
            transaction_age,
            client,
            ..
        } = &mut backend.activity
        {
            *state = State::Idle;
            query.clear();
            *transaction_age = None;
            *client = None;
        }
    }
    pooled
}
