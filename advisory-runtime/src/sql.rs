//! Every statement that this crate sends for a lock; the only place that spells `pg_advisory_*`.
//!
//! Functions, operators and types are `pg_catalog.`-qualified and keys are cast: an unqualified
//! `pg_advisory_xact_lock(42)` picks a `public.pg_advisory_xact_lock(int)` that somebody put first on the `search_path`.
//! Nothing but numbers made here enters the text.

use crate::request::milliseconds;
use crate::{Isolation, Key, Mode, Request, Wait};
use std::fmt::Write;
use std::num::NonZeroU32;
use std::time::Duration;

/// What the server's error text contains when the transaction is not the one that begin opened.
pub(crate) const ENDED: &str = "advisory:transaction-ended";
/// What it contains when a transaction is open that Diesel does not know of, which this message must not commit.
pub(crate) const FOREIGN: &str = "advisory:foreign-transaction";
/// What it contains when the outer transaction reads from a snapshot older than the lock.
pub(crate) const STALE: &str = "advisory:stale-snapshot";
/// What it contains on a standby, whose locks nobody on the primary sees.
pub(crate) const STANDBY: &str = "advisory:standby";
/// What it contains where `advisory.pooler` says that sessions are not the client's own.
pub(crate) const POOLED: &str = "advisory:pooled-session";
/// What it contains when a session-level lock was not held any more when it was released.
pub(crate) const LOST: &str = "advisory:lock-lost";

/// A client that dies while it waits leaves the queue. Left alone where the user has set it, on servers before 14, and on
/// platforms where setting it is an error.
const NOTICE_DEAD_CLIENT: &str = "CASE WHEN pg_catalog.current_setting('client_connection_check_interval',true) \
     OPERATOR(pg_catalog.=) '0' AND pg_catalog.strpos(pg_catalog.version(),'linux') OPERATOR(pg_catalog.>) 0 \
     THEN pg_catalog.set_config('client_connection_check_interval','1000',true) END";

/// Whether a statement stands in a transaction of its own message: there the two clocks are one reading.
const OWN_TRANSACTION: &str =
    "pg_catalog.now() OPERATOR(pg_catalog.=) pg_catalog.statement_timestamp()";

/// How long after the client's own bound the server ends what a stopped client holds. A client that goes on needs the time to
/// undo its body: up to half a second in [`await_cancel`], inside the transaction.
const GRACE: Duration = Duration::from_secs(1);

/// Appends formatted text.
macro_rules! put {
    ($sql:expr, $($text:tt)*) => {
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result = write!($sql, $($text)*);
    };
}

#[derive(Clone, Copy)]
enum Scope {
    Xact,
    Session,
}

/// Where a message stands: on its own, or inside the transaction that a test began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Around {
    Nothing,
    TestTransaction,
}

const fn function(scope: Scope, mode: Mode, wait: Wait) -> &'static str {
    match (scope, mode, wait) {
        (Scope::Xact, Mode::Exclusive, Wait::Never) => "pg_catalog.pg_try_advisory_xact_lock",
        (Scope::Xact, Mode::Shared, Wait::Never) => "pg_catalog.pg_try_advisory_xact_lock_shared",
        (Scope::Xact, Mode::Exclusive, _) => "pg_catalog.pg_advisory_xact_lock",
        (Scope::Xact, Mode::Shared, _) => "pg_catalog.pg_advisory_xact_lock_shared",
        (Scope::Session, Mode::Exclusive, Wait::Never) => "pg_catalog.pg_try_advisory_lock",
        (Scope::Session, Mode::Shared, Wait::Never) => "pg_catalog.pg_try_advisory_lock_shared",
        (Scope::Session, Mode::Exclusive, _) => "pg_catalog.pg_advisory_lock",
        (Scope::Session, Mode::Shared, _) => "pg_catalog.pg_advisory_lock_shared",
    }
}

const fn unlock(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "pg_catalog.pg_advisory_unlock",
        Mode::Shared => "pg_catalog.pg_advisory_unlock_shared",
    }
}

