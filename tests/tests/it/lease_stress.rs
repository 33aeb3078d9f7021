//! Many acquirers of one key: one is granted it each round, its token is the next one, and refused
//! ones write nothing.

use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::lease::{Error, Lease, Leases, Request, Table};
use advisory_tests::Database;
use advisory_tests::leases::{database, expire, key};
use diesel::dsl::sql;
use diesel::sql_types::{BigInt, Bool};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const ACQUIRERS: usize = 50;
const ROUNDS: i64 = 30;

/// All of them at once, and each with the connection of its try.
async fn round(
    conns: Vec<AsyncPgConnection>,
    table: &Table,
) -> Vec<(AsyncPgConnection, Result<Lease, Error>)> {
    let start = Arc::new(Barrier::new(conns.len()));
    let mut tries = JoinSet::new();
    for mut conn in conns {
        let (start, table) = (Arc::clone(&start), table.clone());
        tries.spawn(async move {
            start.wait().await;
            let answer = table.acquire(&mut conn, key("k")).await;
            (conn, answer)
        });
    }
    tries.join_all().await
}

/// Rounds that end alternately with a release and by expiry.
async fn rounds(level: &str) {
    let db = database().await;
    let mut conns = Vec::new();
    for _ in 0..ACQUIRERS {
        let mut conn = db.connect().await;
        conn.batch_execute(&format!("SET default_transaction_isolation = '{level}'"))
            .await
            .unwrap();
        conns.push(conn);
    }
    let (table, since) = (Table::new(), Instant::now());
    let mut last = 0;
    for number in 1..=ROUNDS {
        let mut winner = None;
        for (mut conn, tried) in round(std::mem::take(&mut conns), &table).await {
            match tried {
                Ok(lease) => {
                    assert!(winner.is_none(), "two hold the key in round {number}");
                    assert!(lease.token().get() > last, "round {number}");
                    last = lease.token().get();
                    assert!(table.holds(&mut conn, &lease).await.unwrap());
                    winner = Some(lease);
                }
                Err(error) => assert!(error.is_held(), "round {number}: {error:?}"),
            }
            conns.push(conn);
        }
        let winner = winner.unwrap_or_else(|| panic!("nobody holds the key in round {number}"));
        if number % 2 == 0 {
            expire(&db).await;
        } else {
            assert!(table.release(&mut conns[0], &winner).await.unwrap());
        }
    }
    eprintln!("{level}: {ROUNDS} rounds in {:.1?}", since.elapsed());
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_fifty_gets_the_key_each_round_with_the_largest_token() {
    rounds("read committed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_fifty_gets_the_key_each_round_at_repeatable_read() {
    rounds("repeatable read").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_fifty_gets_the_key_each_round_at_serializable() {
    rounds("serializable").await;
}

async fn has_written(conn: &mut AsyncPgConnection) -> bool {
    sql::<Bool>("SELECT pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL")
        .get_result(conn)
        .await
        .unwrap()
}

/// A transaction that writes to the log, even if it is only a row lock, gets a number.
#[tokio::test]
async fn who_is_refused_writes_nothing() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let table = Table::new();
    table.acquire(&mut holder, key("k")).await.unwrap();
    let version = "SELECT hashtext(ctid || ' ' || xmin || ' ' || xmax) FROM advisory_lease";
    let before = db.count(version).await;
    conn.begin_test_transaction().await.unwrap();
    for _ in 0..200 {
        let error = table.acquire(&mut conn, key("k")).await.unwrap_err();
        assert!(error.is_held(), "{error:?}");
    }
    assert!(!has_written(&mut conn).await, "a refusal wrote");
    assert_eq!(db.count(version).await, before);
    table.acquire(&mut conn, key("other")).await.unwrap();
    assert!(has_written(&mut conn).await, "a grant writes");
}

async fn counter(conn: &mut AsyncPgConnection) -> i64 {
    sql::<BigInt>("SELECT n FROM counter")
        .get_result(conn)
        .await
        .unwrap()
}

/// Reads, and writes in a separate statement: two at once would lose an update.
async fn add_one(db: &Database, leases: Leases<impl advisory_runtime::lease::Store>) {
    let mut conn = db.connect().await;
    let mut held = leases.acquire(Request::text("k")).await.unwrap();
    let added = held
        .run(async {
            let next = counter(&mut conn).await + 1;
            tokio::task::yield_now().await;
            let update = format!("UPDATE counter SET n = {next}");
            conn.batch_execute(&update).await
        })
        .await
        .unwrap();
    added.unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_wait_for_each_other_lose_no_update() {
    let db = Arc::new(database().await);
    db.run("CREATE TABLE counter AS SELECT 0::int8 AS n").await;
    let leases = Leases::new(db.deadpool(3));
    let mut bodies = JoinSet::new();
    for _ in 0..8 {
        let (db, leases) = (Arc::clone(&db), leases.clone());
        bodies.spawn(async move {
            for _ in 0..4 {
                add_one(&db, leases.clone()).await;
            }
        });
    }
    bodies.join_all().await;
    assert_eq!(db.count("SELECT n FROM counter").await, 32);
}
