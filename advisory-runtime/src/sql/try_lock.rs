//! A try for one key in a transaction, as one query: it takes the key or changes nothing. A call
//! sends it after its `BEGIN`; in an open transaction it needs no savepoint.

#[cfg(feature = "postgres")]
use super::Arguments;
use super::{Scope, try_function};
use crate::{Key, Mode, Request};
use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};

/// Takes the key for the open transaction. The answer is a text of no other query, since with a
/// pooler that does not track prepared statements, another client's statement can have the name of
/// this one. Above READ COMMITTED, where the transaction's snapshot can be older than the lock, the
/// answer is NULL, and nothing is taken.
#[derive(Clone, Copy, Debug)]
pub struct TryLock {
    key: Key,
    mode: Mode,
}

const START: &str = "SELECT CASE WHEN pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed' \
     THEN CASE WHEN ";

/// After the arguments of the function.
const fn end(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => ") THEN 'advisory:exclusive' ELSE 'advisory:held' END END",
        Mode::Shared => ") THEN 'advisory:shared' ELSE 'advisory:held' END END",
    }
}

impl TryLock {
    /// `None` if a miss would need a rollback to a savepoint.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        let has_only_keys =
            request.permits.is_empty() && request.max_hold.is_none() && request.at.is_none();
        match *request.keys {
            [key] if has_only_keys => Some(Self {
                key,
                mode: request.mode,
            }),
            _ => None,
        }
    }

    /// Returns whether the query took the key; `None` if it did not try.
    pub(crate) fn is_taken(self, answer: Option<&str>) -> QueryResult<Option<bool>> {
        match (answer, self.mode) {
            (None, _) => Ok(None),
            (Some("advisory:exclusive"), Mode::Exclusive)
            | (Some("advisory:shared"), Mode::Shared) => Ok(Some(true)),
            (Some("advisory:held"), _) => Ok(Some(false)),
            (Some(_), _) => Err(other_statement()),
        }
    }

    /// The query with the key as text, which Diesel prepares each time, without a name. A blocking
    /// connection does not show a pooler, and numbers its names from zero: with a pooler that does
    /// not track them, a name could be another client's.
    #[cfg(feature = "postgres")]
    pub(crate) fn text(self) -> String {
        let function = try_function(Scope::Xact, self.mode);
        format!(
            "{START}{function}({}{}",
            Arguments(self.key),
            end(self.mode)
        )
    }
}

pub(crate) fn other_statement() -> DieselError {
    let other = "another prepared statement answered, as behind a pooler that does not track them";
    DieselError::DeserializationError(other.into())
}

impl QueryFragment<Pg> for TryLock {
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        pass.push_sql(START);
        pass.push_sql(try_function(Scope::Xact, self.mode));
        pass.push_sql("(");
        match &self.key {
            Key::BigInt(key) => pass.push_bind_param::<BigInt, _>(key)?,
            Key::IntInt(first, second) => {
                pass.push_bind_param::<Integer, _>(first)?;
                pass.push_sql(",");
                pass.push_bind_param::<Integer, _>(second)?;
            }
        }
        pass.push_sql(end(self.mode));
        Ok(())
    }
}

/// Diesel finds the prepared statement by its text.
impl QueryId for TryLock {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for TryLock {
    type SqlType = Nullable<Text>;
}
