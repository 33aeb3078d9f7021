//! The statements of a lock in the form that a session keeps prepared (`PREPARE`): the server reads them once and
//! plans them a few times, not for every call.
//!
//! Their names say which release's they are: behind a pooler, programs of two releases can share a session. A changed text needs a
//! new number.

use super::fragment::{
    HOLD_OF_XACT, LONGEST_NAME, NOTICE_DEAD_CLIENT, OWN_NAME_NOW, OWN_TRANSACTION, Scope, bound,
    function, letters, push_at_most_of, push_check, push_letters, push_restored, unlock,
};
use super::session::{Held, brackets, conditions, push_line, push_session_unshown};
use super::{Around, ENDED, FOREIGN, LOST};
use crate::request::milliseconds;
use crate::{Key, Mode, Request, Wait};
use std::borrow::Cow;
use std::fmt::Write;

/// What stands in each of the names, and so in an error about one.
pub(crate) const PREPARED: &str = "advisory_1_";

/// Which statements are prepared: for each scope those that every lock needs, and those for its mode and its way to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prepared(u16);

/// How a lock is taken, as a letter in a statement's name and a bit of [`Prepared`].
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    bit: Prepared,
}

/// From eight on the server reads one statement of all keys faster than it runs one for each.
const MOST_KEYS: usize = 6;

impl Prepared {
    const XACT: Self = Self(1);
    const SESSION: Self = Self(1 << 1);
    const HOLD: Self = Self(1 << 10);

    /// What a request needs, if all of it can be prepared: a `bigint` key, or a few of them where nothing stands between their
    /// statements, such as what is left of a budget; and for a session-level lock no bound on how long it is held.
    pub(crate) fn needed(request: &Request, is_session: bool) -> Option<Self> {
        let is_for_one = is_session || matches!(request.budget(), Wait::Never | Wait::For(_));
        let most = if is_for_one { 1 } else { MOST_KEYS };
        let is_plain = (1..=most).contains(&request.keys.len())
            && request.keys.iter().all(|key| matches!(key, Key::BigInt(_)));
        let common = match (is_session, request.max_hold) {
            (true, Some(_)) => return None,
            (true, None) => Self::SESSION,
            (false, Some(_)) => Self::XACT.and(Self::HOLD),
            (false, None) => Self::XACT,
        };
        is_plain.then(|| common.and(Way::of(request, is_session).bit))
    }

    /// Those of these that `other` has not.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Way {
    fn of(request: &Request, is_session: bool) -> Self {
        let (name, bit) = match (request.mode, request.budget()) {
            (Mode::Exclusive, Wait::Never) => ("try", 2),
            (Mode::Shared, Wait::Never) => ("try_shared", 3),
            (Mode::Exclusive, _) => ("lock", 4),
            (Mode::Shared, _) => ("lock_shared", 5),
        };
        Self {
            name,
            bit: Prepared(1 << if is_session { bit + 4 } else { bit }),
        }
    }
}

/// What [`super::begin`] does, with statements that are prepared, or are to be from here on: `missing`.
///
/// Whoever has the settings has the check too, which is prepared before them: a begin that goes well can be committed.
pub(crate) fn begin_prepared(token: u64, request: &Request, missing: Prepared) -> String {
    let way = Way::of(request, false);
    let mut sql = start(missing);
    sql.push_str("SET TRANSACTION ISOLATION LEVEL READ COMMITTED;");
    if missing.has(Prepared::XACT) {
        push_xact(&mut sql);
    }
    if missing.has(way.bit) {
        push_xact_way(&mut sql, way, request);
    }
    if missing.has(Prepared::HOLD) {
        push_hold(&mut sql);
    }
    put!(sql, "EXECUTE {PREPARED}settings('{token}',");
    push_timeout(&mut sql, request);
    sql.push(',');
    push_shown_or_null(&mut sql, request);
    sql.push(')');
    for (before, key) in request.keys.iter().enumerate() {
        put!(sql, ";EXECUTE {PREPARED}{}(", way.name);
        push_key(&mut sql, *key);
        if request.budget() != Wait::Never {
            let restores = matches!(request.budget(), Wait::For(_) | Wait::Forever)
                && before + 1 == request.keys.len();
            put!(sql, ",{restores}");
        }
        sql.push(')');
    }
    if let Some(hold) = request.max_hold {
        put!(sql, ";EXECUTE {PREPARED}hold('{}')", bound(hold));
    }
    sql.push_str(";BEGIN");
    sql
}

/// What [`super::commit`] does, in a session that has begun by [`begin_prepared`].
pub(crate) fn commit_prepared(token: u64) -> String {
    format!("EXECUTE {PREPARED}check('{token}');COMMIT")
}

