//! Detects a pooler in front of the server, and its mode.
//!
//! The address is not used for this. There is a pooler if one server session serves two connections
//! one after the other, or if a connection has got another process id than that of its server
//! session. If the session serves both while they are open, the pooler is in transaction mode.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use advisory_runtime::cancel::startup_process_id;

use super::facts::Facts;
use super::{Diagnosis, Level, alter_role};
use crate::database::{Connection, Queries, cell, rows, with_timeout};
use crate::failure::{Failure, Result};

/// How often the sessions of the connections are compared. A pooler that others use too assigns
/// sessions by chance.
const ROUNDS: usize = 8;

/// The session of the server that serves a connection.
const SESSION: &str = "SELECT pg_backend_pid(), a.backend_start < \
     to_timestamp('{}'::float8), date_part('epoch', clock_timestamp()) \
     FROM pg_catalog.pg_stat_activity AS a WHERE a.pid = pg_backend_pid()";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pooler {
    None,
    Session,
    Transaction,
    Statement,
    /// Two sessions can hold one exclusive lock.
    LocksExcludeNobody,
    Unknown(String),
}

impl Pooler {
    /// Returns `true` if clients share sessions, so that a session-level lock can stay on a session
    /// that no client has.
    pub(super) const fn shares_sessions(&self) -> bool {
        matches!(self, Self::Transaction | Self::Statement)
    }
}

/// The server process that serves a connection, `true` if the process is older than a time of the
/// server's clock, and the current time. Adds the process to `seen`, those that have served this
/// command.
async fn session(
    connection: &Queries,
    before: &str,
    seen: &mut BTreeSet<i32>,
) -> Result<(String, bool, String)> {
    let found = rows(&connection.client, &SESSION.replace("{}", before)).await?;
    let text = |at: usize| cell(&found, at).unwrap_or_default();
    seen.extend(text(0).parse::<i32>());
    Ok((text(0).to_owned(), text(1) == "t", text(2).to_owned()))
}

async fn pid(connection: &Queries, seen: &mut BTreeSet<i32>) -> Result<String> {
    Ok(session(connection, "0", seen).await?.0)
}

/// Returns `true` if the connection got another process id at its start, or none.
fn is_renumbered(connection: &Queries, pid: &str) -> bool {
    let startup = startup_process_id(&connection.client.cancel_token());
    startup.is_none_or(|startup| startup.to_string() != pid)
}

/// Returns `true` if the connection acquires, or releases, a lock.
async fn answer(connection: &Queries, function: &str, key: &str) -> Result<bool> {
    let query = format!("SELECT pg_catalog.{function}({key})");
    let found = rows(&connection.client, &query).await?;
    Ok(cell(&found, 0) == Some("t"))
}

/// Looks for a pooler. Also returns the server processes that have served this command. Fails only
/// if the database cannot be reached at all.
pub(super) async fn find(address: &str) -> Result<(Pooler, BTreeSet<i32>)> {
    let mut seen = BTreeSet::new();
    let first = Queries::open(address).await?;
    let (_, _, now) = session(&first, "0", &mut seen).await?;
    first.close().await;
    let one = Queries::open(address).await?;
    let (pid, is_older, _) = session(&one, &now, &mut seen).await?;
    let is_between = is_older || is_renumbered(&one, &pid);
    let kind = match Queries::open(address).await {
        Ok(other) => {
            let kind = of_two(&one, &other, is_between, &mut seen).await;
            other.close().await;
            kind
        }
        Err(failure) => Err(failure),
    };
    one.close().await;
    let kind = kind.unwrap_or_else(|failure| Pooler::Unknown(failure.to_string()));
    Ok((kind, seen))
}