/// Opens a READ COMMITTED transaction that holds the keys, in one message.
///
/// A message with several statements is one implicit transaction, and the `BEGIN` at its end makes it an explicit one,
/// locks kept. So an error on the way leaves the session idle: there is nothing to roll back. The lock has a statement
/// of its own, because what runs in one statement with it reads from a snapshot taken before the wait. The level is
/// always stated, since any role may have another default.
pub(crate) fn begin(token: u64, request: &Request) -> String {
    let mut sql = String::with_capacity(800);
    put!(
        sql,
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;SELECT pg_catalog.set_config('advisory.token','{token}',true),\
         {NOTICE_DEAD_CLIENT},"
    );
    push_check(&mut sql, &[(FOREIGN, OWN_TRANSACTION)]);
    push_wait(&mut sql, request.budget());
    sql.push(';');
    push_xact_locks(&mut sql, request);
    push_hold(&mut sql, request.max_hold);
    sql.push_str(";BEGIN");
    sql
}

/// Opens a REPEATABLE READ or SERIALIZABLE transaction that holds the keys and whose snapshot is taken after them.
///
/// The snapshot of such a transaction is that of its first statement, taken before that statement waits. So the wait is
/// outside: session-level locks first, in transactions of their own, handed over to the transaction that follows.
pub(crate) fn hand_over(token: u64, request: &Request) -> String {
    let mut sql = acquire_for(token, request, Around::Nothing, None);
    let level = match request.isolation {
        Isolation::Serializable => "SERIALIZABLE",
        Isolation::RepeatableRead => "REPEATABLE READ",
        Isolation::ReadCommitted => "READ COMMITTED",
    };
    put!(
        sql,
        ";BEGIN ISOLATION LEVEL {level};SELECT pg_catalog.set_config('advisory.token','{token}',true),{NOTICE_DEAD_CLIENT}"
    );
    let (take, give) = (
        function(Scope::Xact, request.mode, Wait::Never),
        unlock(request.mode),
    );
    let all = request.keys.len();
    // The session holds them, so no try fails; where a try did before, nothing is handed over.
    for key in request.keys.iter().map(Arguments) {
        put!(
            sql,
            ",CASE WHEN pg_catalog.current_setting('advisory.step',true) OPERATOR(pg_catalog.=) '{token}.{all}' \
             THEN CASE WHEN {take}({key}) THEN {give}({key}) END END"
        );
    }
    push_hold(&mut sql, request.max_hold);
    sql
}

/// Takes the keys inside the open transaction of depth `outer`, under the savepoint that Diesel would set at this depth.
///
/// Under REPEATABLE READ and SERIALIZABLE the outer snapshot is older than the lock: what the holder before us wrote
/// would not be seen, so it is refused, unless this transaction holds the keys already (`asks_for_held`).
pub(crate) fn begin_nested(
    outer: NonZeroU32,
    token: u64,
    request: &Request,
    asks_for_held: bool,
) -> String {
    let mut sql = String::with_capacity(900);
    // Diesel leaves a savepoint behind that it has rolled back to, under the name that ours gets. So one token is set before
    // it, which is there again after our own; and one behind it, which is undone with it.
    put!(
        sql,
        "SELECT pg_catalog.set_config('advisory.savepoint_{outer}','{token}',true);SAVEPOINT diesel_savepoint_{outer};\
         SELECT pg_catalog.set_config('advisory.token_{outer}','{token}',true),{NOTICE_DEAD_CLIENT},"
    );
    let mut fresh =
        "pg_catalog.left(pg_catalog.current_setting('transaction_isolation'),4) OPERATOR(pg_catalog.=) 'read'"
            .to_owned();
    if asks_for_held {
        fresh.push_str(" OR (true");
        for key in &*request.keys {
            fresh.push_str(" AND ");
            push_is_held(&mut fresh, *key, Some(request.mode));
        }
        fresh.push(')');
    }
    push_check(&mut sql, &[(STALE, &fresh)]);
    push_wait(&mut sql, request.budget());
    if let Some(hold) = request.max_hold {
        let setting = "idle_in_transaction_session_timeout";
        put!(
            sql,
            ",pg_catalog.set_config('advisory.idle_{outer}',pg_catalog.current_setting('{setting}'),true),"
        );
        push_at_most(&mut sql, setting, hold, true);
    }
    sql.push(';');
    push_xact_locks(&mut sql, request);
    sql
}

/// Takes session-level locks, each in a transaction of its own, so that `advisory.step` tells afterwards how many there are:
/// an error on the way takes none of those before it back.
///
/// With the last key the server is told how long it may be held: a client that stops while it waits is bounded too.
pub(crate) fn acquire(token: u64, request: &Request, around: Around) -> String {
    acquire_for(token, request, around, request.max_hold)
}

