//! Columns and conditions that several statements have in common.

use super::message::Message;
use crate::request::milliseconds;
use crate::{Key, Mode, Request, Wait};
use std::fmt;
use std::time::Duration;

/// A target list has at most 1,664 entries, and a key with its budget takes two.
const KEYS_PER_STATEMENT: usize = 500;

/// How long after the client's own bound the server ends the session of a client that has stopped. A client that goes on needs
/// that time to roll back.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Xact,
    Session,
}

pub(super) const fn lock_function(scope: Scope, mode: Mode) -> &'static str {
    match (scope, mode) {
        (Scope::Xact, Mode::Exclusive) => "pg_catalog.pg_advisory_xact_lock",
        (Scope::Xact, Mode::Shared) => "pg_catalog.pg_advisory_xact_lock_shared",
        (Scope::Session, Mode::Exclusive) => "pg_catalog.pg_advisory_lock",
        (Scope::Session, Mode::Shared) => "pg_catalog.pg_advisory_lock_shared",
    }
}

const fn try_function(scope: Scope, mode: Mode) -> &'static str {
    match (scope, mode) {
        (Scope::Xact, Mode::Exclusive) => "pg_catalog.pg_try_advisory_xact_lock",
        (Scope::Xact, Mode::Shared) => "pg_catalog.pg_try_advisory_xact_lock_shared",
        (Scope::Session, Mode::Exclusive) => "pg_catalog.pg_try_advisory_lock",
        (Scope::Session, Mode::Shared) => "pg_catalog.pg_try_advisory_lock_shared",
    }
}

pub(super) const fn unlock_function(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "pg_catalog.pg_advisory_unlock",
        Mode::Shared => "pg_catalog.pg_advisory_unlock_shared",
    }
}

/// A key as the arguments of a `pg_advisory_*` function. It needs no cast: the functions have one form with one argument, and each
/// half of a pair is an `int4` literal.
pub(super) struct Arguments(pub(super) Key);

impl fmt::Display for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Key::BigInt(key) => write!(f, "{key}"),
            Key::IntInt(first, second) => write!(f, "{first},{second}"),
        }
    }
}

/// Whether the session's own `lock_timeout` is given back behind the last key, or by the end of the transaction that it is set for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LockTimeout {
    Restore,
    Leave,
}

/// Adds a `SELECT` that takes the keys in their order and waits for each, within the request's budget.
pub(super) fn select_locks(
    message: &mut Message,
    request: &Request,
    scope: Scope,
    after: LockTimeout,
) {
    let lock = lock_function(scope, request.mode);
    let restores = after == LockTimeout::Restore;
    let budget = request.budget();
    let lock_timeout = match budget {
        Wait::For(wait) => Some(milliseconds(wait)),
        Wait::Forever => Some(0),
        Wait::Session | Wait::Never => None,
    };
    message.select();
    if let Some(milliseconds) = lock_timeout {
        if restores {
            message.column(format_args!(
                "pg_catalog.set_config('advisory.lock_timeout',pg_catalog.current_setting('lock_timeout'),true)"
            ));
        }
        message.column(format_args!(
            "pg_catalog.set_config('lock_timeout','{milliseconds}',true)"
        ));
    }
    for (index, key) in request.keys.iter().enumerate() {
        if index > 0 {
            if index % KEYS_PER_STATEMENT == 0 {
                message.select();
            }
            // `lock_timeout` counts for each wait.
            if let Wait::For(wait) = budget {
                push_remaining(message, milliseconds(wait));
            }
        }
        message.column(format_args!("{lock}({})", Arguments(*key)));
    }
    if restores && lock_timeout.is_some() {
        message.column(format_args!(
            "pg_catalog.set_config('lock_timeout',pg_catalog.current_setting('advisory.lock_timeout'),true)"
        ));
    }
}

/// Adds a `SELECT` that calls a function for each key, none of which waits.
pub(super) fn select_each(message: &mut Message, request: &Request, function: &str) {
    for (index, key) in request.keys.iter().enumerate() {
        if index % KEYS_PER_STATEMENT == 0 {
            message.select();
        }
        message.column(format_args!("{function}({})", Arguments(*key)));
    }
}

/// A boolean expression: it takes the keys in their order, and is true if none was held. The keys behind one that is held are not
/// asked for.
pub(super) struct TryLocks<'r>(pub(super) &'r Request, pub(super) Scope);

