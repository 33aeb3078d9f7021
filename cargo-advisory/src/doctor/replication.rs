//! Judges logical replication into this database, whose rows come from a server with its own locks.

use tokio_postgres::Client;

use super::{Diagnosis, Level};
use crate::database::rows;
use crate::failure::Result;
use crate::text::{joined, one_line, plural};

/// The tables that enabled subscriptions write. Those that this database also publishes come first.
const SUBSCRIBED: &str = "SELECT format('%I.%I', n.nspname, c.relname), \
     EXISTS (SELECT 1 FROM pg_catalog.pg_publication_tables AS p WHERE p.schemaname = n.nspname \
     AND p.tablename = c.relname) \
     FROM pg_catalog.pg_subscription AS s JOIN pg_catalog.pg_database AS d ON d.oid = s.subdbid \
     JOIN pg_catalog.pg_subscription_rel AS r ON r.srsubid = s.oid \
     JOIN pg_catalog.pg_class AS c ON c.oid = r.srrelid \
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
     WHERE s.subenabled AND d.datname = current_database() ORDER BY 2 DESC, 1";

const NAMED: usize = 3;

pub(super) async fn judge(client: &Client) -> Result<Diagnosis> {
    let name = "logical_replication";
    let found = match rows(client, SUBSCRIBED).await {
        Ok(found) => found,
        // For example, an engine lacks these catalogs.
        Err(failure) => {
            let message = format!("cannot be determined: {failure}");
            return Ok(Diagnosis::new(name, Level::Unknown, message));
        }
    };
    let tables = |is_published: &str| -> Vec<String> {
        let rows = found.iter().filter(|row| row.get(1) == Some(is_published));
        rows.map(|row| one_line(row.get(0).unwrap_or_default()))
            .collect()
    };
    let (both_ways, received) = (tables("t"), tables("f"));
    Ok(if !both_ways.is_empty() {
        let message = format!(
            "{} received from another server and published, two ways or passed on: a lock on one server excludes nobody on another",
            list(&both_ways)
        );
        Diagnosis::new(name, Level::Problem, message)
            .fix("Let one server alone write these tables, and take their locks and leases there.")
    } else if !received.is_empty() {
        let message = format!(
            "{} received from another server, whose sessions a lock here does not exclude",
            list(&received)
        );
        Diagnosis::new(name, Level::Advice, message)
            .fix("Write these tables, and take their locks and leases, on the server that publishes them.")
    } else {
        let message = "this database has no enabled subscription of PostgreSQL's own";
        Diagnosis::fine(name, message)
    })
}

/// `2 tables (public.booking, public.room) are`
fn list(tables: &[String]) -> String {
    let more = if tables.len() > NAMED { ", …" } else { "" };
    let names = joined(tables.iter().take(NAMED), ", ");
    let is = if tables.len() == 1 { "is" } else { "are" };
    format!("{} ({names}{more}) {is}", plural(tables.len(), "table"))
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn three_tables_are_named_and_all_are_counted() {
        for (count, expected) in [
            (1, "1 table (t0) is"),
            (3, "3 tables (t0, t1, t2) are"),
            (4, "4 tables (t0, t1, t2, …) are"),
        ] {
            let tables: Vec<String> = (0..count).map(|at| format!("t{at}")).collect();
            assert_eq!(list(&tables), expected);
        }
    }
}
