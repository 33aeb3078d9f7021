//! `doctor`: what the settings of a server and a role mean for locks, and the statements that
//! correct them.
//!
//! `facts` and `citus` ask the server. `engine`, `timeouts`, `server`, `pooler`, `sessions`,
//! `lease_table`, `tables` and `jobs` judge, and `report` writes the result.
//! All queries use the simple protocol, which works through every pooler.

mod citus;
mod engine;
mod facts;
mod jobs;
mod lease_table;
mod pooler;
mod report;
mod server;
mod sessions;
mod tables;
mod timeouts;

use std::time::Duration;

use clap::Args;
use tokio_postgres::Client;

use crate::cli::{self, Answer, CODES, LEASE_TABLE};
use crate::database::{Connection, DatabaseUrl, Queries, block_on, identifier};
use crate::duration;
use crate::failure::{Result, bail};
use crate::job_table::JobTable;
use crate::selection::NameSources;
use facts::Facts;

const IDLE: Duration = Duration::from_secs(60);

/// What a setting, or a state of the server, means for locks.
struct Diagnosis {
    /// Also the heading on the guide's page.
    name: &'static str,
    level: Level,
    message: String,
    /// The statements that correct it, or the command.
    fix: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Locks fail, or stay.
    Problem,
    /// It could be better.
    Advice,
    /// This role cannot see it.
    Unknown,
    Fine,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Advice => "advice",
            Self::Unknown => "unknown",
            Self::Fine => "fine",
        }
    }
}

impl Diagnosis {
    fn new(name: &'static str, level: Level, message: impl Into<String>) -> Self {
        Self {
            name,
            level,
            message: message.into(),
            fix: Vec::new(),
        }
    }

    fn fine(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Level::Fine, message)
    }

    fn fix(self, statement: impl Into<String>) -> Self {
        self.fixes([statement])
    }

    fn fixes(mut self, statements: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.fix.extend(statements.into_iter().map(Into::into));
        self
    }
}

/// Checks what the settings of a server and a role mean for locks, and prints the statements that
/// correct them
///
/// Connects as the role in the URL, and judges each setting: fine, advice or a problem, with the
/// statement that corrects it. Changes nothing. Exits with 1 if there is a problem.
///
/// With `--artifact` or `--inventory` it looks at the tables of the program's claims too.
///
/// Use the program's own URL: timeouts belong to the role, and a pooler is found only if the URL
/// leads through it.
#[derive(Args)]
#[command(after_help = CODES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    database_url: DatabaseUrl,
    #[arg(long, value_name = "TABLE", help = LEASE_TABLE)]
    lease_table: Option<String>,
    #[arg(
        long,
        value_name = "TIME",
        value_parser = duration::parse,
        help = "A session that holds a lock and has been idle in a transaction for this long is a problem [default: 60s]"
    )]
    older_than: Option<Duration>,
    /// Exits with 1 for advice too, and for what this role does not see: for CI
    #[arg(long)]
    strict: bool,
    /// A finding that `--strict` accepts, such as `live_view` of a role that is not to see others'
    /// queries
    #[arg(long, value_name = "NAME", requires = "strict")]
    allow: Vec<String>,
    #[command(flatten)]
    answer: Answer,
    #[command(flatten)]
    names: NameSources,
}

/// The server, and what the program needs of it.
struct Server<'a> {
    client: &'a Client,
    facts: Facts,
    /// The name of the lease table: lower-case letters, digits and `_`, and a full stop, so that it
    /// needs no quotes and can stand in a literal.
    lease_table: String,
    jobs: Vec<JobTable>,
    /// The reason why job tables are not looked at.
    unseen: Option<String>,
}

impl Arguments {
    /// Returns `false` if there is a problem, or with `--strict` anything that is not fine.
    pub(crate) fn run(&self) -> Result<bool> {
        let address = self.database_url.find()?;
        let table = cli::lease_table(self.lease_table.as_ref())?.name();
        let inventory = self.names.inventory()?;
        let jobs = match &inventory.claims[..] {
            [] => Vec::new(),
            claims => JobTable::of_inventory(claims, None)?,
        };
        let most_keys = server::most_keys(&inventory.sites);
        let (facts, mut findings) = block_on(async {
            let engine = engine::find(&address).await?;
            // An engine can lack what the other findings ask for.
            let examined = self.examine(&address, table, jobs, most_keys).await;
            let (facts, mut findings) = examined.map_err(|failure| engine.explain(failure))?;
            findings.push(engine.judge(&facts));
            Ok((facts, findings))
        })?;
        findings.sort_by_key(|finding| finding.level);
        let has = |name: &&String| findings.iter().any(|found| found.name == *name);
        if let Some(unknown) = self.allow.iter().find(|name| !has(name)) {
            bail!("`--allow {unknown}`: there is no finding of that name");
        }
        let is_allowed = |name: &str| self.allow.iter().any(|allowed| allowed == name);
        let is_in_order = findings.iter().all(|found| match found.level {
            Level::Problem => false,
            Level::Advice | Level::Unknown => !self.strict || is_allowed(found.name),
            Level::Fine => true,
        });
        let text = |_| report::text(&facts, &findings);
        self.answer
            .write(text, || report::json(&facts, &findings))?;
        Ok(is_in_order)
    }

    async fn examine(
        &self,
        address: &str,
        lease_table: String,
        jobs: Vec<JobTable>,
        most_keys: Option<(u64, &str)>,
    ) -> Result<(Facts, Vec<Diagnosis>)> {
        let (pooler, seen) = pooler::find(address).await?;
        let queries = Queries::open(address).await?;
        let client = &queries.client;
        let server = Server {
            client,
            facts: Facts::ask(client).await?,
            lease_table,
            jobs,
            unseen: jobs::unseen(client, self.names.are_named()).await?,
        };
        let facts = &server.facts;
        let mut all = vec![server::version(facts), server::standby(facts)];
        all.extend(timeouts::judge(facts));
        all.push(server.logical_replication().await);
        all.push(server.lock_table(most_keys).await?);
        all.push(server.lease_table(self.lease_table.is_some()).await?);
        all.push(server.lease_sequence().await?);
        all.extend(server.rows_of_tables().await);
        all.push(server.job_tables().await?);
        all.push(server.time_zone().await?);
        all.push(server.oldest_snapshot().await?);
        all.push(sessions::live_view(facts));
        let idle = self.older_than.unwrap_or(IDLE);
        all.push(server.idle_sessions(idle).await?);
        let seen = pooler.shares_sessions().then_some(&seen);
        all.push(server.stranded_locks(seen).await?);
        all.push(pooler::judge(facts, &pooler));
        Ok((server.facts, all))
    }
}

/// `ALTER ROLE app SET lock_timeout = '30s';`
fn alter_role(facts: &Facts, setting: &str, value: &str) -> String {
    let role = identifier(&facts.role);
    format!("ALTER ROLE {role} SET {setting} = {value};")
}

/// The statement for a role that does not see what other roles' sessions do.
fn grant_monitor(facts: &Facts) -> String {
    format!("GRANT pg_monitor TO {};", identifier(&facts.role))
}

/// The statement for a setting of the whole server, or of superusers.
fn alter_system(setting: &str, value: &str) -> String {
    format!("ALTER SYSTEM SET {setting} = {value};")
}

const RELOAD: &str = "SELECT pg_reload_conf();";
