//! Judges the lease table: its columns and the rights on it, its sequence and the tokens in it, and
//! the right to read the timeline.

use super::{Diagnosis, Level, Server, citus};
use crate::database::{cell, identifier, rows};
use crate::failure::Result;
use crate::text::one_line;

/// The columns of the migration's table, ordered by name.
const COLUMNS: &str =
    "acquired_at,data,expires_at,grant_id,holder,is_kept,key,key_hash,pattern,token";

/// A bool that is true if there is a timeline that the role may read.
const TIMELINE: &str = "SELECT \
     COALESCE(has_function_privilege(to_regprocedure('pg_catalog.pg_current_wal_lsn()'), 'EXECUTE'::text), false) AND \
     COALESCE(has_function_privilege(to_regprocedure('pg_catalog.pg_walfile_name(pg_catalog.pg_lsn)'), 'EXECUTE'::text), false)";

impl Server<'_> {
    /// Checks that the table has what the migration creates, and that this role has the rights that
    /// the migration names.
    pub(super) async fn lease_table(&self, is_named: bool) -> Result<Diagnosis> {
        let (title, name) = ("lease_table", &self.lease_table);
        let problem = |message: String| Diagnosis::new(title, Level::Problem, message);
        let found = match rows(self.client, &question(name)).await {
            Ok(found) => found,
            // For example, this role may not use the schema.
            Err(failure) => return Ok(problem(format!("`{name}`: {failure}"))),
        };
        let text = |at: usize| cell(&found, at);
        let Some(columns) = text(0) else {
            let message = format!("`{name}` does not exist, so no program can lease");
            if !is_named {
                return Ok(Diagnosis::fine(title, message));
            }
            return Ok(problem(message).fix(format!(
                "Run the migration that `cargo advisory migration lease --table {name}` prints."
            )));
        };
        let has = |wanted: &str| columns.split(',').any(|column| column == wanted);
        if !COLUMNS.split(',').all(has) || text(5) != Some("1") {
            let message = format!(
                "`{name}` differs from what the migration creates: it has the columns {}, and a sequence with CACHE {}",
                one_line(columns),
                text(5).unwrap_or("missing")
            );
            return Ok(problem(message).fix(format!(
                "Compare it with what `cargo advisory migration lease --table {name}` prints."
            )));
        }
        if self.facts.citus.is_some()
            && let Some((kind, fix)) = citus::managed(self.client, name).await?
        {
            let message = format!("`{name}` is {kind}, which refuses every grant");
            return Ok(problem(message).fixes(fix));
        }
        let has = [1, 2, 3, 4, 6].map(|at| text(at) == Some("t"));
        let (role, in_sql) = (&self.facts.role, identifier(&self.facts.role));
        if has.iter().all(|has| *has) {
            let message = format!("`{name}` exists, and role `{role}` may use it");
            return Ok(Diagnosis::fine(title, message));
        }
        let (level, some) = if has[..4].contains(&true) {
            (Level::Problem, "some")
        } else {
            (Level::Advice, "none")
        };
        let message =
            format!("role `{role}` has {some} of the rights on `{name}` that leases need");
        Ok(Diagnosis::new(title, level, message).fixes([
            format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO {in_sql};"),
            format!("GRANT USAGE, UPDATE ON SEQUENCE {name}_token TO {in_sql};"),
        ]))
    }

    /// Compares the sequence with the tokens in the table.
    pub(super) async fn lease_sequence(&self) -> Result<Diagnosis> {
        let title = "lease_sequence";
        let fine = |message: &str| Ok(Diagnosis::fine(title, message));
        let name = &self.lease_table;
        let (schema, relation) = name.split_once('.').unwrap_or(("public", name));
        let catalog = rows(self.client, &catalog(schema, relation)).await?;
        let Some(row) = catalog.first() else {
            return fine("there is no lease table with a sequence");
        };
        let is = |at: usize| row.get(at) == Some("t");
        let schema = identifier(schema);
        let sequence = format!("{schema}.{}", identifier(&format!("{relation}_token")));
        let relation = format!("{schema}.{}", identifier(relation));
        let (role, in_sql) = (&self.facts.role, identifier(&self.facts.role));
        if is(0) {
            let message = format!(
                "`{sequence}` wraps or descends, so a later grant could get the smaller token"
            );
            let fix = format!("ALTER SEQUENCE {sequence} INCREMENT 1 NO CYCLE;");
            return Ok(Diagnosis::new(title, Level::Problem, message).fix(fix));
        }
        if !is(1) {
            let message = format!("role `{role}` may not read `{relation}` and `{sequence}`");
            return Ok(Diagnosis::new(title, Level::Unknown, message));
        }
        let compared = rows(self.client, &comparison(&relation, &sequence)).await?;
        if cell(&compared, 0) == Some("t") {
            let cell = |at: usize| cell(&compared, at).unwrap_or("none");
            let message = format!(
                "the last number of `{sequence}` is {}, and `{relation}` has the token {}: a key without a row could be granted a smaller \
                 token than before",
                cell(1),
                cell(2)
            );
            return Ok(Diagnosis::new(title, Level::Problem, message).fix(format!(
                "BEGIN; LOCK TABLE {relation} IN SHARE ROW EXCLUSIVE MODE; SELECT pg_catalog.setval('{sequence}', \
                 GREATEST(pg_catalog.pg_sequence_last_value('{sequence}'), pg_catalog.max(token))) FROM {relation}; COMMIT;"
            )));
        }
        let (message, fix) = if is(2) {
            (
                format!(
                    "`{sequence}` is owned by a column, so `TRUNCATE … RESTART IDENTITY` sets it back"
                ),
                format!("ALTER SEQUENCE {sequence} OWNED BY NONE;"),
            )
        } else if is(3) && !is(4) {
            (
                format!("role `{role}` could not move `{sequence}` past the tokens of the table"),
                format!("GRANT UPDATE ON SEQUENCE {sequence} TO {in_sql};"),
            )
        } else if is(3) && cell(&rows(self.client, TIMELINE).await?, 0) == Some("f") {
            (
                format!(
                    "role `{role}` may not ask for the server's timeline, or there is none: after a failover that loses writes, tokens could be granted \
                     twice"
                ),
                format!(
                    "GRANT EXECUTE ON FUNCTION pg_catalog.pg_current_wal_lsn(), pg_catalog.pg_walfile_name(pg_catalog.pg_lsn) TO {in_sql};"
                ),
            )
        } else {
            return fine("its numbers are above the tokens in the table");
        };
        Ok(Diagnosis::new(title, Level::Advice, message).fix(fix))
    }
}

