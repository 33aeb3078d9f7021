//! Every statement on the lease table: SQL in files, with fragments in place of `{names}`, and
//! values in place of `:names`.
//!
//! All times are `clock_timestamp()`: `now()` is when the transaction began, before any wait.
//!
//! **Why a later grant has the larger token.** Each grant locks its key until its transaction ends
//! before it draws from the sequence, so two grants of one key draw one after the other. A
//! take-over locks the existing row instead. Without the lock, a session could draw a number, be
//! stopped, and insert it after a larger one.
//!
//! **Why no two grants have the same token.** A token is always a number that was drawn, and the
//! sequence is never set back. But others can set it back, and logical replication copies rows
//! without it. So a number that is not above the token in the key's row is not granted: the
//! sequence is moved past the tokens of all rows first. Rows above it are not removed.
//!
//! A standby that is promoted can lack the last grants, and the sequence with them. But a promotion
//! gives the server a new timeline, so the bits of a token from the 40th on say in which timeline
//! it was granted: their last twelve are those of the timeline. A number of another timeline is not
//! granted either, but moves the sequence. `pg_upgrade` starts with timeline 1 again and keeps the
//! sequence, which therefore goes up then too.

use crate::sql::qualify::{Part, fill, number, parts, qualify};
use crate::sql::{IDLE_IN_TRANSACTION, MAKE_DURABLE, OUTCOME, at_most};
use advisory_pattern::Derivation;
use std::sync::{Arc, OnceLock};

/// How many rows a sweep removes in one statement.
pub(super) const SWEPT: i64 = 10_000;

/// The latest time that is distinguished from `infinity`, in seconds since 1970.
pub(super) const NEVER: i64 = 6_000_000_000_000;

/// The time left in the answer to a grant whose number was not above the token in the key's row, or
/// not of the server's timeline.
pub(super) const BEHIND: i64 = -1;
/// The same for a row that was locked or removed meanwhile.
pub(super) const LOCKED: i64 = -2;

/// Returns a row if the server is a standby.
pub(super) const IS_STANDBY: &str = "SELECT 1 WHERE pg_catalog.pg_is_in_recovery()";

/// Reads the server's timeline, which fails where there is none.
pub(super) fn timeline() -> String {
    qualify(&format!("SELECT {TIMELINE}"))
}

/// The purpose of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Acquire,
    /// And removes expired rows.
    AcquireAndSweep,
    Insert,
    TakeOver,
    MoveSequence,
    /// Finds out if the sequence was moved from this number's timeline to the server's.
    IsMoved,
    SetData,
    Renew,
    Release,
    Free,
    Keep,
    Complete,
    Settled,
    Holds,
    Fence,
    IsCurrent,
    Find,
    Between,
    List,
    Counts,
    Some,
    Sweep,
    IsMissing,
    Lacks,
}

const FORMS: usize = Form::Lacks as usize + 1;

/// The statements of one table, each made when it is sent first.
pub(super) struct Texts {
    pub(super) schema: Box<str>,
    pub(super) name: Box<str>,
    pub(super) full_name: Arc<str>,
    /// Tells its grants' advisory locks from those of other tables.
    pub(super) grant_lock: i64,
    /// First those for a server that has no timeline, or does not tell it, and for a test's
    /// transaction, which must not lock the table; then those for all others.
    statements: [[OnceLock<Box<str>>; FORMS]; 2],
}

impl Texts {
    /// The names consist of letters, digits and `_`.
    pub(super) fn new(schema: &str, name: &str) -> Self {
        let full_name = format!("{schema}.{name}");
        Self {
            schema: schema.into(),
            name: name.into(),
            grant_lock: Derivation::Sha256.key(&format!("advisory:lease:grant:{full_name}")),
            full_name: full_name.into(),
            statements: [const { [const { OnceLock::new() }; FORMS] }; 2],
        }
    }

    pub(super) fn get(&self, form: Form) -> &str {
        self.of_grant(form, true)
    }

    /// The text of a statement that draws a number, or moves the sequence.
    pub(super) fn of_grant(&self, form: Form, has_timeline: bool) -> &str {
        let text = &self.statements[usize::from(has_timeline)][form as usize];
        text.get_or_init(|| self.make(form, has_timeline))
    }

    /// [`Form::IsCurrent`] before, between and after its values.
    pub(super) fn is_current(&self) -> Vec<&str> {
        let sql = |part| match part {
            Part::Sql(sql) => Some(sql),
            Part::Value(_) => None,
        };
        let parts = parts(self.get(Form::IsCurrent)).into_iter();
        parts.filter_map(sql).collect()
    }

