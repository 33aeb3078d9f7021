//! `doctor`: what the settings of a server and a role mean for locks, and the statements that
//! correct them.
//!
//! `facts` and `citus` ask the server, `engine`, `timeouts`, `server`, `replication`, `pooler`,
//! `access`, `sequence`, `tables`, `jobs` and `snapshots` judge, and `report` writes it. Everything
//! is asked in the simple protocol, so that it works through every pooler.

mod access;
mod citus;
mod engine;
mod facts;
mod jobs;
mod pooler;
mod replication;
mod report;
mod sequence;
mod server;
mod snapshots;
mod tables;
mod timeouts;

use std::collections::BTreeSet;
use std::time::Duration;

use advisory_runtime::lease::Table;
use clap::Args;
use tokio_postgres::Client;

use crate::cli::{self, Answer, CODES, LEASE_TABLE};
use crate::database::{Connection, DatabaseUrl, Queries, block_on, identifier};
use crate::duration;
use crate::failure::{Failure, bail};
use crate::job_table::JobTable;
use crate::names::NameSources;
use facts::Facts;

const IDLE: Duration = Duration::from_secs(60);

/// What one setting, or one state of the server, means for locks.
struct Diagnosis {
    /// Also the heading of the guide's page.
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
    /// Could be better.
    Advice,
    /// This role does not see it.
    Unknown,
    Fine,
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

    fn fix(mut self, statement: impl Into<String>) -> Self {
        self.fix.push(statement.into());
        self
    }

    fn fixes(mut self, statements: impl IntoIterator<Item = String>) -> Self {
        self.fix.extend(statements);
        self
    }
}

/// Checks what the settings of a server and a role mean for locks, and prints the statements that
/// correct them
///
/// Asks the server, as the role in the URL, what each setting means for locks: fine, advice or a
/// problem, with the statement that corrects it. Changes nothing. Exits with 1 if there is a
/// problem.
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

impl Arguments {
    /// Returns `false` if there is a problem, or with `--strict` anything that is not fine.
    pub(crate) fn run(&self) -> Result<bool, Failure> {
        let address = self.database_url.find()?;
        let table = cli::lease_table(self.lease_table.as_ref())?;
        let jobs = self.job_tables()?;
        let most_keys = self.names.most_keys()?;
        let (facts, mut findings) = block_on(async {
            let engine = engine::find(&address).await?;
            // An engine can lack what the other findings ask for.
            let program = (jobs.as_deref(), most_keys.as_ref());
            let examined = self.examine(&address, &table, program).await;
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
        let (text, json) = (
            |_| report::text(&facts, &findings),
            || report::json(&facts, &findings),
        );
        self.answer.write(text, json)?;
        Ok(is_in_order)
    }

    /// The job tables of the program that is named; `None` if none is.
    fn job_tables(&self) -> Result<Option<Vec<JobTable>>, Failure> {
        if !self.names.are_named() {
            return Ok(None);
        }
        let (_, claims) = self.names.read_all()?;
        if claims.is_empty() {
            return Ok(Some(Vec::new()));
        }
        JobTable::of_inventory(&claims, None).map(Some)
    }

    async fn examine(
        &self,
        address: &str,
        table: &Table,
        (jobs, most_keys): (Option<&[JobTable]>, Option<&(u64, String)>),
    ) -> Result<(Facts, Vec<Diagnosis>), Failure> {
        let (pooler, seen) = pooler::find(address).await?;
        let queries = Queries::open(address).await?;
        let options = Options {
            table,
            jobs,
            most_keys,
            is_table_named: self.lease_table.is_some(),
            idle: self.older_than.unwrap_or(IDLE),
            seen: pooler.shares_sessions().then_some(&seen),
        };
        let (facts, mut findings) = examine(&queries.client, &options).await?;
        findings.push(pooler::judge(&facts, &pooler));
        Ok((facts, findings))
    }
}

struct Options<'o> {
    table: &'o Table,
    jobs: Option<&'o [JobTable]>,
    /// The call of the program that can take the most locks.
    most_keys: Option<&'o (u64, String)>,
    is_table_named: bool,
    /// How long a session may be idle in a transaction that holds a lock.
    idle: Duration,
    /// The sessions that this command had from a pooler that gives one to several clients.
    seen: Option<&'o BTreeSet<i32>>,
}

async fn examine(
    client: &Client,
    options: &Options<'_>,
) -> Result<(Facts, Vec<Diagnosis>), Failure> {
    let table = options.table;
    let facts = Facts::ask(client).await?;
    let mut findings = vec![server::version(&facts), server::standby(&facts)];
    findings.extend(timeouts::judge(&facts));
    findings.push(replication::judge(client).await?);
    findings.push(server::lock_table(client, &facts, options.most_keys).await?);
    findings.push(access::lease_table(client, &facts, table, options.is_table_named).await?);
    findings.push(sequence::judge(client, &facts, table).await?);
    let jobs = options.jobs.unwrap_or_default();
    let unseen = jobs::unseen(client, options.jobs.is_some()).await?;
    let tables = tables::Tables::look(client, &table.name(), jobs, unseen.clone()).await?;
    findings.push(tables.row_security(&facts));
    findings.push(tables.unlogged());
    findings.push(jobs::job_tables(client, &facts, jobs, unseen.as_ref()).await?);
    findings.push(jobs::time_zone(client, &facts, jobs, unseen.as_ref()).await?);
    findings.push(snapshots::judge(client, &facts).await?);
    findings.push(access::live_view(&facts));
    findings.push(access::idle_sessions(client, &facts, options.idle).await?);
    findings.push(access::stranded_locks(client, &facts, options.seen).await?);
    Ok((facts, findings))
}

/// `ALTER ROLE app SET lock_timeout = '30s';`
fn alter_role(facts: &Facts, setting: &str, value: &str) -> String {
    let role = identifier(&facts.role);
    format!("ALTER ROLE {role} SET {setting} = {value};")
}

/// For a role that does not see what other roles' sessions do.
fn grant_monitor(facts: &Facts) -> String {
    format!("GRANT pg_monitor TO {};", identifier(&facts.role))
}

/// For what only the whole server has, or only a superuser sets.
fn alter_system(setting: &str, value: &str) -> String {
    format!("ALTER SYSTEM SET {setting} = {value};")
}

const RELOAD: &str = "SELECT pg_reload_conf();";