/// A query for the columns of the table, four rights on it, the cache of the sequence, and a right
/// on that.
fn question(name: &str) -> String {
    let right = |right| format!("has_table_privilege(c.oid::oid, '{right}'::text)");
    let rights = ["SELECT", "INSERT", "UPDATE", "DELETE"]
        .map(right)
        .join(", ");
    format!(
        "SELECT (SELECT string_agg(a.attname::text, ',' ORDER BY a.attname::text) \
         FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid \
         AND a.attnum > 0 AND NOT a.attisdropped), {rights}, s.seqcache, \
         has_sequence_privilege(s.seqrelid, 'USAGE'::text) \
         FROM pg_catalog.pg_class AS c LEFT JOIN pg_catalog.pg_sequence AS s \
         ON s.seqrelid = to_regclass('{name}_token')::oid \
         WHERE c.oid = to_regclass('{name}')::oid"
    )
}

/// A query for bools: the sequence wraps or descends, the role may read sequence and table, a
/// column owns the sequence, and the role may draw from it, and move it. No row without a sequence.
fn catalog(schema: &str, table: &str) -> String {
    format!(
        "SELECT q.seqcycle OR q.seqincrement < 1, has_schema_privilege(n.oid, 'USAGE'::text) \
         AND has_table_privilege(t.oid, 'SELECT'::text) AND has_sequence_privilege(s.oid, 'USAGE'::text), \
         EXISTS (SELECT FROM pg_catalog.pg_depend AS d WHERE d.classid = 'pg_catalog.pg_class'::regclass \
         AND d.objid = s.oid AND d.deptype = ANY ('{{a,i}}') AND d.refobjsubid > 0), \
         has_sequence_privilege(s.oid, 'USAGE'::text), has_sequence_privilege(s.oid, 'UPDATE'::text) \
         FROM pg_catalog.pg_namespace AS n \
         JOIN pg_catalog.pg_class AS t ON t.relnamespace = n.oid AND t.relname = '{table}' \
         JOIN pg_catalog.pg_class AS s ON s.relnamespace = n.oid AND s.relname = '{table}_token' \
         JOIN pg_catalog.pg_sequence AS q ON q.seqrelid = s.oid WHERE n.nspname = '{schema}'"
    )
}

/// A query for a bool that is true if the sequence is below the largest token, the last number of
/// the sequence, and this token. It reads the sequence after the snapshot of the rows.
fn comparison(table: &str, sequence: &str) -> String {
    format!(
        "SELECT (largest <= last) IS FALSE OR last IS NULL AND largest IS NOT NULL, last, largest \
         FROM (SELECT max(token) AS largest, pg_sequence_last_value('{sequence}') AS last FROM {table}) AS compared"
    )
}
