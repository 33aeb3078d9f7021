//! Many acquirers of one key: one is granted it each round, its token is the next one, and refused
//! ones write nothing.

use advisory_runtime::lease::{Error, LeaseGuard, Leases, Request};
use advisory_tests::leases::{Pool, database, expire, in_transaction, key, leases_at, once};
use diesel::dsl::sql;
use diesel::sql_types::Bool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const ACQUIRERS: usize = 50;
const ROUNDS: i64 = 20;

/// All of them at once, each on a connection of its own.
async fn round(leases: &Leases<Pool>) -> Vec<Result<LeaseGuard, Error>> {
    let start = Arc::new(Barrier::new(ACQUIRERS));
    let mut tries = JoinSet::new();
    for _ in 0..ACQUIRERS {
        let (start, leases) = (Arc::clone(&start), leases.clone());
        tries.spawn(async move {
            start.wait().await;
            leases.acquire(key("k")).await
        });
    }
    tries.join_all().await
}

/// Rounds that end alternately with a release and by expiry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_fifty_gets_the_key_each_round_with_the_largest_token() {
    for level in ["read committed", "repeatable read", "serializable"] {
        let db = database().await;
        db.run(&format!(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''{level}''', \
             current_database()); END $$"
        ))
        .await;
        let (leases, since) = (leases_at(db.url(), ACQUIRERS), Instant::now());
        let mut last = 0;
        for number in 1..=ROUNDS {
            let mut winner = None;
            for tried in round(&leases).await {
                match tried {
                    Ok(held) => {
                        assert!(winner.is_none(), "two hold the key in round {number}");
                        assert!(held.lease().token().get() > last, "round {number}");
                        last = held.lease().token().get();
                        assert!(leases.holds(held.lease()).await.unwrap());
                        winner = Some(held);
                    }
                    Err(error) => assert!(error.is_held(), "round {number}: {error:?}"),
                }
            }
            let winner = winner.unwrap_or_else(|| panic!("nobody holds the key in round {number}"));
            if number % 2 == 0 {
                expire(&db).await;
            }
            winner.finish(Ok::<_, Error>(())).await.unwrap();
        }
        eprintln!("{level}: {ROUNDS} rounds in {:.1?}", since.elapsed());
        assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 1);
    }
}

async fn has_written(pool: &Pool) -> bool {
    let mut conn = pool.get().await.unwrap();
    sql::<Bool>("SELECT pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL")
        .get_result(&mut conn)
        .await
        .unwrap()
}

/// A transaction that writes to the log, even if it is only a row lock, gets a number.
#[tokio::test]
async fn who_is_refused_writes_nothing() {
    let db = database().await;
    let _held = leases_at(db.url(), 1).acquire(key("k")).await.unwrap();
    let version = "SELECT hashtext(ctid || ' ' || xmin || ' ' || xmax) FROM advisory_lease";
    let before = db.count(version).await;
    let pool = in_transaction(db.url(), true);
    let leases = Leases::new(pool.clone());
    for _ in 0..200 {
        let error = once(&leases, key("k")).await.unwrap_err();
        assert!(error.is_held(), "{error:?}");
    }
    assert!(!has_written(&pool).await, "a refusal wrote");
    assert_eq!(db.count(version).await, before);
    once(&leases, key("other")).await.unwrap();
    assert!(has_written(&pool).await, "a grant writes");
}

/// Reads, and writes in a separate statement: two at once would lose an update.
async fn add_one(mut conn: AsyncPgConnection, leases: Leases<Pool>) -> AsyncPgConnection {
    use advisory_tests::bookings::execute;
    use diesel::sql_types::BigInt;
    let mut held = leases.acquire(Request::text("k")).await.unwrap();
    let added = async {
        let n = sql::<BigInt>("SELECT n FROM counter").get_result::<i64>(&mut conn);
        let next = n.await? + 1;
        tokio::task::yield_now().await;
        execute(&mut conn, &format!("UPDATE counter SET n = {next}")).await
    };
    held.run(added).await.unwrap().unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    conn
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_wait_for_each_other_lose_no_update() {
    let db = database().await;
    db.run("CREATE TABLE counter AS SELECT 0::int8 AS n").await;
    let leases = leases_at(db.url(), 3);
    let mut bodies = JoinSet::new();
    for _ in 0..8 {
        let (mut conn, leases) = (db.connect().await, leases.clone());
        bodies.spawn(async move {
            for _ in 0..4 {
                conn = add_one(conn, leases.clone()).await;
            }
        });
    }
    bodies.join_all().await;
    assert_eq!(db.count("SELECT n FROM counter").await, 32);
}