fn acquire_for(token: u64, request: &Request, around: Around, hold: Option<Duration>) -> String {
    let mut sql = String::with_capacity(900);
    let (open, close) = brackets(around);
    let wait = request.budget();
    let lock = function(Scope::Session, request.mode, wait);
    for (before, key) in request.keys.iter().map(Arguments).enumerate() {
        let next = before + 1;
        if before == 0 {
            put!(
                sql,
                "SELECT {NOTICE_DEAD_CLIENT},pg_catalog.set_config('advisory.step','{token}.0',false),"
            );
            let pooled = "COALESCE(pg_catalog.current_setting('advisory.pooler',true),'') \
                 OPERATOR(pg_catalog.<>) 'transaction'";
            match around {
                Around::Nothing => {
                    push_check(&mut sql, &[(FOREIGN, OWN_TRANSACTION), (POOLED, pooled)]);
                }
                Around::TestTransaction => push_check(&mut sql, &[(POOLED, pooled)]),
            }
            push_wait(&mut sql, wait);
            put!(sql, ";{open}");
        } else {
            put!(sql, ";{open};SELECT {NOTICE_DEAD_CLIENT}");
            if let Wait::For(wait) = wait {
                sql.push(',');
                push_remaining(&mut sql, milliseconds(wait));
            } else {
                push_wait(&mut sql, wait);
            }
        }
        if wait == Wait::Never {
            put!(
                sql,
                ";SELECT CASE WHEN pg_catalog.current_setting('advisory.step',true) OPERATOR(pg_catalog.=) '{token}.{before}' \
                 THEN CASE WHEN {lock}({key}) THEN pg_catalog.set_config('advisory.step','{token}.{next}',false) END END"
            );
        } else {
            put!(
                sql,
                ";SELECT {lock}({key}),pg_catalog.set_config('advisory.step','{token}.{next}',false)"
            );
        }
        if around == Around::TestTransaction && matches!(wait, Wait::For(_) | Wait::Forever) {
            // A transaction of its own takes it back by itself.
            sql.push(',');
            push_restored(&mut sql);
        }
        if let Some(hold) = hold
            && next == request.keys.len()
        {
            push_session_hold(&mut sql, token, hold);
        }
        put!(sql, ";{close}");
    }
    sql
}

/// What bounds the holder of a session-level lock.
const HOLD: [&str; 3] = [
    "idle_session_timeout",
    "idle_in_transaction_session_timeout",
    "transaction_timeout",
];

/// Adds columns by which the server ends a session whose client has stopped, until [`release`]. What the session had is put on
/// a stack, since a body can acquire more.
fn push_session_hold(sql: &mut String, token: u64, hold: Duration) {
    put!(
        sql,
        ",pg_catalog.set_config('advisory.hold',pg_catalog.concat('{token}'"
    );
    for setting in HOLD {
        put!(sql, ",' ',pg_catalog.current_setting('{setting}',true)");
    }
    sql.push_str(",'|',pg_catalog.current_setting('advisory.hold',true)),false)");
    for setting in HOLD {
        sql.push(',');
        push_at_most(sql, setting, hold, false);
    }
}

/// Adds columns that give back what [`push_session_hold`] has put on the stack, if it is there.
fn push_session_restored(sql: &mut String, request: &Held<'_>) {
    if !request.is_bounded {
        return;
    }
    let token = request.token;
    let stack = "pg_catalog.current_setting('advisory.hold',true)";
    let is_ours = format!("pg_catalog.split_part({stack},' ',1) OPERATOR(pg_catalog.=) '{token}'");
    for (index, setting) in HOLD.iter().enumerate() {
        let saved = format!(
            "pg_catalog.split_part(pg_catalog.split_part({stack},'|',1),' ',{})",
            index + 2
        );
        put!(
            sql,
            ",CASE WHEN {is_ours} AND {saved} OPERATOR(pg_catalog.<>) '' THEN pg_catalog.set_config('{setting}',{saved},false) END"
        );
    }
    put!(
        sql,
        ",CASE WHEN {is_ours} THEN pg_catalog.set_config('advisory.hold',\
         pg_catalog.substr({stack},pg_catalog.strpos({stack},'|') OPERATOR(pg_catalog.+) 1),false) END"
    );
}

/// Gives the time-outs back behind a [`release`] that has failed, which undid that.
pub(crate) fn restore(request: &Held<'_>) -> String {
    let mut sql = String::from("SELECT 1");
    push_session_restored(&mut sql, request);
    sql
}

