//! A coordinator and two workers, and observers of their state.

use advisory_runtime::Error;
use advisory_tests::{Database, left_out};
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::{QueryResult, QueryableByName};
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::process::Command;
use std::time::Duration;
use tokio::time::Instant;

/// The sessions that other nodes have opened.
pub(super) const INTERNAL: &str = "FROM pg_stat_activity WHERE application_name LIKE 'citus_internal%' AND pid <> pg_backend_pid()";

/// The addresses of the coordinator and its workers, separated by spaces.
const URLS: &str = "ADVISORY_TEST_CITUS_URLS";

/// How long a state may take to come.
const GENEROUS: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(super) struct Node(String);

pub(super) struct Cluster {
    pub(super) coordinator: Node,
    pub(super) workers: [Node; 2],
}

#[derive(QueryableByName)]
pub(super) struct Number {
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(super) number: Option<i64>,
}

#[derive(QueryableByName)]
struct Line {
    #[diesel(sql_type = Text)]
    line: String,
}

/// The cluster that the environment names; `None` if it names none.
pub(super) fn cluster() -> Option<Cluster> {
    let urls = std::env::var(URLS).unwrap_or_default();
    let mut nodes = urls.split(' ').map(|url| Node(url.to_owned()));
    let (Some(coordinator), Some(one), Some(two)) = (nodes.next(), nodes.next(), nodes.next())
    else {
        left_out("citus", "no cluster is named: `scripts/citus` starts one");
        return None;
    };
    Some(Cluster {
        coordinator,
        workers: [one, two],
    })
}

impl Cluster {
    pub(super) fn nodes(&self) -> [&Node; 3] {
        [&self.coordinator, &self.workers[0], &self.workers[1]]
    }

    pub(super) async fn run(&self, sql: &str) {
        self.coordinator.run(sql).await;
    }

    /// Creates a distributed table of balances with two rows, on different workers. The first one's
    /// id is 1; returns the other's.
    pub(super) async fn accounts(&self, table: &str) -> i64 {
        self.run(&format!(
            "DROP TABLE IF EXISTS {table}; CREATE TABLE {table} (id int8 PRIMARY KEY, balance int8 NOT NULL); \
             SELECT create_distributed_table('{table}', 'id'); \
             INSERT INTO {table} VALUES (1, 0)"
        ))
        .await;
        let node_of = |id: &str| {
            format!(
                "(SELECT nodeport FROM pg_dist_shard_placement WHERE shardid = get_shard_id_for_distribution_column('{table}', {id}))"
            )
        };
        let other = format!(
            "SELECT min(id)::int8 AS number FROM generate_series(2, 64) AS id WHERE {} <> {}",
            node_of("id"),
            node_of("1")
        );
        let other = self.coordinator.number(&other).await;
        self.run(&format!("INSERT INTO {table} VALUES ({other}, 0)"))
            .await;
        other
    }
}

impl Node {
    pub(super) fn url(&self) -> &str {
        &self.0
    }

    /// A new connection, also of a server that a crash is restarting.
    pub(super) async fn connect(&self) -> AsyncPgConnection {
        let begun = Instant::now();
        loop {
            match AsyncPgConnection::establish(&self.0).await {
                Ok(conn) => return conn,
                Err(error) => assert!(begun.elapsed() < GENEROUS, "{error}"),
            }
            tokio::task::yield_now().await;
        }
    }

    pub(super) fn pool(&self, size: usize) -> Pool<AsyncPgConnection> {
        Database::deadpool_at(&self.0, size)
    }

    /// Runs statements, each in a transaction of its own, on a new connection.
    pub(super) async fn run(&self, sql: &str) {
        let mut conn = self.connect().await;
        for statement in sql.split("; ") {
            conn.batch_execute(statement)
                .await
                .unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    }

    /// Crashes the server, and waits until it has ended all its sessions and has started again.
    pub(super) async fn crash(&self) {
        const LOCK: &str = "SELECT 1::int8 AS number FROM pg_advisory_lock(7, 31247)";
        const IS_GONE: &str = "SELECT (count(*) = 0)::int::int8 AS number FROM pg_locks \
             WHERE locktype = 'advisory' AND classid = 7 AND objid = 31247";
        let (mut holder, mut victim) = (self.connect().await, self.connect().await);
        number(&mut holder, LOCK).await;
        let pid = number(&mut victim, "SELECT pg_backend_pid()::int8 AS number").await;
        let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
        assert!(killed.unwrap().success());
        loop {
            let mut conn = self.connect().await;
            let answer = diesel::sql_query(IS_GONE).get_result::<Number>(&mut conn);
            if answer.await.is_ok_and(|gone| gone.number == Some(1)) {
                return;
            }
        }
    }

    pub(super) async fn refusal(&self, sql: &str) -> String {
        let refused = self.connect().await.batch_execute(sql).await;
        refused.expect_err(sql).to_string()
    }

    pub(super) async fn number(&self, sql: &str) -> i64 {
        number(&mut self.connect().await, sql).await
    }

    pub(super) async fn lines(&self, sql: &str) -> Vec<String> {
        let mut conn = self.connect().await;
        let found = diesel::sql_query(sql).load::<Line>(&mut conn).await;
        found.unwrap().into_iter().map(|it| it.line).collect()
    }

    pub(super) async fn until(&self, what: &str, sql: &str) {
        let mut conn = self.connect().await;
        let begun = Instant::now();
        while number(&mut conn, sql).await == 0 {
            assert!(begun.elapsed() < GENEROUS, "not in time: {what}");
            tokio::task::yield_now().await;
        }
    }
}

pub(super) async fn number(conn: &mut AsyncPgConnection, sql: &str) -> i64 {
    let found = diesel::sql_query(sql).get_result::<Number>(conn).await;
    found
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
        .number
        .unwrap_or_default()
}

pub(super) async fn execute(conn: &mut AsyncPgConnection, sql: &str) -> QueryResult<usize> {
    diesel::sql_query(sql).execute(conn).await
}

/// One of two calls that wait for each other ends with 40P01, and the other goes on.
pub(super) fn assert_deadlock(lock_then_row: Result<(), Error>, row_then_lock: Result<(), Error>) {
    match (lock_then_row, row_then_lock) {
        // A statement of the body has its own error.
        (Err(Error::Database(error)), Ok(())) => {
            assert!(error.to_string().contains("deadlock"), "{error}");
        }
        (Ok(()), Err(Error::Deadlock { .. })) => {}
        both => panic!("{both:?}"),
    }
}

/// Passes time, as the work of a call does, or what disturbs it.
#[allow(
    clippy::disallowed_methods,
    reason = "a trial of a load has no state to wait for"
)]
pub(super) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

#[allow(
    clippy::print_stdout,
    reason = "the script takes the table from the output"
)]
pub(super) fn row(tried: &str, result: &str) {
    println!("| {tried} | {result} |");
}