    fn make(&self, form: Form, has_timeline: bool) -> Box<str> {
        let (text, names) = template(form);
        let (schema, name) = (&*self.schema, &*self.name);
        let table = format!("\"{schema}\".\"{name}\"");
        let sequence = format!("'\"{schema}\".\"{name}_token\"'");
        let never = format!("to_timestamp(CAST({NEVER} AS float8))");
        let bound_idle = at_most(IDLE_IN_TRANSACTION, "{remaining}", "{remaining_millis}");
        let [is_of_timeline, next] = if has_timeline {
            [IS_OF_TIMELINE, NEXT_OF_TIMELINE]
        } else {
            ["true", "last.number + 1"]
        };
        let expires = match form {
            Form::Complete => OWN_EXPIRES,
            _ => EXPIRES,
        };
        let swept = match form {
            Form::AcquireAndSweep => include_str!("sql/swept.sql"),
            _ => "",
        };
        let fragments = [
            ("row", include_str!("sql/row.sql")),
            ("wanted", include_str!("sql/wanted.sql")),
            ("swept", swept),
            ("may_be_granted", MAY_BE_GRANTED),
            ("is_of_timeline", is_of_timeline),
            ("next", next),
            ("timeline", TIMELINE),
            ("is_ours", IS_OURS),
            ("is_asked", IS_ASKED),
            ("is_valid", "expires_at > clock_timestamp()"),
            ("make_durable", MAKE_DURABLE),
            ("outcome", OUTCOME),
            (
                "do_not_wait_for_disk",
                "set_config('synchronous_commit', 'off', true) IS NOT NULL",
            ),
            ("kept", KEPT),
            ("until", UNTIL),
            ("bound_idle", &bound_idle),
            ("remaining_millis", REMAINING_MILLIS),
            ("remaining", "({expires} - clock_timestamp())"),
            ("free_left", FREE_LEFT),
            ("left", LEFT),
            ("lock_timeout", LOCK_TIMEOUT),
            ("acquired_micros", ACQUIRED_MICROS),
            ("expires_micros", EXPIRES_MICROS),
            ("expires", expires),
            ("zero", "to_timestamp(CAST(0 AS float8))"),
            ("never", &never),
            ("sequence", &sequence),
            ("table", &table),
            ("schema", schema),
            ("name", name),
        ];
        let text = qualify(&fill_from(&text, &fragments));
        match form {
            Form::IsCurrent => text.into(),
            _ => number(&text, &names.split(' ').collect::<Vec<_>>()).into(),
        }
    }
}

fn fill_from(sql: &str, fragments: &[(&str, &str)]) -> String {
    fill(sql, &|name| {
        let mut fragments = fragments.iter();
        let found = fragments.find(|(fragment, _)| *fragment == name);
        found.map(|(_, sql)| *sql)
    })
}

/// A statement, and the names of its values in their order.
fn template(form: Form) -> (String, &'static str) {
    const OURS: &str = "key grant token";
    const KEEP: &str = "key grant token ttl";
    const WANTED: &str = "text patterns keys limit";
    const GRANT: &str = "key grant holder text pattern ttl data lock swept_from";
    const TAKE_OVER: &str = "key grant holder text pattern ttl data seen";
    let change = |set, returning| {
        let fragments = [("set", set), ("returning", returning)];
        fill_from(include_str!("sql/change.sql"), &fragments)
    };
    match form {
        Form::Acquire | Form::AcquireAndSweep => (include_str!("sql/acquire.sql").into(), GRANT),
        Form::Insert => (include_str!("sql/insert.sql").into(), GRANT),
        Form::TakeOver => (include_str!("sql/take_over.sql").into(), TAKE_OVER),
        Form::MoveSequence => (include_str!("sql/move_sequence.sql").into(), ""),
        Form::IsMoved => (
            "SELECT 1 FROM (SELECT pg_sequence_last_value({sequence}) AS number) AS drawn \
             WHERE drawn.number > :number AND (drawn.number >> 40) <> (:number >> 40) \
             AND {is_of_timeline}"
                .into(),
            "number",
        ),
        Form::SetData => (change("data = :data", ""), "key grant token data"),
        Form::Renew => (
            include_str!("sql/renew.sql").into(),
            "keys grants tokens ttls",
        ),
        Form::Release => (include_str!("sql/release.sql").into(), OURS),
        Form::Free => (include_str!("sql/free.sql").into(), OURS),
        Form::Keep => (change("{kept}", ""), KEEP),
        Form::Complete => {
            // The transaction's number tells later how it has ended. Its idle time is bounded,
            // which ends a writer that has stopped.
            let transaction = "CAST(CAST(pg_current_xact_id() AS text) AS int8)";
            let returning = format!("RETURNING {transaction}, {{bound_idle}}");
            (change("{kept}", &returning), KEEP)
        }
        Form::Settled => (
            include_str!("sql/settled.sql").into(),
            "keys grants tokens transactions",
        ),
        Form::Holds => (
            "SELECT 1 FROM {table} WHERE {is_ours} AND NOT is_kept AND {is_valid}".into(),
            OURS,
        ),
        Form::Fence => (include_str!("sql/fence.sql").into(), OURS),
        Form::IsCurrent => (
            "EXISTS (SELECT 1 FROM {table} \
             WHERE {is_ours} AND NOT is_kept AND {is_valid} FOR KEY SHARE)"
                .into(),
            OURS,
        ),
        Form::Find => ("{row} WHERE key_hash = :key AND {is_valid}".into(), OURS),
        Form::Between => (
            "{row} WHERE key_hash >= :first AND key_hash <= :last AND {is_valid} \
             ORDER BY key_hash LIMIT 2"
                .into(),
            "first last",
        ),
        Form::List => ("{row} WHERE {is_valid} ORDER BY expires_at".into(), ""),
        Form::Counts => (
            "SELECT pattern, count(*) FILTER (WHERE NOT is_kept), count(*) FILTER (WHERE is_kept) \
             FROM {table} WHERE {wanted} GROUP BY pattern ORDER BY count(*) DESC LIMIT :limit"
                .into(),
            WANTED,
        ),
        Form::Some => (
            ["NOT is_kept", "is_kept"]
                .map(|which| {
                    format!(
                        "({{row}} WHERE {which} AND {{wanted}} ORDER BY expires_at LIMIT :limit)"
                    )
                })
                .join(" UNION ALL "),
            WANTED,
        ),
        Form::Sweep => (include_str!("sql/sweep.sql").into(), "limit"),
        Form::IsMissing => ("SELECT 1 WHERE to_regclass('{table}') IS NULL".into(), ""),
        Form::Lacks => (include_str!("sql/lacks.sql").into(), "rights"),
    }
}

