//! A process that holds many leases: they are renewed together.

use advisory_runtime::lease::{Error, Leases};
use advisory_tests::Proxy;
use advisory_tests::leases::{database, key};
use advisory_tests::pauses::pause;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod, deadpool,
};
use std::time::{Duration, Instant};

const LEASES: u32 = 300;
const EVERY: Duration = Duration::from_secs(6);
const GENEROUS: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_leases_cost_a_few_statements_for_each_interval() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    // So that each round trip is a statement.
    let mut config = ManagerConfig::default();
    config.recycling_method = RecyclingMethod::Fast;
    let manager =
        AsyncDieselConnectionManager::<AsyncPgConnection>::new_with_config(proxy.url(), config);
    let pool = deadpool::Pool::builder(manager)
        .max_size(1)
        .build()
        .unwrap();
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
    db.until_empty(GENEROUS, "a renewal of each", &renewed_since(since))
        .await;
    for _ in 0..2 {
        let began = Instant::now();
        proxy.reset();
        since = db.count(now).await;
        db.until_empty(GENEROUS, "a renewal of each", &renewed_since(since))
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
    db.until_empty(GENEROUS, "a renewal of the others", &others)
        .await;
    let until = Instant::now() + GENEROUS;
    while lost() == 0 && Instant::now() < until {
        pause().await;
    }
    assert_eq!(lost(), 1);
    for guard in held {
        drop(guard.finish(Ok::<_, Error>(())).await);
    }
}
