//! The cost of a claim at the server: the printed index is used, and each claim is one statement.

use crate::sync_job::{SyncJob, database, next};
use advisory_runtime::claim;
use advisory_tests::Proxy;
use diesel::sql_types::Text;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

#[derive(diesel::QueryableByName)]
struct Line {
    #[diesel(sql_type = Text, column_name = "QUERY PLAN")]
    text: String,
}

#[derive(diesel::QueryableByName)]
struct Prepared {
    #[diesel(sql_type = Text)]
    name: String,
}

#[tokio::test]
async fn claims_use_the_printed_index_under_a_generic_plan() {
    let db = database(200_000).await;
    db.run("ANALYZE sync_jobs").await;
    let mut conn = db.connect().await;
    drop(next(&mut conn).await);
    claim::next::<SyncJob>("worker")
        .load(&mut conn, 10)
        .await
        .unwrap();
    let job = claim::next::<SyncJob>("worker")
        .key(7)
        .first(&mut conn)
        .await
        .unwrap()
        .unwrap();
    claim::renew(&mut conn, &job).await.unwrap();
    claim::complete(&mut conn, &job).await.unwrap();
    conn.batch_execute("SET plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    let statements = "SELECT name FROM pg_prepared_statements WHERE statement LIKE '%sync_jobs%' \
         AND statement NOT LIKE '%pg_trigger%' ORDER BY prepare_time";
    let prepared: Vec<Prepared> = diesel::sql_query(statements).load(&mut conn).await.unwrap();
    assert_eq!(prepared.len(), 5);
    let values = [
        "'worker#'",
        "10, 'worker#'",
        "'worker#', 7",
        "7, 'worker'",
        "7, 'worker'",
    ];
    for (nth, (prepared, values)) in prepared.iter().zip(values).enumerate() {
        let explain = format!("EXPLAIN EXECUTE {}({values})", prepared.name);
        let plan: Vec<Line> = diesel::sql_query(explain).load(&mut conn).await.unwrap();
        let plan: Vec<&str> = plan.iter().map(|line| &*line.text).collect();
        let plan = plan.join("\n");
        let index = if nth < 2 {
            "sync_jobs_claim"
        } else {
            "sync_jobs_pkey"
        };
        assert!(
            plan.contains(&format!("Index Scan using {index}")),
            "{plan}"
        );
        assert!(
            !plan.contains("Seq Scan") && !plan.contains("Sort"),
            "{plan}"
        );
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
        claim::next::<SyncJob>("worker")
            .key(id)
            .first(&mut conn)
            .await
            .unwrap();
        claim::next::<SyncJob>("worker")
            .load(&mut conn, 2)
            .await
            .unwrap();
        if is_prepared {
            assert_eq!(proxy.round_trips(), 9, "{:#?}", proxy.queries());
        }
    }
}