async fn of_two(
    one: &Queries,
    other: &Queries,
    is_between: bool,
    seen: &mut BTreeSet<i32>,
) -> Result<Pooler> {
    // No lock is acquired before this: if sessions are shared, a lock can stay on one that no
    // connection gets again.
    let pids = [pid(one, seen).await?, pid(other, seen).await?];
    for _ in 0..ROUNDS {
        if let Err(error) = with_timeout(other.client.batch_execute("BEGIN")).await? {
            return Ok(match Failure::from(error).to_string() {
                why if why.contains("statement pool") => Pooler::Statement,
                why => Pooler::Unknown(why),
            });
        }
        let mut keeps = pid(other, seen).await? == pids[1] && pids[1] != pids[0];
        // Not asked if the answer is known, because a pooler without another session would let the
        // query wait.
        if keeps {
            keeps = pid(one, seen).await? == pids[0];
        }
        with_timeout(other.client.batch_execute("ROLLBACK")).await??;
        if !keeps {
            return Ok(Pooler::Transaction);
        }
    }
    for key in unlikely_keys() {
        let is_taken = answer(one, "pg_try_advisory_lock", &key).await?;
        let is_shared = answer(other, "pg_try_advisory_lock", &key).await?;
        if is_shared {
            answer(other, "pg_advisory_unlock", &key).await?;
        }
        let is_released = answer(one, "pg_advisory_unlock", &key).await?;
        if !is_taken || is_shared || !is_released {
            return Ok(Pooler::LocksExcludeNobody);
        }
    }
    Ok(if is_between {
        Pooler::Session
    } else {
        Pooler::None
    })
}

/// A number and a pair of numbers that nobody else uses, so that a refusal has no other cause.
fn unlikely_keys() -> [String; 2] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let (now, process) = (now.unwrap_or_default(), std::process::id());
    let number = advisory_pattern::Derivation::Sha256.key(&format!("{now:?} {process}"));
    // Both are an `int4`: a process id has 22 bits.
    let pair = format!("{process}, {}", now.subsec_nanos());
    [number.to_string(), pair]
}

pub(super) fn judge(facts: &Facts, pooler: &Pooler) -> Diagnosis {
    let name = "pooler";
    let is_named = facts.named_pooler.as_deref() == Some("transaction");
    let fine = |message| Diagnosis::fine(name, message);
    let problem = |message| Diagnosis::new(name, Level::Problem, message);
    match pooler {
        Pooler::None if is_named => fine(
            "none here, but `advisory.pooler` says that this role has one in transaction mode: session-level locks are refused",
        ),
        Pooler::None => fine(
            "none: each connection has its own session, and a session-level lock excludes the others",
        ),
        Pooler::Session => fine(
            "one in session mode: each connection has its own session while it is open; a program that takes session-level locks calls \
             `session::verify` at its start",
        ),
        Pooler::Transaction if is_named => fine(
            "one in transaction mode, and `advisory.pooler` says so: session-level locks and the stricter isolation levels are refused",
        ),
        Pooler::Transaction => problem(
            "one in transaction mode: two clients can get the same session-level lock, and it can stay forever",
        )
        .fix(alter_role(facts, "\"advisory.pooler\"", "'transaction'")),
        Pooler::Statement => {
            problem("one in statement mode: there are no transactions, and so no locks")
                .fix("Connect to the server itself, or set `pool_mode = transaction`.")
        }
        Pooler::LocksExcludeNobody => {
            problem("this server accepts advisory locks but excludes nobody")
                .fix("Use leases (`#[advisory_lease]`), which are rows.")
        }
        Pooler::Unknown(why) => {
            Diagnosis::new(name, Level::Unknown, format!("cannot be determined: {why}"))
        }
    }
}

#[cfg(test)]
mod scripted;

#[cfg(test)]
mod tests {
    use super::scripted::Server;
    use super::{Pooler, judge};
    use crate::doctor::Level;
    use crate::doctor::facts::Facts;

