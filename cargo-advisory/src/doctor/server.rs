//! Judges the server: its version, a standby, logical replication, and the room in its lock table.

use advisory_pattern::Record;
use tokio_postgres::SimpleQueryRow;

use super::facts::Facts;
use super::{Diagnosis, Level, Server, alter_system};
use crate::database::{cell, rows};
use crate::failure::Result;
use crate::text::{joined, one_line, plural};

/// The number of locks in the shared table, without those on the fast path and predicate locks.
const USED: &str = "SELECT count(*) FROM (SELECT DISTINCT l.locktype, l.database, l.relation, l.page, l.tuple, l.virtualxid, \
     l.transactionid, l.classid, l.objid, l.objsubid FROM pg_catalog.pg_locks AS l \
     WHERE NOT l.fastpath AND l.mode <> 'SIReadLock') AS distinct_locks";

/// The sessions with the most of these locks, and the number of their advisory locks.
const LARGEST: &str = "WITH prepared AS (SELECT x.virtualtransaction, p.gid, p.database FROM pg_catalog.pg_locks AS x \
     JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction::text = \
     x.transactionid::text WHERE x.pid IS NULL AND x.locktype = 'transactionid') \
     SELECT COALESCE(l.pid::text, format('prepared transaction %L', p.gid)), \
     a.application_name, COALESCE(d.datname, p.database), \
     count(*), count(*) FILTER (WHERE l.locktype = 'advisory') \
     FROM pg_catalog.pg_locks AS l LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid \
     LEFT JOIN pg_catalog.pg_database AS d ON d.oid = a.datid \
     LEFT JOIN prepared AS p ON l.pid IS NULL AND p.virtualtransaction = l.virtualtransaction \
     WHERE NOT l.fastpath AND l.mode <> 'SIReadLock' \
     GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1 LIMIT 3";

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

/// The oldest version that this project supports.
const OLDEST: u32 = 15;

/// Checks that the server still gets fixes. A major version has its last release in the second week
/// of November, five years after its first.
pub(super) fn version(facts: &Facts) -> Diagnosis {
    let name = "server_version";
    let (major, version) = (facts.version_number / 10_000, &facts.version);
    // Version 10 was released in 2017, and one major version each year since.
    let end = major + 2012;
    if facts.date >= end * 10_000 + 1115 {
        let message = format!("{version}: no fixes since November {end}");
        return Diagnosis::new(name, Level::Problem, message).fix(format!(
            "Upgrade the server to PostgreSQL {} or later.",
            (major + 1).max(OLDEST)
        ));
    }
    Diagnosis::fine(name, format!("{version}: fixes until November {end}"))
}

pub(super) fn standby(facts: &Facts) -> Diagnosis {
    let name = "standby";
    if facts.is_standby {
        let message =
            "a standby: its locks exclude nobody on the primary, and it cannot grant leases";
        return Diagnosis::new(name, Level::Problem, message)
            .fix("Connect to the primary: with `target_session_attrs=read-write` in the URL.");
    }
    Diagnosis::fine(name, "no: this is the primary")
}

/// The number of locks for which the server reserves memory. It has room for a few more.
fn capacity(facts: &Facts) -> u64 {
    let autovacuum = match facts.setting("autovacuum_worker_slots") {
        Some(_) => facts.number("autovacuum_worker_slots"),
        None => facts.number("autovacuum_max_workers"),
    };
    let processes = facts.number("max_connections")
        + autovacuum
        + 1
        + facts.number("max_worker_processes")
        + facts.number("max_wal_senders")
        + facts.number("max_prepared_transactions");
    facts.number("max_locks_per_transaction") * processes
}

/// The number of locks that a slice takes at most by default. An inventory does not have
/// `max_keys`.
const MANY: u64 = 64;

/// The call that can take the most locks, after their number; `None` without a lock.
pub(super) fn most_keys(sites: &[Record]) -> Option<(u64, &str)> {
    let locks = sites.iter().filter(|site| site.scope != "lease");
    let most = locks.map(|site| {
        let keys = site.written.iter();
        let keys = keys.map(|key| if key.contains("*>") { MANY } else { 1 });
        (keys.sum(), &*site.function)
    });
    most.max()
}

