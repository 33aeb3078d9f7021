//! Conditions on `pg_locks`.

use crate::{Key, Mode};

/// A condition: this session holds the key, in this mode or a stronger one.
///
/// It does not compare the database: a session's locks are those of its own database, and reading
/// `pg_database` takes a lock. While the server's lock table is full (53200), that would fail, and
/// the session could not release its locks.
pub(crate) fn held_sql(key: Key, mode: Mode) -> String {
    format!("EXISTS(SELECT 1{} AND {})", own(mode), numbered_sql(key))
}

/// Counts the keys, all different, that this session holds in this mode or a stronger one.
///
/// It reads `pg_locks` once. With a condition for each key, thousands of keys would take a minute.
pub(crate) fn own_count(keys: &[Key], mode: Mode) -> String {
    const NUMBERS: &str = "pg_catalog.concat_ws('.',classid,objid,objsubid)";
    let all = keys.iter().map(|key| {
        let (first, second, space) = numbers(*key);
        format!("{first}.{second}.{space}")
    });
    let (all, own) = (all.collect::<Vec<_>>().join(","), own(mode));
    // A key that is held in both modes has two rows.
    format!(
        "(SELECT pg_catalog.count(DISTINCT {NUMBERS}){own} AND locktype OPERATOR(pg_catalog.=) 'advisory' \
         AND {NUMBERS} OPERATOR(pg_catalog.=) ANY(CAST('{{{all}}}' AS pg_catalog.text[])))"
    )
}

fn own(mode: Mode) -> String {
    let is_mode = match mode {
        Mode::Exclusive => " AND mode OPERATOR(pg_catalog.=) 'ExclusiveLock'",
        Mode::Shared => "",
    };
    format!(
        " FROM pg_catalog.pg_locks WHERE granted AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid(){is_mode}"
    )
}

/// A condition on a row of `pg_locks`: it is this key of this database.
pub(super) fn key_sql(key: Key) -> String {
    let numbered = numbered_sql(key);
    format!(
        "({numbered} AND database OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_database \
         WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()))"
    )
}

/// A condition on a row of `pg_locks`: it has these numbers.
fn numbered_sql(key: Key) -> String {
    let (first, second, space) = numbers(key);
    format!(
        "locktype OPERATOR(pg_catalog.=) 'advisory' AND classid OPERATOR(pg_catalog.=) CAST('{first}' AS pg_catalog.oid) \
         AND objid OPERATOR(pg_catalog.=) CAST('{second}' AS pg_catalog.oid) AND objsubid OPERATOR(pg_catalog.=) '{space}'"
    )
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
