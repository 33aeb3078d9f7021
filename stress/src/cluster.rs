//! A primary and its synchronous standby, which change places at each failover.

use crate::clock::pass;
use crate::connection::{Failure, connect, rows};
use advisory_tests::OwnServer;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) struct Cluster {
    nodes: [OwnServer; 2],
    /// Which of them is the primary.
    primary: AtomicUsize,
}

const SYNCHRONOUS: &str = "ALTER SYSTEM SET synchronous_standby_names = '*'";
const ALONE: &str = "ALTER SYSTEM SET synchronous_standby_names = ''";
const RELOAD: &str = "SELECT pg_catalog.pg_reload_conf()";
const IS_FOLLOWED: &str = "SELECT 1 FROM pg_catalog.pg_stat_replication WHERE sync_state = 'sync'";

impl Cluster {
    /// `None` if the server came without what a failed primary needs to follow its successor.
    pub(crate) async fn start() -> Result<Option<Self>, Failure> {
        let first = OwnServer::start().await;
        if !first.can_rejoin() {
            return Ok(None);
        }
        // A failed primary is rewound to where the standby left it, by its own log, of which a
        // checkpoint would remove what is older.
        for setting in ["wal_log_hints = on", "wal_keep_size = '1GB'"] {
            let set = format!("ALTER SYSTEM SET {setting}");
            rows(&connect(first.url()).await?, &set).await?;
        }
        // Restarts the first one.
        let second = first.follow().await;
        let cluster = Self {
            nodes: [first, second],
            primary: AtomicUsize::new(0),
        };
        cluster.wait_for_the_standby().await?;
        Ok(Some(cluster))
    }

    /// The address of a database on whichever server is the primary.
    pub(crate) fn url(&self, name: &str) -> String {
        let [first, second] = self.nodes.each_ref().map(|node| {
            let folder = node.file("");
            folder.to_string_lossy().trim_end_matches('/').to_owned()
        });
        format!("host={first},{second} user=postgres dbname={name} target_session_attrs=read-write")
    }

    /// Kills the primary and promotes the standby, which the old primary then follows.
    pub(crate) async fn fail_over(&self) -> Result<(), Failure> {
        let old = self.primary.load(Ordering::Relaxed);
        let new = 1 - old;
        let [old_node, new_node] = [&self.nodes[old], &self.nodes[new]];
        old_node.stop("immediate").await;
        // Until the old one follows, there is nobody to wait for.
        rows(&connect(new_node.url()).await?, ALONE).await?;
        new_node.promote().await;
        self.primary.store(new, Ordering::Relaxed);
        // The new timeline is where the old primary looks for it.
        rows(&connect(new_node.url()).await?, "CHECKPOINT").await?;
        old_node.rejoin(new_node).await;
        self.wait_for_the_standby().await
    }

    async fn wait_for_the_standby(&self) -> Result<(), Failure> {
        let primary = &self.nodes[self.primary.load(Ordering::Relaxed)];
        let client = connect(primary.url()).await?;
        rows(&client, SYNCHRONOUS).await?;
        rows(&client, RELOAD).await?;
        while rows(&client, IS_FOLLOWED).await?.is_empty() {
            pass(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}
