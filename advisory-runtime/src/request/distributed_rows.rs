//! The rows that choose the node of a lock, in a cluster that distributes the rows of a table.

use crate::key::{KeyPart, raw_text};
use diesel::pg::{Pg, PgQueryBuilder};
use diesel::query_builder::{QueryBuilder, QueryFragment};
use diesel::{Column, QueryResult, QuerySource};
use std::fmt::{self, Write as _};

/// The table, and a condition that sends a statement to the node of the rows but finds no row
/// there, whatever the table's indexes are: no row has this `ctid`.
pub(super) fn distributed_rows<C, V>(_: C, value: &V) -> Box<str>
where
    C: Column<Table: Default>,
    <C::Table as QuerySource>::FromClause: QueryFragment<Pg>,
    V: KeyPart,
{
    let mut sql = PgQueryBuilder::default();
    let pushed = push::<C>(&mut sql, &literal(&raw_text(value)));
    // Does not fail: it binds no values.
    let sql = pushed.map_or_else(|error| format!("-- {error}"), |()| sql.finish());
    sql.into()
}

fn push<C>(sql: &mut PgQueryBuilder, value: &str) -> QueryResult<()>
where
    C: Column<Table: Default>,
    <C::Table as QuerySource>::FromClause: QueryFragment<Pg>,
{
    C::Table::default().from_clause().to_sql(sql, &Pg)?;
    sql.push_sql(" WHERE ");
    sql.push_identifier(C::NAME)?;
    sql.push_sql(" OPERATOR(pg_catalog.=) ");
    sql.push_sql(value);
    sql.push_sql(" AND ctid OPERATOR(pg_catalog.=) '(0,0)'");
    Ok(())
}

/// A literal of the text that does not depend on `standard_conforming_strings`, safe in a comment.
fn literal(text: &str) -> String {
    let mut literal = String::from("E'");
    for letter in text.chars() {
        if letter.is_ascii_alphanumeric() || letter == '-' {
            literal.push(letter);
        } else {
            // Writing to a `String` cannot fail.
            let _: fmt::Result = write!(literal, "\\U{:08X}", u32::from(letter));
        }
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::distributed_rows;

    diesel::table! {
        shop.tenant (id) {
            id -> Text,
            #[sql_name = "Is \"big\""]
            is_big -> Bool,
        }
    }

    #[test]
    fn values_and_names_are_escaped() {
        let rows = |value: &str| distributed_rows(tenant::id, &value).to_string();
        for (value, wanted) in [
            ("nl-7", "E'nl-7'"),
            ("a'b", r"E'a\U00000027b'"),
            ("*/;", r"E'\U0000002A\U0000002F\U0000003B'"),
            ("\\é", r"E'\U0000005C\U000000E9'"),
        ] {
            let wanted = format!(
                "\"shop\".\"tenant\" WHERE \"id\" OPERATOR(pg_catalog.=) {wanted} AND ctid OPERATOR(pg_catalog.=) '(0,0)'"
            );
            assert_eq!(rows(value), wanted);
        }
        let rows = distributed_rows(tenant::is_big, &true);
        assert!(rows.contains(r#" WHERE "Is ""big""" OPERATOR"#), "{rows}");
    }
}
