//! What claims send is plain SQL that means the same when it is qualified, and names nothing that a
//! `search_path` could replace.

use advisory_runtime::claim::{self, Claim, Claimed};
use advisory_tests::statements::{assert_qualified, prepared};
use advisory_tests::{Database, claims};
use diesel::prelude::*;
use diesel_async::AsyncPgConnection;

diesel::table! {
    parcel (depot, number) {
        depot -> Text,
        number -> Integer,
        run_at -> Timestamptz,
        attempts -> SmallInt,
        locked_until -> Nullable<Timestamp>,
        locked_by -> Nullable<Uuid>,
        completed_at -> Nullable<Timestamptz>,
        failed_at -> Nullable<Timestamptz>,
        error_message -> Nullable<Text>,
        status -> Nullable<Text>,
    }
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = parcel)]
#[claim(key = (depot, number), order = "depot desc, number", ttl = "5m", run_at, attempts, max_attempts = 3)]
struct Parcel {
    depot: String,
    number: i32,
}

#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = parcel)]
#[claim(key = (depot, number), ttl = "5m", run_at, attempts, max_attempts = 3, per = "depot", limit = 40)]
struct OfDepot {
    depot: String,
    number: i32,
}

/// The same ends by the statement for several claims.
#[derive(Queryable, Selectable, Claim)]
#[diesel(table_name = parcel)]
#[claim(key = (depot, number), ttl = "5m", run_at, attempts, max_attempts = 3, completed = status.eq("done"), failed = status.eq("failed"))]
struct Told {
    depot: String,
    number: i32,
}

async fn each_end<T: claim::KeepsCompleted + claim::Fails + claim::Retries>(
    conn: &mut AsyncPgConnection,
) {
    let mut jobs = Vec::new();
    for _ in 0..7 {
        let job: Option<Claimed<T>> = claims::first(conn).await;
        jobs.push(job.unwrap());
    }
    claim::renew(conn, &jobs[0]).await.unwrap();
    claim::complete(conn, &jobs[0]).await.unwrap();
    claim::fail(conn, &jobs[1], "why").await.unwrap();
    claim::retry(conn, &jobs[2], "why", None).await.unwrap();
    let after = Some(std::time::Duration::from_secs(9));
    claim::retry(conn, &jobs[3], "why", after).await.unwrap();
    claim::release(conn, &jobs[4]).await.unwrap();
    claim::delete(conn, &jobs[5]).await.unwrap();
    claim::complete(conn, &jobs[5]).await.unwrap_err();
    advisory_tests::bookings::in_transaction(conn, async |conn| {
        claim::complete(conn, &jobs[6]).await
    })
    .await
    .unwrap();
    let several = claims::load::<T>(conn, 2).await;
    assert_eq!(several.len(), 2);
    claim::counts::<T, _>(conn).await.unwrap();
}

#[tokio::test]
async fn statements_mean_the_same_when_they_are_qualified() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE parcel (depot text, number int4, run_at timestamptz NOT NULL DEFAULT now(), attempts int2 NOT NULL DEFAULT 0, \
             locked_until timestamp, locked_by uuid, completed_at timestamptz, failed_at timestamptz, error_message text, status text, \
             PRIMARY KEY (depot, number)); \
         INSERT INTO parcel (depot, number) SELECT 'north', generate_series(1, 40)",
    )
    .await;
    let mut conn = db.connect().await;
    each_end::<Parcel>(&mut conn).await;
    each_end::<OfDepot>(&mut conn).await;
    each_end::<Told>(&mut conn).await;
    let by_key = claims::by_key::<Parcel>(&mut conn, ("north", 33)).await;
    assert_eq!(by_key.unwrap().number, 33);
    let by_key = claims::by_key::<OfDepot>(&mut conn, ("north", 34)).await;
    assert_eq!(by_key.unwrap().depot, "north");
    db.run("UPDATE parcel SET attempts = 3 WHERE number > 34")
        .await;
    let failed = claims::load::<Told>(&mut conn, 9).await;
    drop(failed);
    let sent = prepared(&mut conn, "parcel").await;
    assert!(sent.len() > 20, "{}", sent.len());
    assert_qualified(&db, &sent).await;
}
