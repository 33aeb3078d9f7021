//! The faults, and how each is applied and ended.

use crate::absence::{ABSENT, LINGER, TTL};
use crate::bug::Bug;
use crate::clock::{self, pass};
use crate::connection::{Failure, connect, rows};
use crate::named::named;
use crate::server::Server;
use crate::worker_pool::WorkerPool;
use advisory_tests::{Bouncer, Proxy};
use std::time::Duration;

named! {
    #[derive(Default)]
    Fault {
        /// No fault.
        #[default]
        Calm = "calm",
        KillClient = "kill-client",
        StopClient = "stop-client",
        TerminateBackends = "terminate-backends",
        RestartFast = "restart-fast",
        RestartImmediate = "restart-immediate",
        DropPackets = "drop-packets",
        CutConnections = "cut-connections",
        /// The machine of a process is cut off permanently, and no connection is closed.
        Vanish = "vanish",
        /// A pooler in transaction mode is in front of the server; it reconnects.
        Pooler = "pgbouncer",
        LockTableFull = "lock-table-full",
        PoolExhausted = "pool-exhausted",
        CommitHeldUp = "commit-held-up",
        /// The primary is killed, and its synchronous standby promoted.
        Failover = "failover",
        /// Bodies of a process block all threads of its runtime, for three times as long as a
        /// claim lasts.
        BlockRuntime = "block-runtime",
        /// The type of a column of the jobs changes, so that the server refuses prepared
        /// statements.
        AlterType = "alter-type",
        /// The text of an error does not fit its column.
        LongText = "long-text",
        /// The network loses the connections that are open; new ones work.
        StallConnections = "stall-connections",
        /// The body of a job aborts its process.
        AbortJob = "abort-job",
    }
}

/// What a fault can act on.
pub(crate) struct Site<'r> {
    pub(crate) server: &'r Server,
    /// The run's database, directly.
    pub(crate) url: &'r str,
    pub(crate) worker_pool: &'r mut WorkerPool,
    pub(crate) between: &'r Between,
    pub(crate) hold: Duration,
    /// How many times the fault was applied before.
    pub(crate) round: usize,
}

impl Site<'_> {
    /// Adds a job that aborts, and replaces its processes until it has failed; `false` if that
    /// takes too long.
    async fn abort_a_job(&mut self) -> Result<bool, Failure> {
        let since = clock::micros();
        self.server.rows(self.url, ADD_ABORTING).await?;
        loop {
            let has_failed = self.server.rows(self.url, ABORTING).await?.is_empty();
            self.worker_pool.reap()?;
            self.worker_pool.fill_up().await?;
            if has_failed || clock::micros() - since > 20_000_000 {
                return Ok(has_failed);
            }
            pass(self.hold / 50).await;
        }
    }
}

/// The proxies or the pooler between the workers and the server.
pub(crate) enum Between {
    Nothing,
    Proxy(Proxy),
    Bouncer(Bouncer),
}

impl Between {
    fn proxy(&self) -> Result<&Proxy, Failure> {
        match self {
            Self::Proxy(proxy) => Ok(proxy),
            _ => Err("there is no proxy".into()),
        }
    }
}

const SETTINGS: &str = "pool_mode = transaction\ndefault_pool_size = 4\nadmin_users = postgres";