impl Server<'_> {
    /// Judges logical replication into this database, whose rows come from a server with its own locks.
    pub(super) async fn logical_replication(&self) -> Diagnosis {
        let name = "logical_replication";
        let found = match rows(self.client, SUBSCRIBED).await {
            Ok(found) => found,
            // For example, an engine lacks these catalogs.
            Err(failure) => {
                let message = format!("cannot be determined: {failure}");
                return Diagnosis::new(name, Level::Unknown, message);
            }
        };
        let tables = |is_published: &str| -> Vec<String> {
            let rows = found.iter().filter(|row| row.get(1) == Some(is_published));
            rows.map(|row| one_line(row.get(0).unwrap_or_default()))
                .collect()
        };
        let (both_ways, received) = (tables("t"), tables("f"));
        if !both_ways.is_empty() {
            let message = format!(
                "{} received from another server and published, two ways or passed on: a lock on one server excludes nobody on another",
                list(&both_ways)
            );
            Diagnosis::new(name, Level::Problem, message).fix(
                "Let one server alone write these tables, and take their locks and leases there.",
            )
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
        }
    }

    pub(super) async fn lock_table(&self, most_keys: Option<(u64, &str)>) -> Result<Diagnosis> {
        let name = "lock_table";
        let capacity = capacity(&self.facts);
        let used = rows(self.client, USED).await?;
        let used = cell(&used, 0).and_then(|used| used.parse().ok());
        let used: u64 = used.unwrap_or_default();
        let left = capacity.saturating_sub(used);
        let mut message = format!(
            "{used} of {capacity} locks are in use, one for each key of a call; all sessions of the server share the remaining {left}"
        );
        let keys = most_keys.filter(|(keys, _)| *keys > left);
        if let Some((keys, function)) = keys {
            message = format!("{message}, and one call of `{function}` can take {keys}");
        }
        let level = match used.saturating_mul(100) / capacity.max(1) {
            0..50 if keys.is_none() => return Ok(Diagnosis::fine(name, message)),
            50..80 if keys.is_none() => Level::Advice,
            _ => Level::Problem,
        };
        let largest = joined(rows(self.client, LARGEST).await?.iter().map(holder), "; ");
        let message = format!(
            "{message}; without them locks fail with 53200, and no session can be opened. The largest holders: {largest}"
        );
        Ok(Diagnosis::new(name, level, message)
            .fix(twice_the_locks(&self.facts))
            .fix("Then restart the server."))
    }
}

/// `19914 migrator in shop: 7700, of them 7698 advisory`
fn holder(row: &SimpleQueryRow) -> String {
    let text = |at: usize| one_line(row.get(at).unwrap_or_default());
    let with = |word: &str, at: usize| match text(at) {
        empty if empty.is_empty() => empty,
        text => format!(" {word}{text}"),
    };
    let who = [text(0), with("", 1), with("in ", 2)].concat();
    format!("{who}: {}, of them {} advisory", text(3), text(4))
}

fn twice_the_locks(facts: &Facts) -> String {
    let setting = "max_locks_per_transaction";
    alter_system(setting, &(facts.number(setting) * 2).to_string())
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
    use super::{capacity, list, twice_the_locks, version};
    use crate::doctor::Level;
    use crate::doctor::facts::Facts;

    /// The dates of <https://www.postgresql.org/support/versioning/>.
    #[test]
    fn a_version_is_at_its_end_after_its_last_release() {
        use Level::{Fine, Problem};
        for (version_number, date, level) in [
            (140_023, 20_261_114, Fine),
            (140_023, 20_261_115, Problem),
            (150_018, 20_261_122, Fine),
            (150_018, 20_271_115, Problem),
            (180_004, 20_301_114, Fine),
            (130_023, 20_251_201, Problem),
        ] {
            let mut facts = Facts::default();
            (facts.version_number, facts.date) = (version_number, date);
            assert!(version(&facts).level == level, "{version_number} {date}");
        }
    }

    /// PostgreSQL's `NLOCKENTS`; version 18 has slots for workers that are not started.
    #[test]
    fn the_lock_table_has_room_for_all_processes() {
        let mut settings = vec![
            ("max_locks_per_transaction", "64", None),
            ("max_connections", "100", None),
            ("autovacuum_max_workers", "3", None),
            ("max_worker_processes", "8", None),
            ("max_wal_senders", "10", None),
            ("max_prepared_transactions", "5", None),
        ];
        assert_eq!(capacity(&Facts::with(&settings)), 64 * 127);
        let fix = twice_the_locks(&Facts::with(&settings));
        assert_eq!(fix, "ALTER SYSTEM SET max_locks_per_transaction = 128;");
        settings.push(("autovacuum_worker_slots", "16", None));
        assert_eq!(capacity(&Facts::with(&settings)), 64 * 140);
    }

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
