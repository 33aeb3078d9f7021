//! How a statement on the lease table reaches the server and its answer comes back.
//!
//! As a statement that Diesel prepares once for each connection: one round trip. Behind a pooler that tracks no prepared statements
//! it is sent as plain text, its values as numbers and hexadecimal digits, and says its answer in the text of an error.

use super::answer::Channel;
use super::sql::{Answer, HEARD, said, said_inside};
use crate::driver::depth;
use crate::sql::probe::SAID;
use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::fmt::Write;

/// One value of a statement.
#[derive(Clone, Debug)]
pub(super) enum Value<'v> {
    Hash([u8; 32]),
    Number(i64),
    Text(&'v str),
    NoText,
}

/// A statement, its values, and how it answers where nothing but an error's text comes back.
pub(super) struct Statement<'s, const N: usize> {
    pub(super) text: &'s str,
    pub(super) values: [Value<'s>; N],
    pub(super) answer: Answer,
    /// What says it after a commit.
    pub(super) outcome: &'s str,
}

impl<const N: usize> Statement<'_, N> {
    /// Each row's text.
    pub(super) async fn rows(
        self,
        conn: &mut AsyncPgConnection,
        channel: Channel,
    ) -> QueryResult<Vec<String>> {
        match channel {
            Channel::Prepared => {
                let rows: Vec<Option<String>> = RunQueryDsl::load(self, conn).await?;
                Ok(rows.into_iter().flatten().collect())
            }
            Channel::Said => self.say(conn).await,
        }
    }

    async fn say(&self, conn: &mut AsyncPgConnection) -> QueryResult<Vec<String>> {
        let is_inside = !matches!(depth(conn), Ok(None));
        let say = if is_inside { said_inside } else { said };
        let message = say(
            &self.inlined(self.text),
            self.answer,
            &self.inlined(self.outcome),
        );
        let Err(error) = conn.batch_execute(&message).await else {
            // Only a refusal is said.
            return Ok(vec![super::sql::HELD.to_owned()]);
        };
        let DieselError::DatabaseError(_, answer) = &error else {
            return Err(error);
        };
        let said = answer
            .message()
            .split_once(SAID)
            .and_then(|(_, rest)| rest.split_once('.'));
        let Some((said, _)) = said else {
            return Err(error);
        };
        if is_inside {
            conn.batch_execute(HEARD).await?;
        }
        let rows = said.split(',').filter(|row| !row.is_empty());
        Ok(rows.map(str::to_owned).collect())
    }

    /// The text with its values in place: numbers and hexadecimal digits, made here.
    fn inlined(&self, text: &str) -> String {
        let mut inlined = text.to_owned();
        // From the last, so that `$1` is not found in `$10`.
        for (index, value) in self.values.iter().enumerate().rev() {
            inlined = inlined.replace(&format!("${}", index + 1), &literal(value));
        }
        inlined
    }
}

fn literal(value: &Value<'_>) -> String {
    match value {
        Value::Hash(hash) => format!("pg_catalog.decode('{}','hex')", hex(hash)),
        Value::Number(number) => format!("'{number}'"),
        Value::Text(text) => format!(
            "pg_catalog.convert_from(pg_catalog.decode('{}','hex'),'UTF8')",
            hex(text.as_bytes())
        ),
        Value::NoText => "NULL".to_owned(),
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result = write!(digits, "{byte:02x}");
    }
    digits
}

/// Adds a value where the text stands, or behind a text that has its number already.
pub(super) fn push_value<'b>(
    out: &mut AstPass<'_, 'b, Pg>,
    value: &'b Value<'_>,
    is_numbered: bool,
) -> QueryResult<()> {
    macro_rules! push {
        ($sql_type:ty, $rust:ty, $value:expr) => {
            if is_numbered {
                out.push_bind_param_value_only::<$sql_type, $rust>($value)
            } else {
                out.push_bind_param::<$sql_type, $rust>($value)
            }
        };
    }
    match value {
        Value::Hash(hash) => push!(Binary, [u8], hash.as_slice()),
        Value::Number(number) => push!(BigInt, i64, number),
        Value::Text(text) => push!(Text, str, text),
        Value::NoText => push!(Nullable<Text>, Option<String>, &None),
    }
}

impl<const N: usize> QueryId for Statement<'_, N> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<const N: usize> Query for Statement<'_, N> {
    type SqlType = Nullable<Text>;
}

impl<const N: usize> QueryFragment<Pg> for Statement<'_, N> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(self.text);
        self.values
            .iter()
            .try_for_each(|value| push_value(&mut out, value, true))
    }
}
