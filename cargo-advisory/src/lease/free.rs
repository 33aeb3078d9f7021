//! Frees the key of a lease or of completed work, if its row is still the one that was shown.

use std::hash::{BuildHasher, RandomState};

use advisory_runtime::lease::{Row, Table};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

use crate::cli::NAME;
use crate::database::{connect, failure, with_timeout};
use crate::failure::Failure;
use crate::locks::hex;

/// How long it waits for a transaction that has fenced a write. It is part of the message, and ends with it.
const WAIT: &str = "SELECT pg_catalog.set_config('lock_timeout', '5s', true)";

/// Takes the row from its holder, and ends it; `false` if it has changed.
///
/// As a take-over, it locks the row against a fence, so that no fenced write is in the middle, and changes the token and the number of the
/// grant: neither a renewal of the former holder nor a clock that is set back makes the lease valid again.
pub(super) async fn free(address: &str, table: &Table, row: &Row) -> Result<bool, Failure> {
    // Lower-case letters, digits and `_`, and a full stop.
    let name = table.name();
    let (schema, relation) = name.split_once('.').unwrap_or(("public", &name));
    let grant = RandomState::new()
        .hash_one(std::process::id())
        .cast_signed();
    let statement = format!(
        "{WAIT}; WITH own AS MATERIALIZED (SELECT key_hash AS found FROM \"{schema}\".\"{relation}\" \
         WHERE key_hash OPERATOR(pg_catalog.=) CAST('\\x{hash}' AS pg_catalog.bytea) \
         AND token OPERATOR(pg_catalog.=) CAST('{token}' AS pg_catalog.int8) FOR UPDATE) \
         UPDATE \"{schema}\".\"{relation}\" AS l SET token = GREATEST(\
         pg_catalog.nextval(CAST('\"{schema}\".\"{relation}_token\"' AS pg_catalog.regclass)), \
         l.token OPERATOR(pg_catalog.+) CAST(1 AS pg_catalog.int8)), grant_id = CAST('{grant}' AS pg_catalog.int8), \
         holder = '{NAME}', key = NULL, data = NULL, is_kept = false, expires_at = pg_catalog.clock_timestamp() \
         FROM own WHERE l.key_hash OPERATOR(pg_catalog.=) own.found \
         AND l.token OPERATOR(pg_catalog.=) CAST('{token}' AS pg_catalog.int8) \
         AND l.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()",
        hash = hex(&row.key_hash),
        token = row.token.get(),
    );
    let (client, connection) = connect(address).await?;
    let connection = tokio::spawn(async move { drop(connection.await) });
    let answer = with_timeout(client.simple_query(&statement)).await;
    drop(client);
    drop(connection.await);
    match answer? {
        Ok(messages) => {
            let is_changed =
                |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::CommandComplete(1..));
            Ok(messages.last().is_some_and(is_changed))
        }
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Err(Failure::Input(
            "the holder writes under the lease's fence, and its transaction did not end within five seconds. Nothing was done: \
             repeat this, or end its session"
                .to_owned(),
        )),
        Err(error) => Err(failure(&error)),
    }
}