/// Releases session-level locks outside a transaction, and fails if one of them was not held any more.
pub(crate) fn release(request: &Held<'_>, around: Around) -> String {
    let (give, all) = (unlock(request.mode), request.keys.len());
    let mut sql = String::from("SELECT CAST(CASE ");
    if around == Around::Nothing {
        put!(sql, "WHEN NOT {OWN_TRANSACTION} THEN '{FOREIGN}' ");
    }
    put!(
        sql,
        "WHEN CAST('{all}' AS pg_catalog.int4) OPERATOR(pg_catalog.=) (0"
    );
    for key in request.keys.iter().map(Arguments) {
        put!(
            sql,
            " OPERATOR(pg_catalog.+) CAST({give}({key}) AS pg_catalog.int4)"
        );
    }
    put!(
        sql,
        ") THEN '1' ELSE '{LOST}' END AS pg_catalog.int4),pg_catalog.set_config('advisory.step','',false)"
    );
    push_session_restored(&mut sql, request);
    sql
}

/// Releases what [`acquire`] has taken when it was interrupted: what `advisory.step` counts, and the key after it if it is
/// held, since the server can grant a session-level lock and report a time-out.
///
/// What it found is left in `advisory.taken`, and run twice it does nothing more.
pub(crate) fn release_taken(request: &Held<'_>, was_waiting: bool) -> String {
    let token = request.token;
    let give = unlock(request.mode);
    let mut sql = String::from("SELECT 1");
    for (before, key) in request.keys.iter().enumerate() {
        let arguments = Arguments(key);
        put!(
            sql,
            ",CASE WHEN pg_catalog.split_part(step,'.',1) OPERATOR(pg_catalog.<>) '{token}' THEN NULL \
             WHEN CAST(pg_catalog.split_part(step,'.',2) AS pg_catalog.int4) OPERATOR(pg_catalog.>) {before} THEN {give}({arguments}) \
             WHEN CAST(pg_catalog.split_part(step,'.',2) AS pg_catalog.int4) OPERATOR(pg_catalog.=) {before} AND "
        );
        push_is_held(&mut sql, *key, None);
        put!(sql, " THEN {give}({arguments}) END");
    }
    put!(
        sql,
        ",CASE WHEN step OPERATOR(pg_catalog.<>) '{token}.-1' THEN pg_catalog.set_config('advisory.taken',step,false) END\
         ,pg_catalog.set_config('advisory.step','{token}.-1',false)"
    );
    push_session_restored(&mut sql, request);
    // An acquisition that failed at its first key has left no step; what it then took can only be that key.
    let first = if was_waiting { "0" } else { "-1" };
    put!(
        sql,
        " FROM (SELECT CASE WHEN pg_catalog.split_part(pg_catalog.current_setting('advisory.step',true),'.',1) \
         OPERATOR(pg_catalog.=) '{token}' THEN pg_catalog.current_setting('advisory.step',true) ELSE '{token}.{first}' END AS step OFFSET 0) AS taken"
    );
    sql
}

/// What a release has to know.
pub(crate) struct Held<'k> {
    pub(crate) keys: &'k [Key],
    pub(crate) mode: Mode,
    pub(crate) token: u64,
    pub(crate) is_bounded: bool,
}

/// Commits only while the transaction is alive and still the one that [`begin`] opened.
///
/// A `COMMIT` alone answers an aborted transaction with `ROLLBACK` and no error; any statement before it fails there.
pub(crate) fn commit(token: u64) -> String {
    format!(
        "SELECT CAST(CASE WHEN pg_catalog.current_setting('advisory.token',true) OPERATOR(pg_catalog.=) '{token}' \
         THEN '1' ELSE '{ENDED}' END AS pg_catalog.int4);COMMIT"
    )
}

/// Commits the savepoint, if it is still the one that [`begin_nested`] set; the keys stay locked to the end of the outer
/// transaction.
pub(crate) fn release_savepoint(outer: NonZeroU32, token: u64, is_bounded: bool) -> String {
    let restored = if is_bounded {
        format!(
            ",pg_catalog.set_config('idle_in_transaction_session_timeout',\
             pg_catalog.current_setting('advisory.idle_{outer}'),true)"
        )
    } else {
        String::new()
    };
    format!(
        "SELECT CAST(CASE WHEN pg_catalog.current_setting('advisory.token_{outer}',true) OPERATOR(pg_catalog.=) '{token}' \
         THEN '1' ELSE '{ENDED}' END AS pg_catalog.int4){restored};RELEASE SAVEPOINT diesel_savepoint_{outer}"
    )
}

