//! Builds a message: the comment that names the lock, statements, and the columns of a `SELECT`.

use super::client_check::{self, CLIENT_CHECK, IS_LINUX};
use crate::error::Marker;
use crate::request::Scope;
use crate::sql::{Arguments, lock_function, put, try_function};
use crate::{Key, Request, Wait, query_comment};
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::time::Duration;

/// A target list has at most 1,664 entries, and a key with its budget takes two.
pub(super) const KEYS_PER_STATEMENT: usize = 500;

/// The time from the client's own bound until the server ends the session. A client that has not
/// stopped needs it to roll back.
const SERVER_MARGIN: Duration = Duration::from_secs(1);

/// A condition: another process than this one is the backend. It means the same as
/// [`not_backend_sql`](crate::sql::probe::not_backend_sql), but its text differs, so that tests can
/// distinguish the statements that take locks from the checks before them.
pub(super) fn other_backend_sql(process: i32) -> String {
    format!("pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.<>) {process}")
}

/// A condition: the session is not the client's own. The setting `advisory.pooler` is
/// `transaction`, or another process is the backend, if this one is known. A setting that does not
/// exist is NULL, and so is its comparison.
pub(super) fn pooled_session_sql(process: Option<i32>) -> String {
    let other_backend = process.map(|process| format!(" OR {}", other_backend_sql(process)));
    format!(
        "pg_catalog.current_setting('advisory.pooler',true) OPERATOR(pg_catalog.=) 'transaction'{}",
        other_backend.unwrap_or_default()
    )
}

/// A condition that is always false, but that only the node with the rows of the statement can
/// compute. Other arguments would let the server call the function at another node.
fn at_rows(request: &Request) -> Option<&'static str> {
    let count = "pg_catalog.count(*) OPERATOR(pg_catalog.<) 0";
    request.at.as_ref().map(|_| count)
}

/// The arguments of a lock function. With `fails_if`, the statement checks that condition while it
/// computes them.
///
/// The key is a text because only a text can be either a number or the marker. It is converted when
/// the statement runs, where `pg_backend_pid()` is known; a constant that cannot be converted would
/// fail in every plan.
struct CheckedArguments<'a> {
    key: Key,
    /// A condition under which the statement fails with [`Marker::PooledSession`], so that the
    /// function is not called: [`other_backend_sql`] or [`pooled_session_sql`], or the one of
    /// [`at_rows`], which is never true.
    fails_if: Option<&'a str>,
}

impl fmt::Display for CheckedArguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(fails_if) = self.fails_if else {
            return Arguments(self.key).fmt(f);
        };
        let (number, kind, second) = match self.key {
            Key::BigInt(key) => (key, "bigint", None),
            Key::IntInt(first, second) => (first.into(), "int", Some(second)),
        };
        let pooled = Marker::PooledSession.text();
        write!(
            f,
            "CAST(CASE WHEN {fails_if} THEN '{pooled}' ELSE '{number}' END AS {kind})"
        )?;
        second.map_or(Ok(()), |second| write!(f, ",{second}"))
    }
}

/// Restores the session's own `lock_timeout` after the last key, or leaves that to the end of the
/// transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LockTimeout {
    Restore,
    Leave,
}

/// A boolean expression that takes the keys in order, and is true if it took all of them. It stops
/// at the first key that is held.
fn try_locks(request: &Request, scope: Scope, process: Option<i32>) -> String {
    let lock = try_function(scope, request.mode);
    let (other_backend, at_rows) = (process.map(other_backend_sql), at_rows(request));
    let mut sql = String::new();
    for (index, key) in request.keys.iter().enumerate() {
        let other_backend = other_backend.as_deref().filter(|_| index == 0);
        let key = CheckedArguments {
            key: *key,
            fails_if: other_backend.or(at_rows),
        };
        let and = if index == 0 { "" } else { " AND " };
        put!(sql, "{and}{lock}({key})");
    }
    sql
}

