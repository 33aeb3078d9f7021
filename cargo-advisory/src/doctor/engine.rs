//! Recognizes the engines that speak PostgreSQL's protocol, and says what each means for locks.
//!
//! One statement reads every sign of an engine. If the engine lacks these catalogs, a second one
//! reads fewer signs.

use std::fmt::Write;

use super::facts::Facts;
use super::{Diagnosis, Level};
use crate::database::{Connection, Queries, cell, rows};
use crate::failure::{Failure, Result};
use crate::text::one_line;

const NAME: &str = "engine";

/// The version, and a sign for each extension, function and setting that could name an engine.
const SIGNS: &str = "SELECT version(), array_to_string(ARRAY(\
     SELECT concat('extension ', e.extname) FROM pg_catalog.pg_extension AS e \
     UNION ALL SELECT concat('function ', p.proname) FROM pg_catalog.pg_proc AS p \
     WHERE p.proname = 'aurora_version' \
     AND p.pronamespace = 'pg_catalog'::regnamespace \
     UNION ALL SELECT concat('setting ', split_part(s.name, '.', 1)) FROM pg_catalog.pg_settings AS s \
     WHERE s.name ~ '^(alloydb|neon)[.]'), ',')";

/// For engines that lack a catalog of [`SIGNS`]: the version, and the sign of Aurora DSQL, which
/// has no `pg_extension`.
const FEWER_SIGNS: &str = "SELECT version(), (SELECT concat('table ', n.nspname, '.', c.relname) \
     FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
     WHERE n.nspname = 'sys' AND c.relname = 'iam_pg_role_mappings')";

pub(super) struct Engine {
    name: &'static str,
    level: Level,
    /// `extension citus`, or `version` and a part of the version's text.
    sign: &'static str,
    message: &'static str,
    fix: Vec<&'static str>,
}

/// The engine on which the guide's results were tried.
const TRIED: &str = "Citus";

/// The engines, with what their documentation and sources, or a trial, say of locks: the name, the
/// level and the sign, what it means, and what to do. The guide's page on several servers has the
/// links.
const ENGINES: &str = "\
CockroachDB | problem | version CockroachDB
session-level locks lock nothing; transaction-level locks exist from 26.3, where a savepoint's rollback does not release them
Use transaction-level locks of 26.3 or later; `session::verify` refuses the others.

Aurora DSQL | problem | table sys.iam_pg_role_mappings
its transactions never wait for each other, and it has no savepoints, which every commit of a locked call uses
Write the rule as a constraint, and repeat transactions that fail with 40001.

Shardman | problem | extension shardman
a lock excludes the sessions of its own node only; the locks of the whole cluster have functions of their own
Connect all programs that share a lock to one node.

SPQR | problem | extension spqrguard
a lock excludes the sessions of its own shard only; through the router its statements are refused or go to every shard
Connect to the shard that has the rows, as with shards of your own.

pgEdge (Spock) | problem | extension spock
a lock excludes the sessions of its own node only, and so does a lease: of two nodes' writes the later one stays
Connect all programs that share a lock to one node.

EDB Postgres Distributed (BDR) | problem | extension bdr
a lock excludes the sessions of its own node only, and so does a lease: of two nodes' writes the later one stays
Connect all programs that share a lock to one node.

pgactive | problem | extension pgactive
a lock excludes the sessions of its own node only, and so does a lease: of two nodes' writes the later one stays
Connect all programs that share a lock to one node.

Citus | advice | extension citus
a lock excludes the sessions of its own node only, and Citus refuses leases and claims in each table that it manages
Connect all programs that share a lock to the coordinator.
Keep the lease table and job tables as ordinary tables of the coordinator.

YugabyteDB | advice | version -YB-
locks exclude sessions on all nodes since 2025.1; `SKIP LOCKED` fails under SERIALIZABLE, and sessions draw from a sequence in blocks of 100
Run `session::verify` at the start of the program.
Set the flag `ysql_sequence_cache_minval` to 0 before the lease table is created.

Neon | advice | setting neon
after five minutes without a query the server stops, which ends idle sessions with their session-level locks
Turn off scale to zero for a program that holds session-level locks while it is idle.

AlloyDB | fine | setting alloydb
locks are those of PostgreSQL, on the primary

Aurora | fine | function aurora_version
locks are those of PostgreSQL, on the writer; a reader that forwards writes refuses savepoints and sequences, and so locked calls and leases";