/// Undoes the savepoint and frees the keys that were taken under it. Where the name is that of an older savepoint, the
/// transaction is left failed: what it would undo is not ours.
pub(crate) fn rollback_to_savepoint(outer: NonZeroU32, token: u64) -> String {
    format!(
        "ROLLBACK TO SAVEPOINT diesel_savepoint_{outer};\
         SELECT CAST(CASE WHEN pg_catalog.current_setting('advisory.savepoint_{outer}',true) OPERATOR(pg_catalog.=) '{token}' \
         THEN '1' ELSE '{ENDED}' END AS pg_catalog.int4)"
    )
}

/// Undoes the savepoint that [`acquire`] sets for each key; fails when the session is not inside one of these.
pub(crate) const ROLLBACK_TO_ACQUIRE: &str = "ROLLBACK TO SAVEPOINT advisory_acquire";

const fn brackets(around: Around) -> (&'static str, &'static str) {
    match around {
        Around::Nothing => ("BEGIN;SAVEPOINT advisory_acquire", "COMMIT"),
        Around::TestTransaction => (
            "SAVEPOINT advisory_acquire",
            "RELEASE SAVEPOINT advisory_acquire",
        ),
    }
}

/// The first number of a key that only [`await_cancel`] takes, until [`erase_trace`]; the letters ADVI.
const TRACE: i32 = 0x4144_5649;

fn trace() -> String {
    format!("CAST('{TRACE}' AS pg_catalog.int4),pg_catalog.pg_backend_pid()")
}

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
        "SELECT pg_catalog.pg_try_advisory_lock({trace}) WHERE {ours};SELECT pg_catalog.pg_sleep(0.5) WHERE {ours};\
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
    format!("SELECT pg_catalog.pg_sleep(CASE WHEN {is_traced} THEN 0.1 ELSE 0.25 END)")
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

/// [`pause`] for the second signal alone.
pub(crate) const PAUSE: &str = "SELECT pg_catalog.pg_sleep(0.1)";

/// Ends a hand-over that a dropped call has left complete: its transaction is empty and holds the locks alone, so nothing is
/// left for [`release_taken`].
pub(crate) fn end_hand_over(token: u64, keys: usize) -> String {
    format!(
        "SELECT pg_catalog.set_config('advisory.step','{token}.-1',false),\
         pg_catalog.set_config('advisory.taken','{token}.{keys}',false) \
         WHERE pg_catalog.current_setting('advisory.token',true) OPERATOR(pg_catalog.=) '{token}';COMMIT"
    )
}

/// The same behind the release of session-level locks: if all were taken, no statement of the acquisition was hit.
pub(crate) fn pause_after_release(token: u64, keys: usize) -> String {
    format!(
        "SELECT pg_catalog.pg_sleep(CASE WHEN pg_catalog.current_setting('advisory.taken',true) OPERATOR(pg_catalog.=) \
         '{token}.{keys}' THEN 0.75 ELSE 0.25 END)"
    )
}

/// Ends whatever transaction is open; a warning where none is.
pub(crate) const ROLLBACK: &str = "ROLLBACK";

/// Fails in an aborted transaction and nowhere else.
pub(crate) const PROBE: &str = "SELECT";

/// Rolls back, and leaves the session in a failed transaction: it holds no lock and refuses whatever comes.
pub(crate) const DOOM: &str = "ROLLBACK;BEGIN;SELECT CAST('advisory:abandoned' AS pg_catalog.int4)";

/// Rolls back and ends the session. Where that is refused, as after a SET ROLE, it is left as [`DOOM`] leaves it.
pub(crate) const TERMINATE: &str = "ROLLBACK;BEGIN;SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid());\
     SELECT CAST('advisory:abandoned' AS pg_catalog.int4)";

/// The answer of a message that tries: how far it came.
pub(crate) const STEP: &str = "SELECT pg_catalog.current_setting('advisory.step',true)";

/// What [`STEP`] answers when all keys were taken.
pub(crate) fn step_of_all(token: u64, request: &Request, scope_is_session: bool) -> String {
    if scope_is_session {
        format!("{token}.{}", request.keys.len())
    } else {
        "true".to_owned()
    }
}