/// An integer expression that takes the first free permit and returns its position, from 1; 0 if
/// none is free.
fn try_permits(request: &Request, scope: Scope, process: Option<i32>) -> String {
    let lock = try_function(scope, request.mode);
    let other_backend = process.map(other_backend_sql);
    let mut sql = String::from("CASE");
    for (index, key) in request.permits.iter().enumerate() {
        let key = CheckedArguments {
            key: *key,
            fails_if: other_backend.as_deref().filter(|_| index == 0),
        };
        put!(sql, " WHEN {lock}({key}) THEN {}", index + 1);
    }
    sql + " ELSE 0 END"
}

/// The timeouts that bound the holder of a transaction-level lock after its client has stopped.
pub(super) const XACT_TIMEOUTS: [&str; 2] =
    ["idle_in_transaction_session_timeout", "transaction_timeout"];

#[derive(Default)]
pub(super) struct Message {
    text: String,
    /// The separator in front of the next column; not empty once a `SELECT` has begun.
    separator: &'static str,
}

impl Message {
    /// Begins with the comments that name the lock and the caller's trace.
    pub(super) fn new(request: &Request) -> Self {
        let (mut text, separator) = (Self::comment(request), "");
        query_comment::push_trace(&mut text);
        Self { text, separator }
    }

    /// The comment that names the lock. A `;` makes the comment an empty statement of its own:
    /// otherwise it would be part of the next utility statement, and of its entry in
    /// `pg_stat_statements`.
    pub(super) fn comment(request: &Request) -> String {
        // With a budget there are three more columns.
        let mut text = String::with_capacity(match request.wait {
            Wait::Session | Wait::Never => 256,
            Wait::For(_) | Wait::Forever => 512,
        });
        if let Some(name) = &request.shown_name {
            query_comment::push(&mut text, name);
            text.push(';');
        }
        text
    }

    /// Asks for the keys of the open transaction without waiting. It returns a row if it took them;
    /// with permits, the number of rows is the position of the one that it took. After the comment
    /// it has no trace: each text is prepared.
    pub(super) fn xact_try_sql(request: &Request) -> String {
        if !request.permits.is_empty() {
            let position = try_permits(request, Scope::Xact, None);
            return format!("SELECT 1 FROM pg_catalog.generate_series(1,{position})");
        }
        let locks = try_locks(request, Scope::Xact, None);
        match &request.at {
            Some(rows) => format!("SELECT 1 FROM {rows} HAVING {locks}"),
            None => format!("SELECT 1 WHERE {locks}"),
        }
    }

    /// Like [`xact_try_sql`](Self::xact_try_sql), for session-level locks, with the comment. It
    /// returns one text: `tag`, then the number of rows. It fails if `process` is not the backend.
    pub(super) fn session_try_sql(request: &Request, process: Option<i32>, tag: &str) -> String {
        let comment = Self::comment(request);
        if !request.permits.is_empty() {
            let position = try_permits(request, Scope::Session, process);
            return format!("{comment}SELECT pg_catalog.concat('{tag}',{position})");
        }
        let locks = if request.keys.len() > 1 {
            // For the transaction first: after a miss, the session holds none of several keys.
            let xact = try_locks(request, Scope::Xact, process);
            xact + " AND " + &try_locks(request, Scope::Session, None)
        } else {
            try_locks(request, Scope::Session, process)
        };
        format!("{comment}SELECT CASE WHEN {locks} THEN '{tag}1' ELSE '{tag}0' END")
    }

    /// Keeps the rows that choose the node from moving to another one before the transaction ends.
    /// Citus moves no rows on which a transaction has written, and this is a
    /// write; a `SELECT` is not, even with row locks.
    pub(super) fn keep_rows(&mut self, request: &Request) {
        if let Some(rows) = &request.at {
            self.statement(&format!("DELETE FROM {rows}"));
        }
    }

