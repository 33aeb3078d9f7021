//! Parts of statements that several have in common.

use super::STANDBY;
use crate::request::milliseconds;
use crate::{Key, Mode, Wait};
use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

/// A client that dies while it waits leaves the queue. Left alone where the user has set it, on servers before 14, and on
/// platforms where setting it is an error.
pub(super) const NOTICE_DEAD_CLIENT: &str = "CASE WHEN pg_catalog.current_setting('client_connection_check_interval',true) \
     OPERATOR(pg_catalog.=) '0' AND pg_catalog.strpos(pg_catalog.version(),'linux') OPERATOR(pg_catalog.>) 0 \
     THEN pg_catalog.set_config('client_connection_check_interval','1000',true) END";

/// Whether a statement stands in a transaction of its own message: there the two clocks are one reading.
pub(super) const OWN_TRANSACTION: &str =
    "pg_catalog.now() OPERATOR(pg_catalog.=) pg_catalog.statement_timestamp()";

/// How long after the client's own bound the server ends what a stopped client holds. A client that goes on needs the time to
/// undo its body: up to half a second in [`await_cancel`], inside the transaction.
pub(super) const GRACE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
pub(super) enum Scope {
    Xact,
    Session,
}

pub(super) const fn function(scope: Scope, mode: Mode, wait: Wait) -> &'static str {
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

pub(super) const fn unlock(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "pg_catalog.pg_advisory_unlock",
        Mode::Shared => "pg_catalog.pg_advisory_unlock_shared",
    }
}

/// Adds an expression for `value`, a text, as a number, which fails with the first marker whose condition is not true.
pub(super) fn push_check(
    sql: &mut String,
    conditions: &[(&str, &str)],
    value: &str,
    sql_type: &str,
) {
    put!(
        sql,
        "CAST(CASE WHEN pg_catalog.pg_is_in_recovery() THEN '{STANDBY}'"
    );
    for (marker, condition) in conditions {
        put!(sql, " WHEN NOT ({condition}) THEN '{marker}'");
    }
    put!(sql, " ELSE {value} END AS pg_catalog.{sql_type})");
}

