//! Leases with the time in their key.

use advisory_runtime::{Pool as _, advisory_lease, lease::Error, lease::Table};
use advisory_tests::Database;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncPgConnection, RunQueryDsl, pooled_connection::bb8::Pool};

crate::guide::page!("periodic-jobs", 2);

#[tokio::test]
async fn each_minute_is_reported_once_also_after_a_restart() {
    let db = Database::create().await;
    db.run("CREATE TABLE report (minute int8)").await;
    Table::new().set_up(&mut db.connect().await).await.unwrap();
    for _ in 0..2 {
        let (one, other) = (db.bb8(2).await, db.bb8(2).await);
        let (a, b) = tokio::join!(report(&one, 7), report(&other, 7));
        a.unwrap();
        b.unwrap();
    }
    report(&db.bb8(2).await, 8).await.unwrap();
    let reported = "SELECT count(*) * 10 + count(DISTINCT minute) FROM report";
    assert_eq!(db.count(reported).await, 22);
}

crate::guide::page!("periodic-jobs", 3);

#[tokio::test]
async fn the_reports_of_a_day_are_sent_once() {
    let db = Database::create().await;
    Table::new().set_up(&mut db.connect().await).await.unwrap();
    let pool = db.bb8(3).await;
    let instances = [(); 3].map(|()| send_reports(&pool, "2026-11-23"));
    let [first, second, third] = instances;
    let (first, second, third) = tokio::join!(first, second, third);
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    let row = "SELECT count(*) FROM advisory_lease WHERE pattern = 'reports:<day>' AND is_kept AND token <= (1::int8 << 40) + 5";
    assert_eq!(db.count(row).await, 1);
}
