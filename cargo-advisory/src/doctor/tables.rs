//! The lease table and the job tables as the server keeps them: row-level security, and whether
//! they survive a crash.

use tokio_postgres::{Client, SimpleQueryRow};

use super::facts::Facts;
use super::{Finding, Level};
use crate::database::{identifier, rows};
use crate::failure::Failure;
use crate::guard::literal;
use crate::job_table::JobTable;
use crate::screen::one_line;

/// The tables that there are, with what is known of each.
pub(super) struct Tables {
    known: Vec<Known>,
    /// Why job tables are not among them.
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
    ) -> Result<Self, Failure> {
        let mut names = vec![lease_table.to_owned()];
        names.extend(jobs.iter().map(JobTable::quoted));
        let mut known = Vec::new();
        for name in names {
            // Without a right to the schema, another finding says so.
            let Ok(found) = rows(client, &question(&name)).await else {
                continue;
            };
            known.extend(found.first().map(|row| Known::of(&name, row)));
        }
        Ok(Self { known, unseen })
    }

    /// A role that policies apply to reads no rows, silently.
    pub(super) fn row_security(&self, facts: &Facts) -> Finding {
        let name = "row_security";
        let role = identifier(&facts.role);
        let filtered = || self.known.iter().filter(|table| table.is_filtered);
        let names: Vec<String> = filtered()
            .map(|table| format!("`{}`", one_line(&table.name)))
            .collect();
        if names.is_empty() {
            return self.fine(name, "no policy hides rows of these tables from this role");
        }
        let message = format!(
            "role `{}` sees only the rows of {} that a policy shows it, and no error: a lease that it does not see is not held for it, \
             and a job is never claimed",
            facts.role,
            names.join(", ")
        );
        let finding = Finding::new(name, Level::Problem, message);
        let fix = filtered().map(|table| {
            format!(
                "CREATE POLICY advisory ON {} FOR ALL TO {role} USING (true) WITH CHECK (true);",
                table.name
            )
        });
        fix.fold(finding, Finding::fix)
    }

    /// An unlogged table is empty after a crash.
    pub(super) fn unlogged(&self) -> Finding {
        let name = "unlogged_tables";
        let unlogged = || self.known.iter().filter(|table| table.is_unlogged);
        let names: Vec<String> = unlogged()
            .map(|table| format!("`{}`", one_line(&table.name)))
            .collect();
        if names.is_empty() {
            return self.fine(name, "these tables keep their rows after a crash");
        }
        let message = format!(
            "{} UNLOGGED, so empty after a crash of the server and on a standby: every lease is free while its holder still works, and \
             jobs are gone",
            match names.len() {
                1 => format!("{} is", names[0]),
                _ => format!("{} are", names.join(", ")),
            }
        );
        let finding = Finding::new(name, Level::Problem, message);
        let fix = unlogged().map(|table| format!("ALTER TABLE {} SET LOGGED;", table.name));
        fix.fold(finding, Finding::fix)
    }

    /// That nothing is wrong with the tables that were looked at, and which these are.
    fn fine(&self, name: &'static str, what: &str) -> Finding {
        let names: Vec<String> = self
            .known
            .iter()
            .map(|table| format!("`{}`", one_line(&table.name)))
            .collect();
        let looked = if names.is_empty() {
            "there is no lease table".to_owned()
        } else {
            format!("{}: {what}", names.join(", "))
        };
        match &self.unseen {
            Some(why) => Finding::new(name, Level::Fine, format!("{looked}; not looked at: {why}")),
            None => Finding::new(name, Level::Fine, looked),
        }
    }
}

impl Known {
    fn of(name: &str, row: &SimpleQueryRow) -> Self {
        let is = |at: usize| row.get(at) == Some("t");
        Self {
            name: name.to_owned(),
            is_filtered: is(0),
            is_unlogged: is(1),
        }
    }
}

/// Asks whether policies hide rows from this role, which one for all rows does not, and whether the
/// table, or a partition, is unlogged.
fn question(name: &str) -> String {
    format!(
        "SELECT pg_catalog.row_security_active(c.oid) AND (NOT EXISTS (SELECT 1 FROM pg_catalog.pg_policy AS p \
         WHERE p.polrelid OPERATOR(pg_catalog.=) c.oid AND p.polpermissive AND p.polcmd OPERATOR(pg_catalog.=) '*' \
         AND pg_catalog.pg_get_expr(p.polqual, p.polrelid) OPERATOR(pg_catalog.=) 'true' AND EXISTS (SELECT 1 \
         FROM pg_catalog.unnest(p.polroles) AS r (oid) WHERE r.oid OPERATOR(pg_catalog.=) CAST(0 AS pg_catalog.oid) \
         OR pg_catalog.pg_has_role(r.oid, CAST('USAGE' AS pg_catalog.text)))) OR EXISTS (SELECT 1 FROM pg_catalog.pg_policy AS p \
         WHERE p.polrelid OPERATOR(pg_catalog.=) c.oid AND NOT p.polpermissive)), c.relpersistence OPERATOR(pg_catalog.=) 'u' OR EXISTS (SELECT 1 \
         FROM pg_catalog.pg_partition_tree(CAST(c.oid AS pg_catalog.regclass)) AS t JOIN pg_catalog.pg_class AS p \
         ON p.oid OPERATOR(pg_catalog.=) CAST(t.relid AS pg_catalog.oid) WHERE p.relpersistence OPERATOR(pg_catalog.=) 'u') \
         FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) CAST(pg_catalog.to_regclass({}) AS pg_catalog.oid)",
        literal(name)
    )
}
