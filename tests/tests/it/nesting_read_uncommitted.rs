//! A locked call inside a READ UNCOMMITTED transaction, which PostgreSQL treats as READ COMMITTED.

use crate::calls::book;
use advisory_runtime::{Request, Wait, xact};
use advisory_tests::bookings::{committed, database, execute, in_transaction, run};
use diesel::result::Error as DieselError;

#[tokio::test]
async fn a_nested_call_works_for_a_read_uncommitted_role() {
    let db = database().await;
    let mut conn = db.connect().await;
    run(
        &mut conn,
        "SET default_transaction_isolation = 'read uncommitted'",
    )
    .await;
    for (room, is_first) in [(7, true), (8, false)] {
        in_transaction::<_, DieselError>(&mut conn, async |conn| {
            if !is_first {
                execute(conn, "SELECT 1").await?;
            }
            assert!(book(conn, room, "Ada").await?);
            for wait in [Wait::Never, Wait::Session] {
                xact::lock(conn, Request::new(9).wait(wait)).await?;
            }
            Ok(())
        })
        .await
        .unwrap();
        assert_eq!(committed(&db, room).await, 1);
    }
    db.until_no_locks().await;
}
