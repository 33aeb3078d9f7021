//! The table of leases, and what tests do with its rows.

use crate::Database;
use advisory_runtime::Wait;
use advisory_runtime::lease::{Lease, Request, Table};
use diesel::dsl::sql;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::interval;

/// The last number before the tokens of a server that was never promoted.
pub const FIRST: i64 = 1 << 40;

/// A database with the table, whose sequence has been moved to the server's timeline as by the
/// first grant.
pub async fn database() -> Database {
    let db = Database::create().await;
    Table::new().set_up(&mut db.connect().await).await.unwrap();
    db.run(&format!("SELECT setval('advisory_lease_token', {FIRST})"))
        .await;
    db
}

/// A request for a key that does not wait.
pub fn key(text: &str) -> Request {
    Request::text(text).wait(Wait::Never)
}

/// Makes every lease expire.
pub async fn expire(db: &Database) {
    db.run("UPDATE advisory_lease SET expires_at = pg_catalog.clock_timestamp()")
        .await;
}

/// Waits until another session of this database has been refused a lease: a try is prepared, sent,
/// and sent again.
pub async fn until_refused(conn: &mut AsyncPgConnection) {
    let started = "SELECT (extract(epoch FROM query_start) * 1000000)::int8 FROM pg_stat_activity \
                   WHERE query LIKE 'WITH free AS%' AND pid <> pg_backend_pid() AND datname = current_database()";
    let mut tries = BTreeSet::new();
    let mut pause = interval(Duration::from_millis(2));
    while tries.len() < 4 {
        let seen: Vec<i64> = sql::<BigInt>(started).load(conn).await.unwrap();
        tries.extend(seen);
        pause.tick().await;
    }
}

/// A body that still runs with so little time left is dropped too late: a tenth of the ttl is a
/// safety margin.
pub const NEAR: Duration = Duration::from_millis(50);

/// Checks repeatedly how long the lease is held, and whether it is held by the server's clock: a
/// body that runs too close to the expiry is found, however slow the machine is.
pub async fn run_while_held(db: &Database, lease: &Lease) -> ! {
    let held =
        "SELECT count(*) FROM advisory_lease WHERE expires_at > pg_catalog.clock_timestamp()";
    let mut pause = interval(Duration::from_millis(10));
    loop {
        pause.tick().await;
        assert!(lease.remaining() > NEAR, "the body runs at the expiry");
        assert_eq!(db.count(held).await, 1, "the body runs behind the expiry");
    }
}