/// The first release of `YugabyteDB` with advisory locks, apart from previews.
const YUGABYTE: u32 = 2025;

pub(super) enum Found {
    /// None of [`ENGINES`].
    PostgreSql,
    /// The engine, and its version.
    Engine(Engine, String),
    /// The reason why the engine cannot be determined.
    Unknown(String),
}

/// Fails only if the database cannot be reached.
pub(super) async fn find(address: &str) -> Result<Found> {
    let queries = Queries::open(address).await?;
    let mut asked = rows(&queries.client, SIGNS).await;
    if asked.is_err() {
        asked = rows(&queries.client, FEWER_SIGNS).await.or(asked);
    }
    queries.close().await;
    Ok(match asked {
        Ok(found) => {
            let text = |at: usize| cell(&found, at).unwrap_or_default();
            recognize(text(0), text(1))
        }
        Err(failure) => Found::Unknown(failure.to_string()),
    })
}

fn recognize(version: &str, signs: &str) -> Found {
    let is_found = |engine: &Engine| match engine.sign.strip_prefix("version ") {
        Some(part) => version.contains(part),
        None => signs.split(',').any(|sign| sign == engine.sign),
    };
    match ENGINES
        .split("\n\n")
        .filter_map(Engine::read)
        .find(is_found)
    {
        Some(engine) => Found::Engine(engine, one_line(version)),
        None => Found::PostgreSql,
    }
}

impl Engine {
    fn read(text: &'static str) -> Option<Self> {
        let mut lines = text.lines();
        let (name, rest) = lines.next()?.split_once(" | ")?;
        let (level, sign) = rest.split_once(" | ")?;
        let levels = [Level::Problem, Level::Advice, Level::Fine];
        Some(Self {
            name,
            level: levels.into_iter().find(|it| it.name() == level)?,
            sign,
            message: lines.next()?,
            fix: lines.collect(),
        })
    }

    /// What it means for locks, with the source of that.
    fn describe(&self) -> String {
        let source = match self.name {
            TRIED => "as tried",
            _ => "by its documentation",
        };
        format!("{}, {source}: {}", self.name, self.message)
    }
}

impl Found {
    pub(super) fn judge(&self, facts: &Facts) -> Diagnosis {
        let (engine, version) = match self {
            Self::PostgreSql => {
                let message =
                    "PostgreSQL, by all signs: a lock excludes all sessions of its database";
                return Diagnosis::fine(NAME, message);
            }
            Self::Unknown(why) => {
                let message = format!("cannot be determined: {why}");
                return Diagnosis::new(NAME, Level::Unknown, message);
            }
            Self::Engine(engine, version) => (engine, version),
        };
        if yugabyte_release(version).is_some_and(|release| release < YUGABYTE) {
            let message = format!("YugabyteDB before 2025.1 has no advisory locks: {version}");
            return Diagnosis::new(NAME, Level::Problem, message)
                .fix("Upgrade to YugabyteDB 2025.1 or later.");
        }
        let mut message = engine.describe();
        let mut level = engine.level;
        if let Some(node) = &facts.citus {
            if node.is_worker {
                level = Level::Problem;
                message.push_str(
                    "; this is a worker node: its locks do not exclude the sessions of the coordinator",
                );
            }
            if !node.triggers.is_empty() {
                let triggers = node.triggers.join(", ");
                let _ = write!(
                    message,
                    "; these triggers run on the nodes that have the rows, where they notify no session of the coordinator and do not see \
                     its locks: {triggers}"
                );
            }
        }
        let fixes = engine.fix.iter().map(|fix| (*fix).to_owned());
        Diagnosis::new(NAME, level, message).fixes(fixes)
    }

    /// Names the engine in a failure that it may explain.
    pub(super) fn explain(&self, failure: Failure) -> Failure {
        match self {
            Self::Engine(engine, _) => {
                Failure::Input(format!("{failure}; this is {}", engine.describe()))
            }
            Self::PostgreSql | Self::Unknown(_) => failure,
        }
    }
}

/// 2025 for `PostgreSQL 15.12-YB-2025.1.0.0-b168`.
fn yugabyte_release(version: &str) -> Option<u32> {
    let (_, release) = version.split_once("-YB-")?;
    release.split('.').next()?.parse().ok()
}