    #[test]
    fn a_pooler_in_transaction_mode_is_a_problem_until_it_is_named() {
        for (pooler, level, named_level) in [
            (Pooler::None, Level::Fine, Level::Fine),
            (Pooler::Session, Level::Fine, Level::Fine),
            (Pooler::Transaction, Level::Problem, Level::Fine),
            (Pooler::Statement, Level::Problem, Level::Problem),
            (Pooler::LocksExcludeNobody, Level::Problem, Level::Problem),
            (
                Pooler::Unknown(String::new()),
                Level::Unknown,
                Level::Unknown,
            ),
        ] {
            let found = [None, Some("session"), Some("transaction")].map(|name| {
                let mut facts = Facts::default();
                facts.named_pooler = name.map(str::to_owned);
                let found = judge(&facts, &pooler);
                (found.level, found.message.contains("`advisory.pooler`"))
            });
            let is_said = matches!(pooler, Pooler::None | Pooler::Transaction);
            let expected = [(level, false), (level, false), (named_level, is_said)];
            assert_eq!(found, expected, "{pooler:?}");
            let shares = matches!(pooler, Pooler::Transaction | Pooler::Statement);
            assert_eq!(pooler.shares_sessions(), shares);
        }
    }

    /// The result without the reason why it is not known.
    fn found(server: &Server) -> Pooler {
        match server.find().0 {
            Pooler::Unknown(_) => Pooler::Unknown(String::new()),
            known => known,
        }
    }

    #[test]
    fn each_sign_of_a_pooler_is_enough() {
        let direct = Server::default();
        let renumbers = |startup_pids| Server {
            startup_pids,
            ..direct
        };
        let shares = |in_transaction| Server {
            in_transaction,
            ..direct
        };
        let refuses = |refusal| Server { refusal, ..direct };
        let locks = |locked, is_released| Server {
            locked,
            is_released,
            ..direct
        };
        let (is_older, pids) = (true, [11, 12, 12]);
        let is_one = Server {
            startup_pids: pids,
            pids,
            ..shares(pids)
        };
        let in_statements = "not allowed in statement pooling mode (statement pool)";
        for (server, kind) in [
            (direct, Pooler::None),
            (Server { is_older, ..direct }, Pooler::Session),
            (renumbers([11, 99, 13]), Pooler::Session),
            // The sessions of the first and the last connection show nothing.
            (renumbers([99, 12, 99]), Pooler::None),
            // A session that changes hands.
            (shares([11, 12, 14]), Pooler::Transaction),
            (shares([11, 14, 13]), Pooler::Transaction),
            (shares([11, 13, 12]), Pooler::Transaction),
            (is_one, Pooler::Transaction),
            (refuses(in_statements), Pooler::Statement),
            (refuses("no more"), Pooler::Unknown(String::new())),
            // A lock that two get, or that cannot be released.
            (locks([false, false], true), Pooler::LocksExcludeNobody),
            (locks([true, true], true), Pooler::LocksExcludeNobody),
            (locks([true, false], false), Pooler::LocksExcludeNobody),
        ] {
            assert_eq!(found(&server), kind);
        }
    }

    #[test]
    fn what_is_locked_is_unlocked() {
        let direct = Server::default();
        // For a number and for a pair.
        for (locked, expected) in [(direct.locked, [1, 1]), ([true, true], [2, 1])] {
            let (_, _, queries) = Server { locked, ..direct }.find();
            let unlocks = queries
                .iter()
                .filter(|(_, it)| it.contains("pg_advisory_unlock"));
            let unlocked: Vec<usize> = unlocks.map(|(at, _)| *at).collect();
            assert_eq!(unlocked, expected);
        }
    }

    #[test]
    fn all_sessions_of_the_command_are_known() {
        let direct = Server::default();
        assert_eq!(direct.find().1, [11, 12, 13].into());
        let in_transaction = [11, 14, 15];
        let shares = Server {
            in_transaction,
            ..direct
        };
        assert_eq!(shares.find().1, [11, 12, 13, 15].into());
    }

    #[test]
    fn without_a_second_connection_nothing_is_known() {
        let server = Server {
            connections: 2,
            ..Server::default()
        };
        assert_eq!(found(&server), Pooler::Unknown(String::new()));
        assert_eq!(server.find().1, [11, 12].into());
    }
}
