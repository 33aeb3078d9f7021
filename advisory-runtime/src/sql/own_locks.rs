//! Conditions on `pg_locks`.

use crate::{Key, Mode};

/// A condition: this session holds the key, in this mode or a stronger one.
///
/// It does not compare the database: a session's locks are those of its own database, and reading
/// `pg_database` takes a lock. While the server's lock table is full (53200), that would fail, and
/// the session could not release its locks.
pub(crate) fn push_is_held(sql: &mut String, key: Key, mode: Mode) {
    sql.push_str("EXISTS(SELECT 1");
    push_own(sql, mode);
    sql.push_str(" AND ");
    push_is_numbered(sql, key);
    sql.push(')');
}

/// Counts the keys, all different, that this session holds in this mode or a stronger one.
///
/// It reads `pg_locks` once. With a condition for each key, thousands of keys would take a minute.
pub(crate) fn push_count(sql: &mut String, keys: &[Key], mode: Mode) {
    const NUMBERS: &str = "pg_catalog.concat_ws('.',classid,objid,objsubid)";
    // A key that is held in both modes has two rows.
    put!(*sql, "(SELECT pg_catalog.count(DISTINCT {NUMBERS})");
    push_own(sql, mode);
    put!(
        *sql,
        " AND locktype OPERATOR(pg_catalog.=) 'advisory' AND {NUMBERS} OPERATOR(pg_catalog.=) ANY(CAST('{{"
    );
    for (index, key) in keys.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let (first, second, space) = numbers(*key);
        put!(*sql, "{comma}{first}.{second}.{space}");
    }
    sql.push_str("}' AS pg_catalog.text[])))");
}

fn push_own(sql: &mut String, mode: Mode) {
    sql.push_str(
        " FROM pg_catalog.pg_locks WHERE granted AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()",
    );
    if mode == Mode::Exclusive {
        sql.push_str(" AND mode OPERATOR(pg_catalog.=) 'ExclusiveLock'");
    }
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

/// A condition on a row of `pg_locks`: it has these numbers.
fn push_is_numbered(sql: &mut String, key: Key) {
    let (first, second, space) = numbers(key);
    put!(
        *sql,
        "locktype OPERATOR(pg_catalog.=) 'advisory' AND classid OPERATOR(pg_catalog.=) CAST('{first}' AS pg_catalog.oid) \
         AND objid OPERATOR(pg_catalog.=) CAST('{second}' AS pg_catalog.oid) AND objsubid OPERATOR(pg_catalog.=) '{space}'"
    );
}

/// The `classid`, `objid` and `objsubid` of a key: `bigint` keys have `objsubid` 1, pairs 2.
const fn numbers(key: Key) -> (u32, u32, u8) {
    match key {
        Key::BigInt(key) => {
            let bits = key.cast_unsigned();
            ((bits >> 32) as u32, (bits & 0xFFFF_FFFF) as u32, 1)
        }
        Key::IntInt(first, second) => (first.cast_unsigned(), second.cast_unsigned(), 2),
    }
}
