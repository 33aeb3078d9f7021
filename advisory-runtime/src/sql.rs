//! Every statement that this crate sends for a lock; the only place that spells `pg_advisory_*`.
//!
//! Functions, operators and types are `pg_catalog.`-qualified and keys are cast: an unqualified
//! `pg_advisory_xact_lock(42)` picks a `public.pg_advisory_xact_lock(int)` that somebody put first on the `search_path`.
//! Nothing but numbers made here enters the text. This file has the statements of transaction-level locks.

/// Appends formatted text.
macro_rules! put {
    ($sql:expr, $($text:tt)*) => {
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result = write!($sql, $($text)*);
    };
}

mod ask;
mod fragment;
mod leave;
mod prepared;
mod session;

pub(crate) use ask::*;
pub(crate) use leave::*;
pub(crate) use prepared::{
    PREPARED, Prepared, acquire_prepared, begin_prepared, commit_prepared, release_prepared,
};
pub(crate) use session::{
    Held, ROLLBACK_TO_ACQUIRE, Taken, acquire, acquire_in_test, release, release_taken, restore,
};

use crate::request::milliseconds;
use crate::{Isolation, Key, Request, Wait};
use fragment::{
    Arguments, NOTICE_DEAD_CLIENT, OWN_TRANSACTION, Scope, function, push_at_most, push_check,
    push_hold, push_is_held, push_remaining, push_restored, push_shown, push_wait, unlock,
};
use session::acquire_for;
use std::fmt::Write;
use std::num::NonZeroU32;

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

/// Where a message stands: on its own, or inside the transaction that a test began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Around {
    Nothing,
    TestTransaction,
}

/// Opens a READ COMMITTED transaction that holds the keys, in one message.
///
/// A message with several statements is one implicit transaction, and the `BEGIN` at its end makes it an explicit one,
/// locks kept. So an error on the way leaves the session idle: there is nothing to roll back. The lock has a statement of its own:
/// what runs in one statement with it reads from a snapshot taken before the wait, and the server begins to look for a dead client
/// when a statement begins. The level is always stated, since any role may have another default.
pub(crate) fn begin(token: u64, request: &Request) -> String {
    let mut sql = String::with_capacity(800);
    put!(
        sql,
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;SET LOCAL advisory.token='{token}';SELECT {NOTICE_DEAD_CLIENT}"
    );
    push_shown(&mut sql, request.shown.as_ref(), true);
    push_wait(&mut sql, request.budget());
    sql.push_str(";SELECT ");
    push_xact_locks(&mut sql, request, &[(FOREIGN, OWN_TRANSACTION)]);
    push_hold(&mut sql, request.max_hold);
    sql.push_str(";BEGIN");
    sql
}

/// Opens a REPEATABLE READ or SERIALIZABLE transaction that holds the keys and whose snapshot is taken after them.
///
/// The snapshot of such a transaction is that of its first statement, taken before that statement waits. So the wait is
/// outside: session-level locks first, in transactions of their own, handed over to the transaction that follows.
pub(crate) fn hand_over(token: u64, request: &Request) -> String {
    let mut sql = acquire_for(token, request, Around::Nothing, true);
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
    for (index, key) in request.keys.iter().map(Arguments).enumerate() {
        if index > 0 && index % 500 == 0 {
            sql.push_str(";SELECT 1");
        }
        put!(
            sql,
            ",CASE WHEN pg_catalog.current_setting('advisory.step',true) OPERATOR(pg_catalog.=) '{token}.{all}' \
             THEN CASE WHEN {take}({key}) THEN {give}({key}) END END"
        );
    }
    push_hold(&mut sql, request.max_hold);
    push_shown(&mut sql, request.shown.as_ref(), true);
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
    push_check(&mut sql, &[(STALE, &fresh)], "'1'", "int4");
    push_shown(&mut sql, request.shown.as_ref(), true);
    push_wait(&mut sql, request.budget());
    if let Some(hold) = request.max_hold {
        let setting = "idle_in_transaction_session_timeout";
        put!(
            sql,
            ",pg_catalog.set_config('advisory.idle_{outer}',pg_catalog.current_setting('{setting}'),true),"
        );
        push_at_most(&mut sql, setting, hold, true);
    }
    sql.push_str(";SELECT ");
    push_xact_locks(&mut sql, request, &[]);
    sql
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

/// Adds columns that take the sorted keys in their order, in as few statements as the server allows. Before the first is asked for
/// it fails with the first marker whose condition is not true.
fn push_xact_locks(sql: &mut String, request: &Request, conditions: &[(&str, &str)]) {
    let wait = request.budget();
    let lock = function(Scope::Xact, request.mode, wait);
    if wait == Wait::Never {
        sql.push_str("pg_catalog.set_config('advisory.step',CAST(true");
        for (index, key) in request.keys.iter().enumerate() {
            put!(sql, " AND {lock}(");
            push_checked(sql, key, if index == 0 { conditions } else { &[] });
            sql.push(')');
        }
        sql.push_str(" AS pg_catalog.text),true)");
        return;
    }
    for (index, key) in request.keys.iter().enumerate() {
        sql.push_str(match index {
            0 => "",
            // A target list has at most 1,664 entries.
            _ if index % 500 == 0 => ";SELECT ",
            _ => ",",
        });
        if let (1.., Wait::For(wait)) = (index, wait) {
            push_remaining(sql, milliseconds(wait));
            sql.push(',');
        }
        put!(sql, "{lock}(");
        push_checked(sql, key, if index == 0 { conditions } else { &[] });
        sql.push(')');
    }
    if matches!(wait, Wait::For(_) | Wait::Forever) {
        sql.push(',');
        push_restored(sql);
    }
}

/// A key as the arguments of a lock function, which fail before the lock is asked for when a condition is not true.
fn push_checked(sql: &mut String, key: &Key, conditions: &[(&str, &str)]) {
    if conditions.is_empty() {
        put!(sql, "{}", Arguments(key));
        return;
    }
    let (first, rest) = match key {
        Key::BigInt(key) => (format!("'{key}'"), String::new()),
        Key::IntInt(first, second) => (
            format!("'{first}'"),
            format!(",CAST('{second}' AS pg_catalog.int4)"),
        ),
    };
    push_check(
        sql,
        conditions,
        &first,
        if rest.is_empty() { "int8" } else { "int4" },
    );
    sql.push_str(&rest);
}

#[cfg(test)]
mod tests {
    use super::{Prepared, begin, begin_prepared, commit, commit_prepared};
    use crate::Request;
    use advisory_pattern::Derivation;

    /// The guide's page is the snapshot of what one call sends.
    #[test]
    fn the_page_shows_what_is_sent() {
        let page = include_str!("../docs/expansion.md");
        let shown = page.split("```sql").skip(1).map(|block| {
            let (statements, _) = block.split_once("```").unwrap_or_default();
            statements.split_whitespace().collect::<String>()
        });
        let key = Derivation::Sha256.key("room:7");
        let request = Request::one("room:<room>", key.into());
        let sent = [
            begin(17, &request),
            commit(17),
            begin_prepared(17, &request, Prepared::default()),
            commit_prepared(17),
        ];
        let sent = sent.map(|sent| sent.replace(' ', ""));
        assert_eq!(shown.collect::<Vec<_>>(), sent);
    }
}
