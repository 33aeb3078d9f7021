//! Judges sessions: those that this role sees, those that hold a lock while idle, and the oldest
//! snapshot.

use std::collections::BTreeSet;
use std::time::Duration;

use super::facts::Facts;
use super::{Diagnosis, Level, RELOAD, Server, alter_system, grant_monitor};
use crate::database::{cell, literal, rows};
use crate::duration::short;
use crate::failure::Result;
use crate::text::{joined, one_line, plural};

pub(super) fn live_view(facts: &Facts) -> Diagnosis {
    let (name, role) = ("live_view", &facts.role);
    if facts.sees_all {
        let message = format!(
            "role `{role}` sees what other roles' sessions do, so `cargo advisory locks` shows everything"
        );
        return Diagnosis::fine(name, message);
    }
    let message = format!(
        "role `{role}` sees neither what other roles' sessions do nor the lock names in their queries"
    );
    Diagnosis::new(name, Level::Advice, message).fix(grant_monitor(facts))
}

/// Sessions that are idle in a transaction and hold an advisory lock in this database, and prepared
/// transactions that hold one. A lock with another `objsubid` than 1 and 2 belongs to an extension,
/// such as Citus.
const IDLE: &str = "WITH held AS (SELECT DISTINCT l.pid, l.virtualtransaction FROM pg_catalog.pg_locks AS l \
     WHERE l.locktype = 'advisory' AND l.objsubid <= 2::int2 \
     AND l.granted AND l.database = \
     (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())) \
     SELECT a.pid::text, a.application_name, CAST(date_part('epoch', \
     clock_timestamp() - a.state_change) AS int8) \
     FROM held AS h JOIN pg_catalog.pg_stat_activity AS a ON a.pid = h.pid \
     WHERE a.state = ANY ('{idle in transaction,idle in transaction (aborted)}') \
     UNION ALL SELECT NULL, p.gid, CAST(date_part('epoch', \
     clock_timestamp() - p.prepared) AS int8) \
     FROM held AS h JOIN pg_catalog.pg_locks AS x ON h.pid IS NULL AND x.pid IS NULL \
     AND x.locktype = 'transactionid' AND x.virtualtransaction = h.virtualtransaction \
     JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction::text = \
     x.transactionid::text ORDER BY 3 DESC";

/// The number of sessions that hold an advisory lock in this database without recording their
/// activity.
const UNTRACKED: &str = "SELECT count(DISTINCT a.pid) FROM pg_catalog.pg_locks AS l \
     JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid \
     WHERE l.locktype = 'advisory' AND l.objsubid <= 2::int2 \
     AND l.granted AND l.database = \
     (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()) \
     AND a.state = 'disabled'";

