//! The cost of a claim at the server: the printed index is used, and each claim is one statement.

use crate::sync_job::{SyncJob, database, next};
use advisory_runtime::claim;
use advisory_tests::Proxy;
use advisory_tests::claims;
use advisory_tests::statements::{explain, names, run};
use diesel_async::{AsyncConnection, AsyncPgConnection};

#[tokio::test]
async fn claims_use_the_printed_index_under_a_generic_plan() {
    let db = database(200_000).await;
    db.run("ANALYZE sync_jobs").await;
    let mut conn = db.connect().await;
    drop(next(&mut conn).await);
    claims::load::<SyncJob>(&mut conn, 10).await;
    let job = claims::by_key::<SyncJob>(&mut conn, 7).await.unwrap();
    claim::renew(&mut conn, &job).await.unwrap();
    claim::complete(&mut conn, &job).await.unwrap();
    run(&mut conn, "SET plan_cache_mode = force_generic_plan").await;
    let names = names(&mut conn, "sync_jobs").await;
    assert_eq!(names.len(), 5);
    let values = [
        "'worker#'",
        "10, 'worker#'",
        "'worker#', 7",
        "7, 'worker'",
        "7, 'worker'",
    ];
    for (nth, (name, values)) in names.iter().zip(values).enumerate() {
        let execute = format!("EXECUTE {name}({values})");
        let plan = explain(&mut conn, "EXPLAIN", &execute).await;
        let index = if nth < 2 { "claim" } else { "pkey" };
        let scan = format!("Index Scan using sync_jobs_{index}");
        assert!(plan.contains(&scan), "{plan}");
        assert!(!plan.contains("Seq Scan"), "{plan}");
        assert!(!plan.contains("Sort"), "{plan}");
    }
}

#[tokio::test]
async fn each_is_one_round_trip_once_it_is_prepared() {
    let db = database(20).await;
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    for is_prepared in [false, true] {
        proxy.reset();
        let job = next(&mut conn).await;
        claim::renew(&mut conn, &job).await.unwrap();
        claim::complete(&mut conn, &job).await.unwrap();
        let job = next(&mut conn).await;
        claim::fail(&mut conn, &job, "why").await.unwrap();
        let job = next(&mut conn).await;
        claim::release(&mut conn, &job).await.unwrap();
        let id = job.id;
        claims::by_key::<SyncJob>(&mut conn, id).await;
        claims::load::<SyncJob>(&mut conn, 2).await;
        if is_prepared {
            assert_eq!(proxy.round_trips(), 9, "{:#?}", proxy.queries());
        }
    }
}