/// The row of the grant, held or done. A delayed retry is granted the key again with the same
/// `grant_id`, so that alone does not identify a grant. After a restore from a dump tokens repeat,
/// so neither does the token alone.
const IS_OURS: &str = "key_hash = :key AND grant_id = :grant AND token = :token";
const IS_ASKED: &str = "l.grant_id = asked.grant_id AND l.token = asked.token AND NOT l.is_kept";

/// True if a number may be granted. The timeline is read last, because that is expensive.
const MAY_BE_GRANTED: &str =
    "CASE WHEN drawn.number > COALESCE(drawn.token, 0) THEN {is_of_timeline} ELSE false END";
const IS_OF_TIMELINE: &str =
    "(({timeline} - (drawn.number >> 40)) & CAST(4095 AS int8)) = CAST(0 AS int8)";
/// The control file has it too, but only after the first checkpoint of a timeline.
const TIMELINE: &str =
    "CAST(CAST('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS bit(32)) AS int8)";
/// The last number as one of the server's timeline, which never makes it smaller, or the one after
/// it.
const NEXT_OF_TIMELINE: &str = "last.number + (SELECT CASE WHEN behind.timelines = 0 THEN 1 ELSE behind.timelines << 40 END \
     FROM (SELECT ({timeline} - (last.number >> 40)) & CAST(4095 AS int8) AS timelines) AS behind)";

const UNTIL: &str = "clock_timestamp() + (CAST('1 ms' AS interval) * CAST(:ttl AS float8))";
const KEPT: &str = "is_kept = true, key = NULL, expires_at = {until}";

/// A time that is put between 1970 and the year 192103. Beyond that, such as at `infinity`,
/// differences and microseconds fail with 22008 and 22003.
const EXPIRES: &str = "GREATEST(LEAST(expires_at, {never}), {zero})";
/// The same before it is changed.
const OWN_EXPIRES: &str = "GREATEST(LEAST(own.until, {never}), {zero})";
const ACQUIRED_MICROS: &str = "CAST(date_part('epoch', GREATEST(LEAST(acquired_at, {never}), {zero})) * CAST(1000000 AS float8) AS int8)";
const EXPIRES_MICROS: &str =
    "CAST(date_part('epoch', {expires}) * CAST(1000000 AS float8) AS int8)";
/// The time until the row expires, in microseconds.
const LEFT: &str =
    "CAST(date_part('epoch', {expires} - clock_timestamp()) * CAST(1000000 AS float8) AS int8)";
const FREE_LEFT: &str = "CAST(date_part('epoch', LEAST(free.expires_at, {never}) - clock_timestamp()) * CAST(1000000 AS float8) AS int8)";
const REMAINING_MILLIS: &str =
    "GREATEST(1, CAST(ceil(date_part('epoch', {remaining}) * CAST(1000 AS float8)) AS int8))";
const LOCK_TIMEOUT: &str = "CAST(date_part('epoch', CAST(current_setting('lock_timeout') AS interval)) * CAST(1000000 AS float8) AS int8)";