/// The session's `lock_timeout` and `statement_timeout` in milliseconds, 0 for none.
pub(crate) const TIMEOUTS: &str = "SELECT pg_catalog.string_agg(setting,' ' ORDER BY name) FROM pg_catalog.pg_settings \
     WHERE name OPERATOR(pg_catalog.=) 'lock_timeout' OR name OPERATOR(pg_catalog.=) 'statement_timeout'";

/// Fails as a cancel request does, so that its words in the server's language can be compared.
pub(crate) const CANCELLED_BY_REQUEST: &str =
    "SELECT pg_catalog.pg_cancel_backend(pg_catalog.pg_backend_pid()),pg_catalog.pg_sleep(1)";

/// Fails as `statement_timeout` does.
pub(crate) const CANCELLED_BY_TIMEOUT: &str =
    "SELECT pg_catalog.set_config('statement_timeout','1',true);SELECT pg_catalog.pg_sleep(1)";

/// Fails with the answer in its text: readable without a prepared statement, which a pooler may have none of.
pub(crate) fn say(expression: &str) -> String {
    format!("SELECT CAST(pg_catalog.concat('{SAID}',{expression},'.') AS pg_catalog.int4)")
}

/// What stands before the answer of [`say`]; a point stands behind it.
pub(crate) const SAID: &str = "advisory:answer-";

/// The backend that serves the connection.
pub(crate) const PID: &str = "pg_catalog.pg_backend_pid()";

/// An expression that takes a session-level lock if nobody else has it.
pub(crate) fn try_session(key: i64) -> String {
    format!("pg_catalog.pg_try_advisory_lock(CAST('{key}' AS pg_catalog.int8))")
}

/// An expression that releases it.
pub(crate) fn unlock_session(key: i64) -> String {
    format!("pg_catalog.pg_advisory_unlock(CAST('{key}' AS pg_catalog.int8))")
}

/// Whether another session of this database holds one of the keys.
pub(crate) fn held_elsewhere(keys: &[Key]) -> String {
    let mut sql = String::from(
        "SELECT CAST(pg_catalog.count(*) AS pg_catalog.text) FROM pg_catalog.pg_locks WHERE granted \
         AND pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid() AND (false",
    );
    for key in keys {
        sql.push_str(" OR ");
        push_is(&mut sql, *key);
    }
    sql.push(')');
    sql
}

/// Adds a column that fails with the first marker whose condition is not true.
fn push_check(sql: &mut String, conditions: &[(&str, &str)]) {
    put!(
        sql,
        "CAST(CASE WHEN pg_catalog.pg_is_in_recovery() THEN '{STANDBY}'"
    );
    for (marker, condition) in conditions {
        put!(sql, " WHEN NOT ({condition}) THEN '{marker}'");
    }
    sql.push_str(" ELSE '1' END AS pg_catalog.int4)");
}

/// Adds columns that set `lock_timeout` for the locks that follow.
fn push_wait(sql: &mut String, wait: Wait) {
    let timeout = match wait {
        Wait::For(wait) => milliseconds(wait),
        Wait::Forever => 0,
        Wait::Session | Wait::Never => return,
    };
    put!(
        sql,
        ",pg_catalog.set_config('advisory.lock_timeout',pg_catalog.current_setting('lock_timeout'),true)\
         ,pg_catalog.set_config('lock_timeout','{timeout}',true)"
    );
}

/// A column that makes what the message's time has left of the budget the next `lock_timeout`. It counts from the arrival of
/// the message, by the server's clock.
fn push_remaining(sql: &mut String, budget: i32) {
    put!(
        sql,
        "pg_catalog.set_config('lock_timeout',CAST(GREATEST(CAST(1 AS pg_catalog.float8),\
         pg_catalog.ceil(CAST('{budget}' AS pg_catalog.float8) OPERATOR(pg_catalog.-) (CAST(1000 AS pg_catalog.float8) \
         OPERATOR(pg_catalog.*) pg_catalog.date_part('epoch',pg_catalog.clock_timestamp() \
         OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp())))) AS pg_catalog.text),true)"
    );
}

/// A column that gives `lock_timeout` back to the session's own value.
fn push_restored(sql: &mut String) {
    sql.push_str(
        "pg_catalog.set_config('lock_timeout',pg_catalog.current_setting('advisory.lock_timeout'),true)",
    );
}