/// Idle sessions that hold advisory locks and belong to a pooler in transaction mode. They are
/// known to belong to it if this command has used them (`{seen}`), because it acquires no lock, or
/// if their role's setting says so. With `{pooled}`, sessions of the same role and address are
/// included, which may also belong to a program that connects directly.
const STRANDED: &str = "SELECT h.pid::text, count(*), h.is_known FROM (SELECT a.pid, \
     a.pid = own.pid OR a.state = 'idle' \
     AND (a.pid = ANY ('{{seen}}'::int4[]) \
     OR EXISTS (SELECT 1 FROM pg_catalog.pg_db_role_setting AS s CROSS JOIN LATERAL unnest(s.setconfig) AS c (line) \
     WHERE (s.setrole = a.usesysid OR s.setrole = 0::oid) \
     AND (s.setdatabase = a.datid OR s.setdatabase = 0::oid) \
     AND c.line = 'advisory.pooler=transaction')) AS is_known, \
     {pooled} AND a.state = 'idle' AND a.usesysid = own.usesysid \
     AND COALESCE(host(a.client_addr), '') = COALESCE(host(own.client_addr), '') AS is_likely \
     FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid \
     JOIN pg_catalog.pg_stat_activity AS own ON own.pid = pg_backend_pid() \
     WHERE l.locktype = 'advisory' AND l.objsubid <= 2::int2 \
     AND l.granted AND l.database = own.datid) AS h \
     WHERE h.is_known OR h.is_likely GROUP BY h.pid, h.is_known ORDER BY h.pid";

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
    /// The answer if it is not known which sessions are idle, because some do not record it or
    /// because this role does not see it.
    async fn untracked(&self, name: &'static str, what: &str) -> Result<Option<Diagnosis>> {
        let unknown = |message: String| Diagnosis::new(name, Level::Unknown, message);
        let found = rows(self.client, UNTRACKED).await?;
        let count = cell(&found, 0).and_then(|count| count.parse().ok());
        let count: usize = count.unwrap_or_default();
        if count > 0 {
            let sessions = plural(count, "session");
            let message =
                format!("{sessions} with advisory locks may be {what}: `track_activities` is off");
            let fix = alter_system("track_activities", "on");
            return Ok(Some(unknown(message).fix(fix).fix(RELOAD)));
        }
        let message = format!("this role does not see which sessions of other roles are {what}");
        let sees_all = self.facts.sees_all;
        Ok((!sees_all).then(|| unknown(message).fix(grant_monitor(&self.facts))))
    }

    pub(super) async fn idle_sessions(&self, bound: Duration) -> Result<Diagnosis> {
        let name = "idle_sessions";
        let (mut said, mut fix) = (Vec::new(), Vec::new());
        for row in rows(self.client, IDLE).await? {
            let age = row.get(2).and_then(|age| age.parse().ok());
            let age = Duration::from_secs(age.unwrap_or_default());
            if age < bound {
                continue;
            }
            let (who, age) = (one_line(row.get(1).unwrap_or_default()), short(age));
            if let Some(pid) = row.get(0) {
                said.push(format!(
                    "{pid} ({who}) has been idle in transaction for {age}"
                ));
                fix.push(format!("cargo advisory locks terminate {pid}"));
            } else {
                said.push(format!("'{who}' was prepared {age} ago"));
                fix.push(format!("ROLLBACK PREPARED {};", literal(&who)));
            }
        }
        if !said.is_empty() {
            let message = format!("{}, and holds advisory locks", said.join("; "));
            return Ok(Diagnosis::new(name, Level::Problem, message).fixes(fix));
        }
        if let Some(unknown) = self.untracked(name, "idle in a transaction").await? {
            return Ok(unknown);
        }
        let bound = short(bound);
        let message = format!(
            "no session that holds an advisory lock has been idle in a transaction for {bound}"
        );
        Ok(Diagnosis::fine(name, message))
    }

    /// Finds session-level locks that programs have left on sessions of a pooler. `seen` has the
    /// sessions that this command has used; it is `None` without a pooler that shares sessions.
    pub(super) async fn stranded_locks(&self, seen: Option<&BTreeSet<i32>>) -> Result<Diagnosis> {
        let name = "stranded_locks";
        let question = STRANDED
            .replace("{seen}", &joined(seen.into_iter().flatten(), ","))
            .replace("{pooled}", &seen.is_some().to_string());
        let (mut left, mut possible, mut fix) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows(self.client, &question).await? {
            let (pid, count) = (row.get(0).unwrap_or_default(), row.get(1));
            let count = count.and_then(|count| count.parse().ok()).unwrap_or(1);
            let session = format!("{pid} ({})", plural(count, "lock"));
            if row.get(2) == Some("t") {
                left.push(session);
                fix.push(format!("cargo advisory locks terminate {pid}"));
            } else {
                possible.push(session);
                fix.push(format!("cargo advisory locks --filter {pid}"));
            }
        }
        let mut said = Vec::new();
        if !left.is_empty() {
            said.push(format!(
                "programs have left session-level locks on sessions of a pooler, where nobody releases them: {}",
                left.join(", ")
            ));
        }
        if !possible.is_empty() {
            said.push(format!(
                "idle sessions with session-level locks are the pooler's, or those of a program that connects directly from its address: {}",
                possible.join(", ")
            ));
        }
        if said.is_empty() {
            let message = "no idle session that is known to be of a pooler in transaction mode holds an advisory lock";
            let unknown = self.untracked(name, "idle").await?;
            return Ok(unknown.unwrap_or_else(|| Diagnosis::fine(name, message)));
        }
        let level = match left[..] {
            [] => Level::Advice,
            _ => Level::Problem,
        };
        Ok(Diagnosis::new(name, level, said.join("; ")).fixes(fix))
    }

    /// While a snapshot exists, the server removes no row version that claims and leases have
    /// replaced since.
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