impl fmt::Display for TryLocks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(request, scope) = self;
        let lock = try_function(*scope, request.mode);
        for (index, key) in request.keys.iter().enumerate() {
            let and = if index == 0 { "" } else { " AND " };
            write!(f, "{and}{lock}({})", Arguments(*key))?;
        }
        Ok(())
    }
}

/// A column that makes what is left of the budget the next `lock_timeout`. The budget counts from the arrival of the message, by
/// the server's clock.
fn push_remaining(message: &mut Message, budget: i32) {
    message.column(format_args!(
        "pg_catalog.set_config('lock_timeout',CAST(CAST(GREATEST(CAST(1 AS pg_catalog.float8),\
         pg_catalog.ceil(CAST('{budget}' AS pg_catalog.float8) OPERATOR(pg_catalog.-) (CAST(1000 AS pg_catalog.float8) \
         OPERATOR(pg_catalog.*) pg_catalog.date_part('epoch',pg_catalog.clock_timestamp() \
         OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp())))) AS pg_catalog.int4) AS pg_catalog.text),true)"
    ));
}

/// Adds a `SELECT` by which the server notices that the client has died while a statement of this transaction runs. It counts for
/// the statements behind it. Left alone where it is set already, and on platforms other than Linux, where not all can.
pub(super) fn select_client_check(message: &mut Message) {
    message.select();
    message.column(format_args!(
        "CASE WHEN pg_catalog.current_setting('client_connection_check_interval',true) OPERATOR(pg_catalog.=) '0' \
         AND pg_catalog.strpos(pg_catalog.version(),'linux') OPERATOR(pg_catalog.>) 0 \
         THEN pg_catalog.set_config('client_connection_check_interval','1000',true) END"
    ));
}

/// The time-outs that bound the holder of a transaction-level lock whose client has stopped.
pub(super) const XACT_TIMEOUTS: [&str; 2] =
    ["idle_in_transaction_session_timeout", "transaction_timeout"];

/// A column that sets a time-out to `max_hold` and [`GRACE`], unless the session has a shorter one or the server has none of this
/// name. It sets it to zero first: a `transaction_timeout` that runs already would go on as it is.
pub(super) fn push_timeout(message: &mut Message, setting: &str, max_hold: Duration, local: bool) {
    let bound = milliseconds(max_hold.saturating_add(GRACE));
    message.column(format_args!(
        "CASE WHEN CAST(pg_catalog.current_setting('{setting}',true) AS pg_catalog.interval) \
         OPERATOR(pg_catalog.=) CAST('0' AS pg_catalog.interval) OR \
         CAST(pg_catalog.current_setting('{setting}',true) AS pg_catalog.interval) \
         OPERATOR(pg_catalog.>) CAST('{bound} ms' AS pg_catalog.interval) \
         THEN CASE WHEN pg_catalog.set_config('{setting}','0',{local}) OPERATOR(pg_catalog.=) '0' \
         THEN pg_catalog.set_config('{setting}','{bound}',{local}) END END"
    ));
}

/// A condition on `pg_locks`: this session holds the key, in this mode or a stronger one.
///
/// A session's locks are those of its own database. To ask for the database would lock `pg_database`, for which the server has no
/// room where the lock table is full (53200): then what is held could not be released.
pub(super) fn push_is_held(sql: &mut String, key: Key, mode: Mode) {
    sql.push_str(
        "EXISTS(SELECT 1 FROM pg_catalog.pg_locks WHERE granted \
         AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND ",
    );
    push_is_numbered(sql, key);
    if mode == Mode::Exclusive {
        sql.push_str(" AND mode OPERATOR(pg_catalog.=) 'ExclusiveLock'");
    }
    sql.push(')');
}

/// A condition on a row of `pg_locks`: it is this key of this database.
pub(super) fn push_is_key(sql: &mut String, key: Key) {
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
        *sql,
        "locktype OPERATOR(pg_catalog.=) 'advisory' AND classid OPERATOR(pg_catalog.=) CAST('{first}' AS pg_catalog.oid) \
         AND objid OPERATOR(pg_catalog.=) CAST('{second}' AS pg_catalog.oid) AND objsubid OPERATOR(pg_catalog.=) '{space}'"
    );
}