/// Takes the sorted keys in their order, in as few statements as the server allows.
fn push_xact_locks(sql: &mut String, request: &Request) {
    let wait = request.budget();
    let lock = function(Scope::Xact, request.mode, wait);
    if wait == Wait::Never {
        sql.push_str("SELECT pg_catalog.set_config('advisory.step',CAST(true");
        for key in request.keys.iter().map(Arguments) {
            put!(sql, " AND {lock}({key})");
        }
        sql.push_str(" AS pg_catalog.text),true)");
        return;
    }
    for (index, key) in request.keys.iter().map(Arguments).enumerate() {
        sql.push_str(match index {
            0 => "SELECT ",
            // A target list has at most 1,664 entries.
            _ if index % 500 == 0 => ";SELECT ",
            _ => ",",
        });
        if let (1.., Wait::For(wait)) = (index, wait) {
            push_remaining(sql, milliseconds(wait));
            sql.push(',');
        }
        put!(sql, "{lock}({key})");
    }
    if matches!(wait, Wait::For(_) | Wait::Forever) {
        sql.push(',');
        push_restored(sql);
    }
}

/// Adds columns by which the server ends a transaction whose client has stopped. It counts from here, after the wait.
fn push_hold(sql: &mut String, hold: Option<Duration>) {
    if let Some(hold) = hold {
        for setting in ["idle_in_transaction_session_timeout", "transaction_timeout"] {
            sql.push(',');
            push_at_most(sql, setting, hold, true);
        }
    }
}

/// A column that sets a time-out unless the session has a shorter one, or the server none of this name. By way of zero: a
/// `transaction_timeout` that runs already goes on as it is when it is set anew.
fn push_at_most(sql: &mut String, setting: &str, hold: Duration, is_local: bool) {
    let bound = milliseconds(hold.saturating_add(GRACE));
    put!(
        sql,
        "CASE WHEN CAST(pg_catalog.current_setting('{setting}',true) AS pg_catalog.interval) \
         OPERATOR(pg_catalog.=) CAST('0' AS pg_catalog.interval) OR \
         CAST(pg_catalog.current_setting('{setting}',true) AS pg_catalog.interval) \
         OPERATOR(pg_catalog.>) CAST('{bound} ms' AS pg_catalog.interval) \
         THEN CASE WHEN pg_catalog.set_config('{setting}','0',{is_local}) OPERATOR(pg_catalog.=) '0' \
         THEN pg_catalog.set_config('{setting}','{bound}',{is_local}) END END"
    );
}

/// A condition on `pg_locks`: this session holds the key, in this mode or a stronger one.
fn push_is_held(sql: &mut String, key: Key, mode: Option<Mode>) {
    sql.push_str(
        "EXISTS(SELECT 1 FROM pg_catalog.pg_locks WHERE granted \
         AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND ",
    );
    push_is(sql, key);
    if mode == Some(Mode::Exclusive) {
        sql.push_str(" AND mode OPERATOR(pg_catalog.=) 'ExclusiveLock'");
    }
    sql.push(')');
}

/// A condition on a row of `pg_locks`: it is this key of this database. `bigint` keys have `objsubid` 1, pairs 2.
fn push_is(sql: &mut String, key: Key) {
    let (first, second, space) = match key {
        Key::BigInt(key) => {
            let bits = key.cast_unsigned();
            ((bits >> 32) as u32, (bits & 0xFFFF_FFFF) as u32, 1)
        }
        Key::IntInt(first, second) => (first.cast_unsigned(), second.cast_unsigned(), 2),
    };
    put!(
        sql,
        "(locktype OPERATOR(pg_catalog.=) 'advisory' AND classid OPERATOR(pg_catalog.=) CAST('{first}' AS pg_catalog.oid) \
         AND objid OPERATOR(pg_catalog.=) CAST('{second}' AS pg_catalog.oid) AND objsubid OPERATOR(pg_catalog.=) '{space}' \
         AND database OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_database \
         WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()))"
    );
}

/// A key as the arguments of a `pg_advisory_*` function.
struct Arguments<'k>(&'k Key);

impl std::fmt::Display for Arguments<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Key::BigInt(key) => write!(f, "CAST('{key}' AS pg_catalog.int8)"),
            Key::IntInt(first, second) => write!(
                f,
                "CAST('{first}' AS pg_catalog.int4),CAST('{second}' AS pg_catalog.int4)"
            ),
        }
    }
}
