//! Session-level locks: taken, released, and given back when the acquisition was interrupted.

use super::fragment::{
    Arguments, NOTICE_DEAD_CLIENT, OWN_TRANSACTION, Scope, function, push_at_most, push_check,
    push_is_held, push_remaining, push_restored, push_shown, push_wait, unlock,
};
use super::{Around, FOREIGN, LOST, POOLED};
use crate::request::milliseconds;
use crate::{Key, Mode, Request, Wait};
use std::fmt::Write;
use std::time::Duration;

/// Takes session-level locks, each in a transaction of its own, so that `advisory.step` tells afterwards how many there are:
/// an error on the way takes none of those before it back.
///
/// With the last key the server is told how long it may be held: a client that stops while it waits is bounded too.
pub(crate) fn acquire(token: u64, request: &Request) -> String {
    acquire_for(token, request, Around::Nothing, false)
}

/// The same inside the transaction that a test began.
pub(crate) fn acquire_in_test(token: u64, request: &Request) -> String {
    acquire_for(token, request, Around::TestTransaction, false)
}

pub(super) fn acquire_for(
    token: u64,
    request: &Request,
    around: Around,
    is_handed_over: bool,
) -> String {
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
            push_check(&mut sql, conditions(around), "'1'", "int4");
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
        if wait != Wait::Never && request.shown.is_some() && (before == 0 || is_handed_over) {
            // While it waits, too; an error takes it back.
            sql.push_str(";SELECT 1");
            push_session_shown(&mut sql, token, request, is_handed_over);
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
        if next == request.keys.len() && !is_handed_over {
            if let Some(hold) = request.max_hold {
                push_session_hold(&mut sql, token, hold);
            }
            if wait == Wait::Never && request.shown.is_some() {
                put!(
                    sql,
                    ",CASE WHEN pg_catalog.current_setting('advisory.step',true) OPERATOR(pg_catalog.=) '{token}.{next}' \
                     THEN pg_catalog.concat(1"
                );
                push_session_shown(&mut sql, token, request, false);
                sql.push_str(") END");
            }
        }
        put!(sql, ";{close}");
    }
    sql
}

/// What has to be so before a session-level lock is asked for.
pub(super) const fn conditions(around: Around) -> &'static [(&'static str, &'static str)] {
    const POOLED_NOT: (&str, &str) = (
        POOLED,
        "COALESCE(pg_catalog.current_setting('advisory.pooler',true),'') OPERATOR(pg_catalog.<>) 'transaction'",
    );
    match around {
        Around::Nothing => &[(FOREIGN, OWN_TRANSACTION), POOLED_NOT],
        Around::TestTransaction => &[POOLED_NOT],
    }
}

pub(super) const fn brackets(around: Around) -> (&'static str, &'static str) {
    match around {
        Around::Nothing => ("BEGIN;SAVEPOINT advisory_acquire", "COMMIT"),
        Around::TestTransaction => (
            "SAVEPOINT advisory_acquire",
            "RELEASE SAVEPOINT advisory_acquire",
        ),
    }
}

/// Undoes the savepoint that [`acquire`] sets for each key; fails when the session is not inside one of these.
pub(crate) const ROLLBACK_TO_ACQUIRE: &str = "ROLLBACK TO SAVEPOINT advisory_acquire";

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

/// Adds columns that show the lock until [`release`], or for the transaction that waits for it. Of what is shown until then, and of
/// the name before, a line each is put on a stack, since a body can acquire more.
fn push_session_shown(sql: &mut String, token: u64, request: &Request, is_local: bool) {
    if !is_local {
        push_line(sql, "''");
    }
    push_shown(sql, request.shown.as_ref(), is_local);
    if !is_local {
        push_line(sql, &format!("'{token} '"));
    }
}

/// Names shown and names before them, line by line; no application name has an end of a line.
const NAMES: &str = "COALESCE(pg_catalog.current_setting('advisory.application_name',true),'')";

/// Adds a column that puts the application name of now on top, behind texts.
pub(super) fn push_line(sql: &mut String, before: &str) {
    put!(
        sql,
        ",pg_catalog.set_config('advisory.application_name',pg_catalog.concat({before},\
         pg_catalog.current_setting('application_name'),pg_catalog.chr(10),{NAMES}),false)"
    );
}