/// What [`super::acquire`] does, with statements that are prepared, or are to be from here on: `missing`.
pub(crate) fn acquire_prepared(token: u64, request: &Request, missing: Prepared) -> String {
    let way = Way::of(request, true);
    let (open, close) = brackets(Around::Nothing);
    let mut sql = start(missing);
    if missing.has(Prepared::SESSION) {
        push_session(&mut sql);
    }
    if missing.has(way.bit) {
        push_session_way(&mut sql, way, request);
    }
    put!(sql, "EXECUTE {PREPARED}session_settings('{token}',");
    push_timeout(&mut sql, request);
    put!(sql, ");{open}");
    let is_try = request.budget() == Wait::Never;
    if !is_try && request.shown.is_some() {
        // While it waits, too; an error takes it back.
        put!(sql, ";EXECUTE {PREPARED}session_show('{token}',");
        push_shown_or_null(&mut sql, request);
        sql.push(')');
    }
    put!(sql, ";EXECUTE {PREPARED}session_{}(", way.name);
    push_only(&mut sql, &request.keys);
    put!(sql, ",'{token}'");
    if is_try {
        sql.push(',');
        push_shown_or_null(&mut sql, request);
    }
    put!(sql, ");{close}");
    sql
}

/// What [`super::release`] does, in a session that has acquired by [`acquire_prepared`].
pub(crate) fn release_prepared(held: &Held<'_>) -> String {
    let mut sql = format!("EXECUTE {PREPARED}session_{}(", unlock_name(held.mode));
    push_only(&mut sql, held.keys);
    put!(sql, ",'{}')", held.token);
    sql
}

const fn unlock_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "unlock",
        Mode::Shared => "unlock_shared",
    }
}

fn start(missing: Prepared) -> String {
    String::with_capacity(if missing == Prepared::default() {
        300
    } else {
        4_000
    })
}

/// Adds the `lock_timeout` for the wait as a text, NULL for the session's own.
fn push_timeout(sql: &mut String, request: &Request) {
    match request.budget() {
        Wait::For(wait) => {
            put!(sql, "'{}'", milliseconds(wait));
        }
        Wait::Forever => sql.push_str("'0'"),
        Wait::Session | Wait::Never => sql.push_str("NULL"),
    }
}

fn push_shown_or_null(sql: &mut String, request: &Request) {
    match &request.shown {
        Some(shown) => push_letters(sql, &letters(shown), matches!(shown, Cow::Owned(_))),
        None => sql.push_str("NULL"),
    }
}

fn push_only(sql: &mut String, keys: &[Key]) {
    if let [key] = keys {
        push_key(sql, *key);
    }
}

/// Adds a key as a text; pairs are never prepared.
fn push_key(sql: &mut String, key: Key) {
    if let Key::BigInt(key) = key {
        put!(sql, "'{key}'");
    }
}

/// An expression that sets the application name to the session's own and a parameter.
fn shown(parameter: &str, is_local: bool) -> String {
    format!(
        "pg_catalog.set_config('application_name',pg_catalog.left({OWN_NAME_NOW},{LONGEST_NAME} OPERATOR(pg_catalog.-) \
         pg_catalog.length({parameter})) OPERATOR(pg_catalog.||) {parameter},{is_local})"
    )
}

/// Columns that save `lock_timeout` and set it to a parameter, unless that is NULL.
const TIMEOUT_OF_2: &str = "CASE WHEN $2 IS NOT NULL THEN \
     pg_catalog.set_config('advisory.lock_timeout',pg_catalog.current_setting('lock_timeout'),true) END,\
     CASE WHEN $2 IS NOT NULL THEN pg_catalog.set_config('lock_timeout',$2,true) END";

fn push_xact(sql: &mut String) {
    put!(
        sql,
        "PREPARE {PREPARED}check(pg_catalog.text) AS SELECT CAST(CASE WHEN pg_catalog.current_setting('advisory.token',true) \
         OPERATOR(pg_catalog.=) $1 THEN '1' ELSE '{ENDED}' END AS pg_catalog.int4);\
         PREPARE {PREPARED}settings(pg_catalog.text,pg_catalog.text,pg_catalog.text) AS SELECT \
         pg_catalog.set_config('advisory.token',$1,true),{NOTICE_DEAD_CLIENT},{TIMEOUT_OF_2},\
         CASE WHEN $3 IS NOT NULL THEN {} END;",
        shown("$3", true)
    );
}

fn push_hold(sql: &mut String) {
    put!(sql, "PREPARE {PREPARED}hold(pg_catalog.text) AS SELECT ");
    for (before, setting) in HOLD_OF_XACT.into_iter().enumerate() {
        if before > 0 {
            sql.push(',');
        }
        push_at_most_of(sql, setting, "$1", "pg_catalog.concat($1,' ms')", true);
    }
    sql.push(';');
}

