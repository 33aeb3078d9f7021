//! The facts about the server and this session.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::Client;

use super::citus::Node;
use crate::database::{cell, rows};
use crate::failure::Result;
use crate::text::one_line;

/// `pg_settings` has each setting of this session, in the base unit. It includes the settings of
/// the role and of the database.
const SETTINGS: &str = "SELECT s.name, s.setting, s.unit FROM pg_catalog.pg_settings AS s \
     WHERE s.name = ANY ('{lock_timeout,statement_timeout,idle_in_transaction_session_timeout,transaction_timeout,\
     idle_session_timeout,default_transaction_isolation,log_lock_waits,deadlock_timeout,client_connection_check_interval,\
     tcp_keepalives_idle,tcp_keepalives_interval,tcp_keepalives_count,tcp_user_timeout,TimeZone,max_locks_per_transaction,max_connections,\
     max_prepared_transactions,max_worker_processes,max_wal_senders,autovacuum_max_workers,autovacuum_worker_slots}'::text[])";

const SERVER: &str = "SELECT current_database(), CURRENT_USER, current_setting('server_version'), \
     current_setting('server_version_num'), pg_is_in_recovery(), \
     to_char(clock_timestamp(), 'YYYYMMDD'), inet_server_addr() IS NOT NULL, \
     pg_has_role('pg_read_all_stats'::name, 'USAGE'::text), \
     current_setting('advisory.pooler', true), to_regclass('pg_catalog.pg_dist_local_group') IS NOT NULL";

#[derive(Default)]
pub(super) struct Facts {
    pub(super) database: String,
    pub(super) role: String,
    pub(super) version: String,
    /// 160004 for 16.4.
    pub(super) version_number: u32,
    pub(super) is_standby: bool,
    /// The server's date, as 20261122.
    pub(super) date: u32,
    pub(super) is_over_tcp: bool,
    /// True if the role sees what other roles' sessions do.
    pub(super) sees_all: bool,
    /// The setting `advisory.pooler`.
    pub(super) named_pooler: Option<String>,
    /// `None` if the server is not a node of Citus.
    pub(super) citus: Option<Node>,
    settings: BTreeMap<String, (String, Option<String>)>,
}

impl Facts {
    pub(super) async fn ask(client: &Client) -> Result<Self> {
        let server = rows(client, SERVER).await?;
        let text = |at: usize| one_line(cell(&server, at).unwrap_or_default());
        let settings = rows(client, SETTINGS).await?.into_iter().filter_map(|row| {
            let value = (row.get(1)?.to_owned(), row.get(2).map(str::to_owned));
            Some((row.get(0)?.to_owned(), value))
        });
        Ok(Self {
            database: text(0),
            role: text(1),
            version: text(2),
            version_number: text(3).parse().unwrap_or_default(),
            is_standby: text(4) == "t",
            date: text(5).parse().unwrap_or_default(),
            is_over_tcp: text(6) == "t",
            sees_all: text(7) == "t",
            named_pooler: Some(text(8)).filter(|named| !named.is_empty()),
            citus: if text(9) == "t" {
                Some(Node::ask(client).await?)
            } else {
                None
            },
            settings: settings.collect(),
        })
    }

    /// A setting's text; `None` if this server does not have it.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        debug_assert!(SETTINGS.contains(name), "`{name}` is not in `SETTINGS`");
        self.settings.get(name).map(|(value, _)| value.as_str())
    }

    /// A setting that is a whole number; 0 if this server does not have it.
    pub(super) fn number(&self, name: &str) -> u64 {
        let value = self.setting(name).and_then(|value| value.parse().ok());
        value.unwrap_or_default()
    }

    /// A setting that is a time; zero means that it is off.
    pub(super) fn time(&self, name: &str) -> Duration {
        match self.settings.get(name) {
            Some((_, Some(unit))) if unit == "ms" => Duration::from_millis(self.number(name)),
            _ => Duration::from_secs(self.number(name)),
        }
    }

    /// A server with these settings, each with its unit.
    #[cfg(test)]
    pub(super) fn with(settings: &[(&str, &str, Option<&str>)]) -> Self {
        let settings = settings.iter().map(|(name, value, unit)| {
            let unit = unit.map(str::to_owned);
            ((*name).to_owned(), ((*value).to_owned(), unit))
        });
        Self {
            settings: settings.collect(),
            ..Self::default()
        }
    }
}