/// Adds columns that set `lock_timeout` for the locks that follow.
pub(super) fn push_wait(sql: &mut String, wait: Wait) {
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
pub(super) fn push_remaining(sql: &mut String, budget: i32) {
    put!(
        sql,
        "pg_catalog.set_config('lock_timeout',CAST(CAST(GREATEST(CAST(1 AS pg_catalog.float8),\
         pg_catalog.ceil(CAST('{budget}' AS pg_catalog.float8) OPERATOR(pg_catalog.-) (CAST(1000 AS pg_catalog.float8) \
         OPERATOR(pg_catalog.*) pg_catalog.date_part('epoch',pg_catalog.clock_timestamp() \
         OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp())))) AS pg_catalog.int4) AS pg_catalog.text),true)"
    );
}

/// A column that gives `lock_timeout` back to the session's own value.
pub(super) fn push_restored(sql: &mut String) {
    sql.push_str(
        "pg_catalog.set_config('lock_timeout',pg_catalog.current_setting('advisory.lock_timeout'),true)",
    );
}

/// Adds columns by which the server ends a transaction whose client has stopped. It counts from here, after the wait.
pub(super) fn push_hold(sql: &mut String, hold: Option<Duration>) {
    if let Some(hold) = hold {
        for setting in HOLD_OF_XACT {
            sql.push(',');
            push_at_most(sql, setting, hold, true);
        }
    }
}

/// What bounds the holder of a transaction-level lock.
pub(super) const HOLD_OF_XACT: [&str; 2] =
    ["idle_in_transaction_session_timeout", "transaction_timeout"];

/// How long the server lets a stopped client hold, in milliseconds.
pub(super) fn bound(hold: Duration) -> i32 {
    milliseconds(hold.saturating_add(GRACE))
}

/// A column that sets a time-out unless the session has a shorter one, or the server none of this name.
pub(super) fn push_at_most(sql: &mut String, setting: &str, hold: Duration, is_local: bool) {
    let bound = bound(hold);
    let (text, interval) = (format!("'{bound}'"), format!("'{bound} ms'"));
    push_at_most_of(sql, setting, &text, &interval, is_local);
}

/// The same for a number of milliseconds that is a text, and it with its unit. By way of zero: a `transaction_timeout` that runs already
/// goes on as it is when it is set anew.
pub(super) fn push_at_most_of(
    sql: &mut String,
    setting: &str,
    text: &str,
    interval: &str,
    is_local: bool,
) {
    put!(
        sql,
        "CASE WHEN CAST(pg_catalog.current_setting('{setting}',true) AS pg_catalog.interval) \
         OPERATOR(pg_catalog.=) CAST('0' AS pg_catalog.interval) OR \
         CAST(pg_catalog.current_setting('{setting}',true) AS pg_catalog.interval) \
         OPERATOR(pg_catalog.>) CAST({interval} AS pg_catalog.interval) \
         THEN CASE WHEN pg_catalog.set_config('{setting}','0',{is_local}) OPERATOR(pg_catalog.=) '0' \
         THEN pg_catalog.set_config('{setting}',{text},{is_local}) END END"
    );
}

/// How much of an application name there is: what is longer is cut by the server (`NAMEDATALEN`).
pub(super) const LONGEST_NAME: usize = 63;
/// How much of the session's own is left before what a lock shows.
const OWN_NAME: usize = 16;

/// Adds a column that sets the application name to the session's own and what the request shows, in brackets.
pub(super) fn push_shown(sql: &mut String, shown: Option<&Cow<'static, str>>, is_local: bool) {
    let Some(shown) = shown else { return };
    let letters = letters(shown);
    let own = LONGEST_NAME - letters.len();
    put!(
        sql,
        ",pg_catalog.set_config('application_name',pg_catalog.left({OWN_NAME_NOW},{own}) OPERATOR(pg_catalog.||) "
    );
    push_letters(sql, &letters, matches!(shown, Cow::Owned(_)));
    put!(sql, ",{is_local})");
}

/// The session's own application name, without what a lock shows.
pub(super) const OWN_NAME_NOW: &str =
    "pg_catalog.split_part(pg_catalog.current_setting('application_name'),' [',1)";

/// What a request shows, in brackets and in the letters of an application name: printable ASCII.
pub(super) fn letters(shown: &str) -> String {
    let mut letters = String::with_capacity(LONGEST_NAME);
    letters.push_str(" [");
    letters.extend(shown.chars().map(|letter| match letter {
        '\'' | '\\' => '?',
        ' '..='~' => letter,
        _ => '?',
    }));
    letters.push(']');
    letters.truncate(LONGEST_NAME - OWN_NAME);
    letters
}

/// Adds letters as a text. Digits stand for those of the run time.
pub(super) fn push_letters(sql: &mut String, letters: &str, is_of_run_time: bool) {
    if !is_of_run_time {
        put!(sql, "'{letters}'");
        return;
    }
    sql.push_str("pg_catalog.encode(pg_catalog.decode('");
    for letter in letters.bytes() {
        put!(sql, "{letter:02x}");
    }
    sql.push_str("','hex'),'escape')");
}

/// A condition on `pg_locks`: this session holds the key, in this mode or a stronger one.
///
/// A session's locks are those of its own database. To ask for that would lock `pg_database`, for which the server has no room where
/// the lock table is full (53200): then what is held could not be given back.
pub(super) fn push_is_held(sql: &mut String, key: Key, mode: Option<Mode>) {
    sql.push_str(
        "EXISTS(SELECT 1 FROM pg_catalog.pg_locks WHERE granted \
         AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND ",
    );
    push_is_numbered(sql, key);
    if mode == Some(Mode::Exclusive) {
        sql.push_str(" AND mode OPERATOR(pg_catalog.=) 'ExclusiveLock'");
    }
    sql.push(')');
}

/// A condition on a row of `pg_locks`: it is this key of this database.
pub(super) fn push_is(sql: &mut String, key: Key) {
    sql.push('(');
    push_is_numbered(sql, key);
    sql.push_str(
        " AND database OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_database \
         WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()))",
    );
}

/// A condition on a row of `pg_locks`: it has these numbers. `bigint` keys have `objsubid` 1, pairs 2.
fn push_is_numbered(sql: &mut String, key: Key) {
    let (first, second, space) = match key {
        Key::BigInt(key) => {
            let bits = key.cast_unsigned();
            ((bits >> 32) as u32, (bits & 0xFFFF_FFFF) as u32, 1)
        }
        Key::IntInt(first, second) => (first.cast_unsigned(), second.cast_unsigned(), 2),
    };
    put!(
        sql,
        "locktype OPERATOR(pg_catalog.=) 'advisory' AND classid OPERATOR(pg_catalog.=) CAST('{first}' AS pg_catalog.oid) \
         AND objid OPERATOR(pg_catalog.=) CAST('{second}' AS pg_catalog.oid) AND objsubid OPERATOR(pg_catalog.=) '{space}'"
    );
}

/// A key as the arguments of a `pg_advisory_*` function.
pub(super) struct Arguments<'k>(pub(super) &'k Key);

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
