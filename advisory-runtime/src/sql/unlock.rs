//! The release of session-level locks: for one lock a prepared query, at half the cost of a text.

use super::{Arguments, fail_unless, unlock_function};
use crate::error::Marker;
use crate::{Key, Mode};
use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Integer};

/// Releases the key if this process is the backend, and returns one row if it did. `CASE`
/// guarantees the order.
///
/// Only for a backend that was compared when it took the lock: with a pooler that does not track
/// prepared statements, another client's statement can have the name of this one.
#[derive(Clone, Copy, Debug)]
pub struct Unlock {
    pub(crate) key: Key,
    pub(crate) mode: Mode,
    pub(crate) process: i32,
}

/// The text in one piece: the client builds it for each call.
macro_rules! unlock {
    ($function:literal) => {
        concat!(
            "SELECT WHERE CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) $1 THEN pg_catalog.",
            $function,
            " END"
        )
    };
}

impl QueryFragment<Pg> for Unlock {
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        pass.push_sql(match (self.mode, self.key) {
            (Mode::Exclusive, Key::BigInt(_)) => unlock!("pg_advisory_unlock($2)"),
            (Mode::Exclusive, Key::IntInt(..)) => unlock!("pg_advisory_unlock($2,$3)"),
            (Mode::Shared, Key::BigInt(_)) => unlock!("pg_advisory_unlock_shared($2)"),
            (Mode::Shared, Key::IntInt(..)) => unlock!("pg_advisory_unlock_shared($2,$3)"),
        });
        pass.push_bind_param_value_only::<Integer, _>(&self.process)?;
        match &self.key {
            Key::BigInt(key) => pass.push_bind_param_value_only::<BigInt, _>(key),
            Key::IntInt(first, second) => {
                pass.push_bind_param_value_only::<Integer, _>(first)?;
                pass.push_bind_param_value_only::<Integer, _>(second)
            }
        }
    }
}

/// Diesel finds the prepared statement by its text.
impl QueryId for Unlock {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// Releases all of these session-level locks, and fails with [`Marker::LockLost`] if one of them
/// was no longer held. If `process` is not the backend, it fails and releases none: they would be
/// another client's.
pub(crate) fn release_keys(keys: &[Key], mode: Mode, process: Option<i32>) -> String {
    let unlock = unlock_function(mode);
    let mut released = String::with_capacity(192);
    if let Some(process) = process {
        put!(
            released,
            "pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {process} AND "
        );
    }
    if let [key] = *keys {
        put!(released, "{unlock}({})", Arguments(key));
    } else {
        // A list and not a sum: a sum of many keys would be an expression too deep for the server's
        // stack.
        released.push_str("true OPERATOR(pg_catalog.=) ALL(ARRAY[");
        for (index, key) in keys.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            put!(released, "{comma}{unlock}({})", Arguments(*key));
        }
        released.push_str("])");
    }
    fail_unless(&released, Marker::LockLost.text())
}
