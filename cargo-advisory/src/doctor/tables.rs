//! Judges the lease table and the job tables: row-level security, and unlogged tables.

use super::{Diagnosis, Level, Server};
use crate::database::{identifier, literal, rows};
use crate::job_table::JobTable;
use crate::text::in_backticks;

impl Server<'_> {
    /// Judges which rows this role sees, and which rows a crash leaves. A role to which policies
    /// apply reads no rows, and gets no error. An unlogged table is empty after a crash.
    pub(super) async fn rows_of_tables(&self) -> [Diagnosis; 2] {
        let (mut all, mut filtered, mut unlogged) = (Vec::new(), Vec::new(), Vec::new());
        let jobs = self.jobs.iter().map(JobTable::quoted);
        for table in [self.lease_table.clone()].into_iter().chain(jobs) {
            // Another diagnosis reports a missing right to the schema.
            let found = rows(self.client, &question(&table)).await;
            let Some(row) = found.unwrap_or_default().pop() else {
                continue;
            };
            if row.get(0) == Some("t") {
                filtered.push(table.clone());
            }
            if row.get(1) == Some("t") {
                unlogged.push(table.clone());
            }
            all.push(table);
        }
        let (names, unseen) = (in_backticks(&all), self.unseen.iter());
        let unseen = unseen.map(|why| format!("; not looked at: {why}"));
        let unseen: String = unseen.collect();
        let fine = |name, what: &str| {
            let said = match &*names {
                "" => "there is no lease table".to_owned(),
                names => format!("{names}: {what}"),
            };
            Diagnosis::fine(name, said + &unseen)
        };
        let role = identifier(&self.facts.role);
        let row_security = if filtered.is_empty() {
            let what = "no policy hides rows of these tables from this role";
            fine("row_security", what)
        } else {
            let message = format!(
                "role `{}` sees only the rows of {} that a policy shows it, and no error: a lease that it does not see is not held for it, \
                 and a job is never claimed",
                self.facts.role,
                in_backticks(&filtered)
            );
            let policy = |table| {
                format!(
                    "CREATE POLICY advisory ON {table} FOR ALL TO {role} USING (true) WITH CHECK (true);"
                )
            };
            let fixes = filtered.iter().map(policy);
            Diagnosis::new("row_security", Level::Problem, message).fixes(fixes)
        };
        let unlogged_tables = if unlogged.is_empty() {
            let what = "these tables keep their rows after a crash";
            fine("unlogged_tables", what)
        } else {
            let message = format!(
                "{} {} UNLOGGED, so empty after a crash of the server and on a standby: every lease is free while its holder still works, and \
                 jobs are gone",
                in_backticks(&unlogged),
                if unlogged.len() == 1 { "is" } else { "are" }
            );
            let fix = |table| format!("ALTER TABLE {table} SET LOGGED;");
            let fixes = unlogged.iter().map(fix);
            Diagnosis::new("unlogged_tables", Level::Problem, message).fixes(fixes)
        };
        [row_security, unlogged_tables]
    }
}

/// A query for two bools: policies hide rows from this role, and the table or a partition is
/// unlogged. A policy that shows all rows hides none.
fn question(name: &str) -> String {
    format!(
        "SELECT row_security_active(c.oid) AND (NOT EXISTS (SELECT 1 FROM pg_catalog.pg_policy AS p \
         WHERE p.polrelid = c.oid AND p.polpermissive AND p.polcmd = '*' \
         AND pg_get_expr(p.polqual, p.polrelid) = 'true' AND EXISTS (SELECT 1 \
         FROM unnest(p.polroles) AS r (oid) WHERE r.oid = 0::oid \
         OR pg_has_role(r.oid, 'USAGE'::text))) OR EXISTS (SELECT 1 FROM pg_catalog.pg_policy AS p \
         WHERE p.polrelid = c.oid AND NOT p.polpermissive)), c.relpersistence = 'u' OR EXISTS (SELECT 1 \
         FROM pg_partition_tree(c.oid::regclass) AS t JOIN pg_catalog.pg_class AS p \
         ON p.oid = t.relid::oid WHERE p.relpersistence = 'u') \
         FROM pg_catalog.pg_class AS c WHERE c.oid = to_regclass({})::oid",
        literal(name)
    )
}
