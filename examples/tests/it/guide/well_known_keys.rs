use advisory_runtime::{Error, Request, advisory_lock, session, well_known};
use advisory_tests::Database;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use std::time::Duration;

crate::guide::page!("well-known-keys", 1);

/// Prisma holds its lock on one session, and builds an index on another.
#[tokio::test]
async fn an_export_that_waits_for_prisma_does_not_hold_up_its_index() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (day date)").await;
    let prisma = session::acquire_owned(db.connect().await, well_known::PRISMA);
    let prisma = prisma.await.unwrap();
    let (mut exporter, mut builder) = (db.connect().await, db.connect().await);
    let build = async {
        let tried = "SELECT 'nobody tries' WHERE NOT EXISTS (SELECT FROM pg_stat_activity \
                     WHERE datname = current_database() AND query LIKE '%pg_try_advisory_lock%' AND pid <> pg_backend_pid())";
        db.until_empty(Duration::from_secs(30), "a try", tried)
            .await;
        let build = "CREATE INDEX CONCURRENTLY booking_day ON booking (day)";
        builder.batch_execute(build).await.unwrap();
        drop(prisma.finish(Ok::<_, Error>(())).await.unwrap());
    };
    let (result, ()) = tokio::join!(export(&mut exporter), build);
    result.unwrap();
    assert_eq!(db.count("SELECT count(*) FROM pg_index WHERE indexrelid = 'booking_day'::regclass AND indisvalid").await, 1);
    let held = session::acquire_owned(exporter, without_sqlx("shop"))
        .await
        .unwrap();
    drop(held.finish(Ok::<_, Error>(())).await.unwrap());
}