fn push_xact_way(sql: &mut String, way: Way, request: &Request) {
    let wait = request.budget();
    let take = function(Scope::Xact, request.mode, wait);
    put!(sql, "PREPARE {PREPARED}{}(pg_catalog.text", way.name);
    let conditions = [(FOREIGN, OWN_TRANSACTION)];
    if wait == Wait::Never {
        put!(
            sql,
            ") AS SELECT pg_catalog.set_config('advisory.step',CAST({take}("
        );
        push_check(sql, &conditions, "$1", "int8");
        sql.push_str(") AS pg_catalog.text),true);");
    } else {
        put!(sql, ",pg_catalog.bool) AS SELECT {take}(");
        push_check(sql, &conditions, "$1", "int8");
        sql.push_str("),CASE WHEN $2 THEN ");
        push_restored(sql);
        sql.push_str(" END;");
    }
}

fn push_session(sql: &mut String) {
    put!(
        sql,
        "PREPARE {PREPARED}session_settings(pg_catalog.text,pg_catalog.text) AS SELECT {NOTICE_DEAD_CLIENT},\
         pg_catalog.set_config('advisory.step',pg_catalog.concat($1,'.0'),false),{TIMEOUT_OF_2},"
    );
    push_check(sql, conditions(Around::Nothing), "'1'", "int4");
    put!(
        sql,
        ";PREPARE {PREPARED}session_show(pg_catalog.text,pg_catalog.text) AS SELECT 1"
    );
    push_session_shown(sql, "$1", "$2");
    sql.push(';');
    for mode in [Mode::Exclusive, Mode::Shared] {
        put!(
            sql,
            "PREPARE {PREPARED}session_{}(pg_catalog.text,pg_catalog.text) AS SELECT CAST(CASE \
             WHEN NOT ({OWN_TRANSACTION}) THEN '{FOREIGN}' WHEN {}(CAST($1 AS pg_catalog.int8)) THEN '1' \
             ELSE '{LOST}' END AS pg_catalog.int4),pg_catalog.set_config('advisory.step',pg_catalog.concat($2,'.-1'),false)",
            unlock_name(mode),
            unlock(mode),
        );
        push_session_unshown(sql, "$2");
        sql.push(';');
    }
}

fn push_session_way(sql: &mut String, way: Way, request: &Request) {
    let take = function(Scope::Session, request.mode, request.budget());
    let key = "CAST($1 AS pg_catalog.int8)";
    let name = way.name;
    let step = "pg_catalog.set_config('advisory.step',pg_catalog.concat($2,'.1'),false)";
    if request.budget() == Wait::Never {
        let is_at = |step: &str| {
            format!(
                "pg_catalog.current_setting('advisory.step',true) OPERATOR(pg_catalog.=) pg_catalog.concat($2,'{step}')"
            )
        };
        put!(
            sql,
            "PREPARE {PREPARED}session_{name}(pg_catalog.text,pg_catalog.text,pg_catalog.text) AS SELECT \
             CASE WHEN {} THEN CASE WHEN {take}({key}) THEN {step} END END,\
             CASE WHEN $3 IS NOT NULL AND {} THEN pg_catalog.concat(1",
            is_at(".0"),
            is_at(".1"),
        );
        push_session_shown(sql, "$2", "$3");
        sql.push_str(") END;");
    } else {
        put!(
            sql,
            "PREPARE {PREPARED}session_{name}(pg_catalog.text,pg_catalog.text) AS SELECT {take}({key}),{step};"
        );
    }
}

/// Adds columns that show a lock until its release, from parameters.
fn push_session_shown(sql: &mut String, token: &str, letters: &str) {
    push_line(sql, "''");
    put!(sql, ",{}", shown(letters, false));
    push_line(sql, &format!("{token},' '"));
}

#[cfg(test)]
mod tests {
    use super::{PREPARED, Prepared, acquire_prepared, begin_prepared};
    use crate::{Request, Wait};
    use advisory_pattern::Derivation;
    use std::time::Duration;

    /// Programs of two releases can share a session behind a pooler, and each has to get its own statements.
    #[test]
    fn a_changed_statement_has_a_new_number_in_its_name() {
        let everything = Prepared(u16::MAX);
        let mut texts = String::new();
        for wait in [Wait::Session, Wait::Never] {
            for request in [Request::new(7), Request::new(7).shared()] {
                let request = request.wait(wait).max_hold(Duration::from_secs(9));
                texts += &begin_prepared(1, &request, everything);
                texts += &acquire_prepared(1, &request, everything);
            }
        }
        let of_texts = (PREPARED, Derivation::Sha256.key(&texts));
        assert_eq!(of_texts, ("advisory_1_", 7_077_398_527_078_406_807));
    }
}