impl Fault {
    /// Starts what the fault needs between the workers and this database, and returns the address
    /// that the workers use; or the reason why it is not available here.
    pub(crate) async fn between(
        self,
        url: &str,
        name: &str,
    ) -> Result<(Between, String), &'static str> {
        Ok(match self {
            Self::DropPackets | Self::CutConnections | Self::StallConnections => {
                let proxy = Proxy::before(url).await;
                let url = proxy.url().to_owned();
                (Between::Proxy(proxy), url)
            }
            Self::Pooler => {
                let bouncer = Bouncer::before(url, SETTINGS).await?;
                let url = bouncer.address(name);
                (Between::Bouncer(bouncer), url)
            }
            _ => (Between::Nothing, url.to_owned()),
        })
    }

    /// Whether each process reaches the server through its own proxy.
    pub(crate) fn has_networks(self) -> bool {
        self == Self::Vanish
    }

    /// The fault under which a bug shows.
    pub(crate) const fn of_bug(bug: Bug) -> Self {
        match bug {
            Bug::TaskRenewal => Self::BlockRuntime,
            Bug::OneConnection => Self::StallConnections,
            Bug::KeptPlan => Self::AlterType,
            Bug::RefusedText => Self::LongText,
            Bug::SameNeighbours => Self::AbortJob,
            _ => Self::Calm,
        }
    }

    /// Applies the fault once, and returns when it is over: whether it had an effect.
    pub(crate) async fn course(self, site: &mut Site<'_>) -> Result<bool, Failure> {
        let Site {
            server, url, hold, ..
        } = *site;
        match self {
            Self::Calm => pass(hold).await,
            Self::KillClient => {
                site.worker_pool.kill(site.round)?;
                pass(hold / 4).await;
                site.worker_pool.fill_up().await?;
            }
            Self::StopClient => {
                site.worker_pool.signal(site.round, "-STOP")?;
                pass(hold.max(OUTLIVED)).await;
                site.worker_pool.signal(site.round, "-CONT")?;
            }
            Self::TerminateBackends => {
                let terminated = server.rows(url, TERMINATE).await?;
                return Ok(!terminated.is_empty());
            }
            Self::Pooler => {
                let Between::Bouncer(bouncer) = site.between else {
                    return Err("there is no pooler".into());
                };
                let console = bouncer.address("pgbouncer");
                // From now on each backend is closed when its transaction has ended.
                server.rows(&console, "RECONNECT").await?;
            }
            Self::RestartFast => server.restart("fast").await,
            Self::RestartImmediate => server.restart("immediate").await,
            Self::Failover => server.fail_over().await?,
            Self::DropPackets | Self::CutConnections => {
                let proxy = site.between.proxy()?;
                // The proxy records all traffic, which nobody reads here.
                proxy.reset();
                if self == Self::CutConnections {
                    proxy.cut_all();
                } else {
                    proxy.stop_forwarding();
                    pass(hold.max(OUTLIVED)).await;
                    proxy.resume_forwarding();
                }
            }
            Self::Vanish => {
                let name = site.worker_pool.vanish(site.round)?;
                pass(hold.max(OUTLIVED)).await;
                // The server does not know yet: the sessions exist, and hold their locks.
                let held = HELD.replace("$name", &name);
                let held = server.rows(url, &held).await?;
                site.worker_pool.kill(site.round)?;
                site.worker_pool.fill_up().await?;
                return Ok(!held.is_empty());
            }
            Self::LockTableFull => {
                let client = connect(url).await?;
                // This fails when the table is full, and keeps the locks that it has.
                if rows(&client, FILL).await.is_ok() {
                    return Err("the lock table was not filled".into());
                }
                pass(hold).await;
                rows(&client, "SELECT pg_catalog.pg_advisory_unlock_all()").await?;
            }
            Self::PoolExhausted => {
                site.worker_pool
                    .tell_all(&format!("hog {}", hold.as_millis()));
                pass(hold).await;
            }
            Self::BlockRuntime => {
                site.worker_pool.tell(site.round, "block")?;
                pass(hold.max(ABSENT + TTL)).await;
            }
            Self::AlterType => {
                // Each round has another type, so that a plan for an earlier one never fits again.
                let alter = format!("{ALTER_TYPE}({})", 20 + site.round);
                server.rows(url, &alter).await?;
                pass(hold / 4).await;
            }
            Self::LongText => {
                server.rows(url, NARROW).await?;
                pass(hold).await;
                server.rows(url, WIDE).await?;
            }
            Self::StallConnections => {
                let proxy = site.between.proxy()?;
                proxy.reset();
                site.worker_pool.tell_all("linger");
                // Bodies begin meanwhile.
                pass(TTL / 4).await;
                proxy.stall_open_connections();
                pass(hold.max(LINGER * 2 + TTL)).await;
                proxy.cut_all();
            }
            Self::AbortJob => return site.abort_a_job().await,
            Self::CommitHeldUp => {
                server.rows(url, NOBODY_ANSWERS).await?;
                server.rows(url, RELOAD).await?;
                pass(hold).await;
                server.rows(url, AS_BEFORE).await?;
                server.rows(url, RELOAD).await?;
            }
        }
        Ok(true)
    }
}

/// The locks of the sessions of one process.
const HELD: &str = "SELECT l.pid FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a USING (pid) \
     WHERE l.locktype = 'advisory' AND l.granted AND a.application_name = '$name' \
     AND a.datname = pg_catalog.current_database()";

/// Some backends of the run, in any state.
const TERMINATE: &str = "SELECT pg_catalog.pg_terminate_backend(pid) FROM (SELECT pid FROM pg_catalog.pg_stat_activity \
     WHERE datname = pg_catalog.current_database() AND backend_type = 'client backend' \
     AND pid <> pg_catalog.pg_backend_pid() ORDER BY pg_catalog.random() LIMIT 5) AS backends";

/// More locks than the lock table has room for, in a key space that nothing else uses.
const FILL: &str = "SELECT count(*) FROM \
     (SELECT pg_catalog.pg_advisory_lock(7, pg_catalog.generate_series(1, 1000000)) OFFSET 0) AS taken";

/// A process that is stopped or cut off for this long finds its lease expired.
const OUTLIVED: Duration = TTL.saturating_add(Duration::from_millis(150));

/// The label is in the result of each claim.
const ALTER_TYPE: &str = "ALTER TABLE stress.job ALTER COLUMN label TYPE varchar";

/// The text of a failed attempt is longer.
const NARROW: &str = "ALTER TABLE stress.job ALTER COLUMN error_message TYPE varchar(4) \
     USING pg_catalog.left(error_message, 4)";
const WIDE: &str = "ALTER TABLE stress.job ALTER COLUMN error_message TYPE text";

/// It aborts in each of its attempts.
const ADD_ABORTING: &str = "INSERT INTO stress.job (tenant, fails) VALUES (0, 99)";
const ABORTING: &str =
    "SELECT id FROM stress.job WHERE fails = 99 AND failed_at IS NULL AND completed_at IS NULL";

/// A synchronous standby that does not exist: each commit waits for it.
const NOBODY_ANSWERS: &str = "ALTER SYSTEM SET synchronous_standby_names = 'nobody'";
const AS_BEFORE: &str = "ALTER SYSTEM RESET synchronous_standby_names";
const RELOAD: &str = "SELECT pg_catalog.pg_reload_conf()";
