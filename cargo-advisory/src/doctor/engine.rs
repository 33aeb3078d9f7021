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

/// An engine, with what its documentation and sources, or a trial, say of locks. The guide's page
/// on several servers has the links.
pub(super) struct Engine {
    name: &'static str,
    /// `extension citus`, or `version` and a part of the version's text.
    sign: &'static str,
    level: Level,
    message: &'static str,
    fix: &'static [&'static str],
}

/// The engine on which the guide's results were tried.
const TRIED: &str = "Citus";

const ENGINES: [Engine; 12] = [
    Engine {
        name: "CockroachDB",
        sign: "version CockroachDB ",
        level: Level::Problem,
        message: "session-level locks lock nothing; transaction-level locks exist from 26.3, where a savepoint's rollback does not release them",
        fix: &[
            "Use transaction-level locks of 26.3 or later; `session::verify` refuses the others.",
        ],
    },
    Engine {
        name: "Aurora DSQL",
        sign: "table sys.iam_pg_role_mappings",
        level: Level::Problem,
        message: "its transactions never wait for each other, and it has no savepoints, which every commit of a locked call uses",
        fix: &["Write the rule as a constraint, and repeat transactions that fail with 40001."],
    },
    Engine {
        name: "Shardman",
        sign: "extension shardman",
        level: Level::Problem,
        message: "a lock excludes the sessions of its own node only; the locks of the whole cluster have functions of their own",
        fix: &["Connect all programs that share a lock to one node."],
    },
    Engine {
        name: "SPQR",
        sign: "extension spqrguard",
        level: Level::Problem,
        message: "a lock excludes the sessions of its own shard only; through the router its statements are refused or go to every shard",
        fix: &["Connect to the shard that has the rows, as with shards of your own."],
    },
    Engine::with_several_writers("pgEdge (Spock)", "extension spock"),
    Engine::with_several_writers("EDB Postgres Distributed (BDR)", "extension bdr"),
    Engine::with_several_writers("pgactive", "extension pgactive"),
    Engine {
        name: "Citus",
        sign: "extension citus",
        level: Level::Advice,
        message: "a lock excludes the sessions of its own node only, and Citus refuses leases and claims in each table that it manages",
        fix: &[
            "Connect all programs that share a lock to the coordinator.",
            "Keep the lease table and job tables as ordinary tables of the coordinator.",
        ],
    },
    Engine {
        name: "YugabyteDB",
        sign: "version -YB-",
        level: Level::Advice,
        message: "locks exclude sessions on all nodes since 2025.1; `SKIP LOCKED` fails under SERIALIZABLE, and sessions draw from a sequence \
                  in blocks of 100",
        fix: &[
            "Run `session::verify` at the start of the program.",
            "Set the flag `ysql_sequence_cache_minval` to 0 before the lease table is created.",
        ],
    },
    Engine {
        name: "Neon",
        sign: "setting neon",
        level: Level::Advice,
        message: "after five minutes without a query the server stops, which ends idle sessions with their session-level locks",
        fix: &[
            "Turn off scale to zero for a program that holds session-level locks while it is idle.",
        ],
    },
    Engine {
        name: "AlloyDB",
        sign: "setting alloydb",
        level: Level::Fine,
        message: "locks are those of PostgreSQL, on the primary",
        fix: &[],
    },
    Engine {
        name: "Aurora",
        sign: "function aurora_version",
        level: Level::Fine,
        message: "locks are those of PostgreSQL, on the writer; a reader that forwards writes refuses savepoints and sequences, and so locked \
                  calls and leases",
        fix: &[],
    },
];

/// The first release of `YugabyteDB` with advisory locks, apart from previews.
const YUGABYTE: u32 = 2025;

pub(super) enum Found {
    /// None of [`ENGINES`].
    PostgreSql,
    /// The engine, and its version.
    Engine(&'static Engine, String),
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
    let is_found = |engine: &&Engine| match engine.sign.strip_prefix("version ") {
        Some(part) => version.contains(part),
        None => signs.split(',').any(|sign| sign == engine.sign),
    };
    match ENGINES.iter().find(is_found) {
        Some(engine) => Found::Engine(engine, one_line(version)),
        None => Found::PostgreSql,
    }
}

impl Engine {
    const fn with_several_writers(name: &'static str, extension: &'static str) -> Self {
        Self {
            name,
            sign: extension,
            level: Level::Problem,
            message: "a lock excludes the sessions of its own node only, and so does a lease: of two nodes' writes the later one stays",
            fix: &["Connect all programs that share a lock to one node."],
        }
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
        Diagnosis::new(NAME, level, message).fixes(engine.fix.iter().copied())
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
