//! What a call that ends in no orderly way sends behind itself.

use std::num::NonZeroU32;

/// Inside the transaction that a dropped call has left: waits to be hit by the cancel request that is on its way.
///
/// The request is not answered, and can arrive late. Whatever was sent next on the connection would then be cancelled in the
/// place of the call. So a statement that does nothing waits for it, before the transaction is rolled back. Where the call's
/// own statement was hit, the transaction has failed, and so does this at once. A session-level lock of this session alone
/// is left as a trace that it was here, until [`erase_trace`]: it is the one thing that a rollback does not undo.
pub(crate) fn await_cancel(outer: Option<NonZeroU32>, token: u64) -> String {
    let name = match outer {
        None => "advisory.token".to_owned(),
        Some(outer) => format!("advisory.token_{outer}"),
    };
    let ours =
        format!("pg_catalog.current_setting('{name}',true) OPERATOR(pg_catalog.=) '{token}'");
    let trace = trace();
    format!(
        "{PATIENT};SELECT pg_catalog.pg_try_advisory_lock({trace}) WHERE {ours};SELECT pg_catalog.pg_sleep(0.5) WHERE {ours};\
         SELECT pg_catalog.pg_advisory_unlock({trace}) WHERE {ours}"
    )
}

/// Behind the rollback: lets the rest of a cancel request arrive.
///
/// The server sends the signal twice, to the process and to its group, and a loaded machine can put time between the two. And
/// where [`await_cancel`] was not hit, the call's own statement was, or it failed by itself at that moment and the request is
/// still on its way.
pub(crate) fn pause() -> String {
    let is_traced = is_traced();
    format!("{PATIENT};SELECT pg_catalog.pg_sleep(CASE WHEN {is_traced} THEN 0.1 ELSE 0.25 END)")
}

/// Takes away what [`await_cancel`] has left.
pub(crate) fn erase_trace() -> String {
    let (trace, is_traced) = (trace(), is_traced());
    format!("SELECT pg_catalog.pg_advisory_unlock({trace}) WHERE {is_traced}")
}

fn is_traced() -> String {
    format!(
        "EXISTS(SELECT 1 FROM pg_catalog.pg_locks WHERE granted AND locktype OPERATOR(pg_catalog.=) 'advisory' \
         AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND objsubid OPERATOR(pg_catalog.=) '2' \
         AND classid OPERATOR(pg_catalog.=) CAST('{TRACE}' AS pg_catalog.oid))"
    )
}

/// The first number of a key that only [`await_cancel`] takes, until [`erase_trace`]; the letters ADVI.
const TRACE: i32 = 0x4144_5649;

fn trace() -> String {
    format!("CAST('{TRACE}' AS pg_catalog.int4),pg_catalog.pg_backend_pid()")
}

/// [`pause`] for the second signal alone.
pub(crate) const PAUSE: &str =
    "SELECT pg_catalog.set_config('statement_timeout','0',true);SELECT pg_catalog.pg_sleep(0.1)";

/// No time-out of the session's cuts a pause short.
const PATIENT: &str = "SELECT pg_catalog.set_config('statement_timeout','0',true)";

/// Ends a hand-over that a dropped call has left complete: its transaction is empty and holds the locks alone, so nothing is
/// left for [`release_taken`].
pub(crate) fn end_hand_over(token: u64, keys: usize) -> String {
    format!(
        "SELECT pg_catalog.set_config('advisory.step','{token}.-1',false),\
         pg_catalog.set_config('advisory.taken','{token}.{keys}',false) \
         WHERE pg_catalog.current_setting('advisory.token',true) OPERATOR(pg_catalog.=) '{token}' \
         AND pg_catalog.current_setting('advisory.step',true) OPERATOR(pg_catalog.=) '{token}.{keys}';COMMIT"
    )
}

/// The same behind the release of session-level locks: if all were taken, no statement of the acquisition was hit.
pub(crate) fn pause_after_release(token: u64, keys: usize) -> String {
    format!(
        "{PATIENT};SELECT pg_catalog.pg_sleep(CASE WHEN pg_catalog.current_setting('advisory.taken',true) OPERATOR(pg_catalog.=) \
         '{token}.{keys}' THEN 0.75 ELSE 0.25 END)"
    )
}

/// Ends whatever transaction is open; a warning where none is.
pub(crate) const ROLLBACK: &str = "ROLLBACK";

/// Rolls back, and leaves the session in a failed transaction: it holds no lock and refuses whatever comes.
pub(crate) const DOOM: &str = "ROLLBACK;SELECT pg_catalog.pg_advisory_unlock_all();BEGIN;\
     SELECT CAST('advisory:abandoned' AS pg_catalog.int4)";

/// Rolls back and ends the session. Where that is refused, as after a SET ROLE, it is left as [`DOOM`] leaves it.
pub(crate) const TERMINATE: &str = "ROLLBACK;SELECT pg_catalog.pg_advisory_unlock_all();BEGIN;\
     SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid());\
     SELECT CAST('advisory:abandoned' AS pg_catalog.int4)";