    /// A statement, and the preparation of a try after it: the timeouts that bound the holder, and
    /// the rows at its node.
    pub(super) fn before_try(statement: &'static str, request: &Request) -> Cow<'static, str> {
        if request.max_hold.is_none() && request.at.is_none() {
            return statement.into();
        }
        let mut message = Self::default();
        message.statement(statement);
        message.keep_rows(request);
        message.select_own_client_check(request);
        message.set_xact_timeouts(request);
        message.into_text().into()
    }

    pub(super) fn statement(&mut self, statement: &str) {
        self.separate();
        self.text.push_str(statement);
    }

    /// Begins a `SELECT` with the columns that follow.
    pub(super) fn select(&mut self) {
        self.separate();
        self.separator = "SELECT ";
    }

    pub(super) fn column(&mut self, column: fmt::Arguments<'_>) {
        self.text
            .push_str(std::mem::replace(&mut self.separator, ","));
        // Writing to a `String` cannot fail.
        let _: fmt::Result = self.text.write_fmt(column);
    }

    /// Adds a `SELECT` that takes the keys in their order and waits for each, within the request's
    /// budget. It fails if the condition `fails_if` is true.
    pub(super) fn select_locks(
        &mut self,
        request: &Request,
        scope: Scope,
        after: LockTimeout,
        fails_if: Option<&str>,
    ) {
        let lock = lock_function(scope, request.mode);
        let restores = after == LockTimeout::Restore;
        let budget = request.budget();
        let lock_timeout = match budget {
            Wait::For(wait) => Some(milliseconds(wait)),
            Wait::Forever => Some(0),
            Wait::Session | Wait::Never => None,
        };
        let at_rows = at_rows(request);
        self.select();
        if let Some(milliseconds) = lock_timeout {
            if restores {
                self.column(format_args!(
                    "pg_catalog.set_config('advisory.lock_timeout',pg_catalog.current_setting('lock_timeout'),true)"
                ));
            }
            self.column(format_args!(
                "pg_catalog.set_config('lock_timeout','{milliseconds}',true)"
            ));
        }
        for (index, key) in request.keys.iter().enumerate() {
            if index > 0 {
                if index % KEYS_PER_STATEMENT == 0 {
                    self.push_rows(request);
                    self.select();
                }
                // `lock_timeout` counts for each wait.
                if let Wait::For(wait) = budget {
                    self.push_remaining(milliseconds(wait));
                }
            }
            let fails_if = fails_if.filter(|_| index == 0);
            let key = CheckedArguments {
                key: *key,
                fails_if: fails_if.or(at_rows),
            };
            self.column(format_args!("{lock}({key})"));
        }
        if restores && lock_timeout.is_some() {
            self.column(format_args!(
                "pg_catalog.set_config('lock_timeout',pg_catalog.current_setting('advisory.lock_timeout'),true)"
            ));
        }
        self.push_rows(request);
    }

    /// Ends a `SELECT` that takes locks at the node of rows.
    fn push_rows(&mut self, request: &Request) {
        if let Some(rows) = &request.at {
            put!(self.text, " FROM {rows}");
            self.separator = "";
        }
    }

    /// Calls a function that does not wait for each key. The columns are added to the open `SELECT`
    /// if all keys fit in. The message fails if `process` is not the backend.
    pub(super) fn call_each(&mut self, request: &Request, function: &str, process: Option<i32>) {
        let other_backend = process.map(other_backend_sql);
        for (index, key) in request.keys.iter().enumerate() {
            if request.keys.len() <= KEYS_PER_STATEMENT {
                self.continue_select();
            } else if index % KEYS_PER_STATEMENT == 0 {
                self.select();
            }
            let key = CheckedArguments {
                key: *key,
                fails_if: other_backend.as_deref().filter(|_| index == 0),
            };
            self.column(format_args!("{function}({key})"));
        }
    }

    /// A column that sets `lock_timeout` to the remaining budget, which counts from the arrival of
    /// the message, by the server's clock.
    fn push_remaining(&mut self, budget: i32) {
        self.column(format_args!(
            "pg_catalog.set_config('lock_timeout',CAST(CAST(GREATEST(CAST(1 AS pg_catalog.float8),\
             pg_catalog.ceil(CAST('{budget}' AS pg_catalog.float8) OPERATOR(pg_catalog.-) (CAST(1000 AS pg_catalog.float8) \
             OPERATOR(pg_catalog.*) pg_catalog.date_part('epoch',pg_catalog.clock_timestamp() \
             OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp())))) AS pg_catalog.int4) AS pg_catalog.text),true)"
        ));
    }

    /// Begins a `SELECT` with a column that makes the server notice the death of the client while a
    /// later statement runs: to the end of the transaction or, for [`Scope::Session`], until the
    /// release of the lock restores it. It does nothing if the session has a value already, or if
    /// the server does not run on Linux.
    pub(super) fn select_client_check(&mut self, scope: Scope) {
        let local = scope == Scope::Xact;
        self.select();
        self.column(format_args!(
            "CASE WHEN pg_catalog.current_setting('{CLIENT_CHECK}',true) OPERATOR(pg_catalog.=) '0' \
             AND {IS_LINUX} \
             THEN pg_catalog.set_config('{CLIENT_CHECK}','1000',{local}) END"
        ));
    }

    /// A column that sets a timeout to `max_hold` and [`SERVER_MARGIN`], unless the session has a
    /// shorter one or the server does not know the setting. It sets it to zero first, since a
    /// `transaction_timeout` that is already running does not change otherwise.
    pub(super) fn push_timeout(&mut self, setting: &str, max_hold: Duration, scope: Scope) {
        let local = scope == Scope::Xact;
        let bound = milliseconds(max_hold.saturating_add(SERVER_MARGIN));
        self.column(format_args!(
            "CASE WHEN CAST(pg_catalog.current_setting('{setting}',true) AS pg_catalog.interval) \
             OPERATOR(pg_catalog.=) CAST('0' AS pg_catalog.interval) OR \
             CAST(pg_catalog.current_setting('{setting}',true) AS pg_catalog.interval) \
             OPERATOR(pg_catalog.>) CAST('{bound} ms' AS pg_catalog.interval) \
             THEN CASE WHEN pg_catalog.set_config('{setting}','0',{local}) OPERATOR(pg_catalog.=) '0' \
             THEN pg_catalog.set_config('{setting}','{bound}',{local}) END END"
        ));
    }

    /// Like [`select_client_check`](Self::select_client_check), for a transaction of the call's
    /// own, whatever value the session has.
    pub(super) fn select_own_client_check(&mut self, request: &Request) {
        if request.max_hold.is_some() {
            self.select();
            self.column(format_args!(
                "CASE WHEN {IS_LINUX} \
                 THEN pg_catalog.set_config('{CLIENT_CHECK}','1000',true) END"
            ));
        }
    }

    /// Like [`select_own_client_check`](Self::select_own_client_check), at a third of the cost, for
    /// a message that leaves nothing at the server if it is refused.
    pub(super) fn set_client_check(&mut self, request: &Request) {
        if request.max_hold.is_some() && client_check::is_known() {
            self.statement(client_check::SET);
        } else {
            self.select_own_client_check(request);
        }
    }

    /// Bounds the holder of a transaction-level lock, in a transaction of the call's own. It comes
    /// after the lock, so the wait does not count. A `SET` costs a third of `set_config`, which
    /// serves only for the setting that servers before 17 do not know. A `transaction_timeout` that
    /// is already running would not change.
    pub(super) fn set_xact_timeouts(&mut self, request: &Request) {
        if let Some(max_hold) = request.max_hold {
            let bound = milliseconds(max_hold.saturating_add(SERVER_MARGIN));
            let [idle, whole] = XACT_TIMEOUTS;
            self.continue_select();
            self.column(format_args!(
                "CASE WHEN pg_catalog.current_setting('{whole}',true) OPERATOR(pg_catalog.=) '0' \
                 THEN pg_catalog.set_config('{whole}','{bound}',true) END"
            ));
            self.statement(&format!("SET LOCAL {idle}={bound}"));
        }
    }

    /// The next column is one more of the `SELECT` that is open, or the first of a new one.
    pub(super) fn continue_select(&mut self) {
        if self.separator.is_empty() {
            self.select();
        }
    }

    fn separate(&mut self) {
        self.separator = "";
        if !matches!(self.text.bytes().last(), None | Some(b';')) {
            self.text.push(';');
        }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// A duration as the server takes it: whole milliseconds, at least one, at most what it accepts.
fn milliseconds(duration: Duration) -> i32 {
    let rounded = duration.as_nanos().div_ceil(1_000_000).max(1);
    i32::try_from(rounded).unwrap_or(i32::MAX)
}
