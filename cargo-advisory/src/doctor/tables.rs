//! Judges the lease table and the job tables: row-level security, and unlogged tables.

use tokio_postgres::Client;

use super::facts::Facts;
use super::{Diagnosis, Level};
use crate::database::{cell, identifier, rows};
use crate::guard::literal;
use crate::job_table::JobTable;
use crate::text::in_backticks;

/// The tables that exist, with what is known of each.
pub(super) struct Tables {
    known: Vec<Known>,
    /// The reason why job tables are not among them.
    unseen: Option<String>,
}

struct Known {
    name: String,
    /// True if this role sees only the rows that a policy shows it.
    is_filtered: bool,
    is_unlogged: bool,
}

impl Tables {
    /// Looks at the lease table, by its name, and at the job tables.
    pub(super) async fn look(
        client: &Client,
        lease_table: &str,
        jobs: &[JobTable],
        unseen: Option<String>,
    ) -> Self {
        let mut names = vec![lease_table.to_owned()];
        names.extend(jobs.iter().map(JobTable::quoted));
        let mut known = Vec::new();
        for name in names {
            // Another diagnosis reports a missing right to the schema.
            let found = rows(client, &question(&name)).await.unwrap_or_default();
            let is = |at: usize| cell(&found, at) == Some("t");
            if !found.is_empty() {
                known.push(Known {
                    is_filtered: is(0),
                    is_unlogged: is(1),
                    name,
                });
            }
        }
        Self { known, unseen }
    }

    /// A role to which policies apply reads no rows, and gets no error.
    pub(super) fn row_security(&self, facts: &Facts) -> Diagnosis {
        let (name, role) = ("row_security", identifier(&facts.role));
        let filtered: Vec<&Known> = self.known.iter().filter(|it| it.is_filtered).collect();
        if filtered.is_empty() {
            return self.fine(name, "no policy hides rows of these tables from this role");
        }
        let message = format!(
            "role `{}` sees only the rows of {} that a policy shows it, and no error: a lease that it does not see is not held for it, \
             and a job is never claimed",
            facts.role,
            in_backticks(filtered.iter().map(|table| &table.name))
        );
        Diagnosis::new(name, Level::Problem, message).fixes(filtered.iter().map(|table| {
            format!(
                "CREATE POLICY advisory ON {} FOR ALL TO {role} USING (true) WITH CHECK (true);",
                table.name
            )
        }))
    }

    /// An unlogged table is empty after a crash.
    pub(super) fn unlogged(&self) -> Diagnosis {
        let name = "unlogged_tables";
        let unlogged: Vec<&Known> = self.known.iter().filter(|it| it.is_unlogged).collect();
        if unlogged.is_empty() {
            return self.fine(name, "these tables keep their rows after a crash");
        }
        let message = format!(
            "{} {} UNLOGGED, so empty after a crash of the server and on a standby: every lease is free while its holder still works, and \
             jobs are gone",
            in_backticks(unlogged.iter().map(|table| &table.name)),
            if unlogged.len() == 1 { "is" } else { "are" }
        );
        let fix = |table: &&Known| format!("ALTER TABLE {} SET LOGGED;", table.name);
        Diagnosis::new(name, Level::Problem, message).fixes(unlogged.iter().map(fix))
    }

    /// The answer if nothing is wrong, with the names of the tables.
    fn fine(&self, name: &'static str, what: &str) -> Diagnosis {
        let mut message = match in_backticks(self.known.iter().map(|table| &table.name)) {
            none if none.is_empty() => "there is no lease table".to_owned(),
            names => format!("{names}: {what}"),
        };
        if let Some(why) = &self.unseen {
            message = format!("{message}; not looked at: {why}");
        }
        Diagnosis::fine(name, message)
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
