//! A process that holds many leases: they are renewed together. And many
//! that want one key.

use advisory_runtime::lease::{Error, LeaseGuard, Leases};
use advisory_tests::leases::{
    GENEROUS, Pool, database, expire, finish, in_transaction, key, leases_at, once,
};
use advisory_tests::pauses::pause;
use advisory_tests::{Database, Proxy};
use diesel::dsl::sql;
use diesel::sql_types::Bool;
use diesel_async::RunQueryDsl;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const LEASES: u32 = 300;
const EVERY: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_leases_cost_a_few_statements_for_each_interval() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    // So that each round trip is a statement.
    let pool = Database::unchecked_deadpool_at(proxy.url());
    let leases = Leases::new(pool);
    let mut held = Vec::new();
    for number in 0..LEASES {
        let request = key(&format!("k{number}")).ttl(EVERY * 10).renew(EVERY);
        held.push(leases.acquire(request).await.unwrap());
    }
    let renewed_since = |since: i64| {
        format!(
            "SELECT 'no' FROM advisory_lease WHERE (extract(epoch FROM expires_at) * 1000000)::int8 <= {since} + {} LIMIT 1",
            (EVERY * 10).as_micros()
        )
    };
    let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8";
    // They become due at different times first.
    let mut since = db.count(now).await;
    db.until_none("a renewal of each", &renewed_since(since))
        .await;
    for _ in 0..2 {
        let began = Instant::now();
        proxy.reset();
        since = db.count(now).await;
        db.until_none("a renewal of each", &renewed_since(since))
            .await;
        let (statements, time) = (proxy.round_trips(), began.elapsed());
        let intervals = usize::try_from(time.as_millis() / EVERY.as_millis()).unwrap() + 1;
        assert!(statements <= 10 * intervals, "{statements} in {time:?}");
    }
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%renewed AS%' \
         AND pid <> pg_backend_pid()";
    let sessions = db.count(sessions).await;
    assert!(sessions <= 2, "{sessions}");
    assert!(held.iter().all(|guard| guard.lease().is_held()));
    // One that is lost does not stop the others.
    db.run("UPDATE advisory_lease SET expires_at = clock_timestamp() WHERE ctid = (SELECT min(ctid) FROM advisory_lease)").await;
    let lost = || held.iter().filter(|guard| !guard.lease().is_held()).count();
    since = db.count(now).await;
    let others = renewed_since(since).replace("LIMIT 1", "OFFSET 1");
    db.until_none("a renewal of the others", &others).await;
    let until = Instant::now() + GENEROUS;
    while lost() == 0 && Instant::now() < until {
        pause().await;
    }
    assert_eq!(lost(), 1);
    for guard in held {
        drop(finish(guard).await);
    }
}

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
            finish(winner).await.unwrap();
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