/// Adds columns that give the session the name back that it had before the lock of this token, a text, unless somebody else has
/// set another one.
pub(super) fn push_session_unshown(sql: &mut String, token: &str) {
    let line = |nth| format!("pg_catalog.split_part({NAMES},pg_catalog.chr(10),{nth})");
    let is_ours = format!(
        "pg_catalog.split_part({},' ',1) OPERATOR(pg_catalog.=) {token}",
        line(1)
    );
    put!(
        sql,
        ",CASE WHEN {is_ours} AND {shown} OPERATOR(pg_catalog.=) \
         pg_catalog.concat({token},' ',pg_catalog.current_setting('application_name')) \
         THEN pg_catalog.set_config('application_name',{own},false) END,\
         CASE WHEN {is_ours} THEN pg_catalog.set_config('advisory.application_name',pg_catalog.substr({NAMES},\
         pg_catalog.length({shown}) OPERATOR(pg_catalog.+) pg_catalog.length({own}) OPERATOR(pg_catalog.+) 3),false) END",
        shown = line(1),
        own = line(2),
    );
}

/// Adds columns that give back what [`push_session_hold`] has put on the stack, if it is there.
fn push_session_restored(sql: &mut String, request: &Held<'_>) {
    let token = request.token;
    if request.is_shown {
        push_session_unshown(sql, &format!("'{token}'"));
    }
    if !request.is_bounded {
        return;
    }
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

/// Gives the time-outs and the name back behind a [`release`] that has failed, which undid that.
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
        ") THEN '1' ELSE '{LOST}' END AS pg_catalog.int4),pg_catalog.set_config('advisory.step','{token}.-1',false)",
        token = request.token
    );
    push_session_restored(&mut sql, request);
    sql
}

/// Releases what [`acquire`] has taken: what `advisory.step` counts, and where it was interrupted the key after it if it is held,
/// since the server can grant a session-level lock and report a time-out.
///
/// What it found is left in `advisory.taken`, and run twice it does nothing more.
pub(crate) fn release_taken(request: &Held<'_>, how: Taken) -> String {
    let token = request.token;
    let give = unlock(request.mode);
    let unknown = match how {
        Taken::Interrupted | Taken::Refused => 0,
        Taken::All => request.keys.len(),
    };
    // What the step counts; another acquisition inside a complete one may have left its own.
    let step = format!(
        " FROM (SELECT CASE WHEN pg_catalog.split_part(pg_catalog.current_setting('advisory.step',true),'.',1) \
         OPERATOR(pg_catalog.=) '{token}' THEN pg_catalog.current_setting('advisory.step',true) \
         ELSE '{token}.{unknown}' END AS step OFFSET 0) AS taken"
    );
    // The step is set in the statement that releases: a cancel request between the two would have it released twice.
    let mut sql = String::from("SELECT 1");
    for (before, key) in request.keys.iter().enumerate() {
        let arguments = Arguments(key);
        if before > 0 && before % 500 == 0 {
            // A target list has at most 1,664 entries.
            put!(sql, "{step};SELECT 1");
        }
        put!(
            sql,
            ",CASE WHEN CAST(pg_catalog.split_part(step,'.',2) AS pg_catalog.int4) OPERATOR(pg_catalog.>) {before} \
             THEN {give}({arguments})"
        );
        if how == Taken::Interrupted {
            put!(
                sql,
                " WHEN CAST(pg_catalog.split_part(step,'.',2) AS pg_catalog.int4) OPERATOR(pg_catalog.=) {before} AND "
            );
            push_is_held(&mut sql, *key, None);
            put!(sql, " THEN {give}({arguments})");
        }
        sql.push_str(" END");
    }
    put!(
        sql,
        ",CASE WHEN step OPERATOR(pg_catalog.<>) '{token}.-1' \
         THEN pg_catalog.set_config('advisory.taken',step,false) END,\
         pg_catalog.set_config('advisory.step','{token}.-1',false)"
    );
    push_session_restored(&mut sql, request);
    sql.push_str(&step);
    sql
}

/// How an acquisition ended whose locks are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// In a wait: the key that it waited for can have been granted all the same.
    Interrupted,
    /// Without a wait, so that a key beyond what the step counts is the caller's own.
    Refused,
    /// Well: it has all keys, or its release is on its way.
    All,
}

/// What a release has to know.
pub(crate) struct Held<'k> {
    pub(crate) keys: &'k [Key],
    pub(crate) mode: Mode,
    pub(crate) token: u64,
    pub(crate) is_bounded: bool,
    pub(crate) is_shown: bool,
}
