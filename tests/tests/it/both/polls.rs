//! Calls that poll instead of waiting at the server: they are not waiters, and their waits end.

use super::super::{Conn, acquire, begin, connect, end, pid_of, run, spawn};
use advisory_runtime::{Error, Request, Wait};
use advisory_tests::bookings::database;
use advisory_tests::polls::{HOUR, SHORT, until_missed, ways};
use advisory_tests::{Database, assert_error};
use std::time::Duration;

/// There is no waiter, and soon only one lock. A try for several keys holds the free ones until it
/// finds the other one held.
async fn until_alone(db: &Database) {
    loop {
        let locks = db.locks().await;
        assert!(locks.iter().all(|lock| lock.granted), "{locks:?}");
        if locks.len() == 1 {
            return;
        }
    }
}

async fn take(conn: &mut Conn, scope: &str, request: Request) -> Result<(), Error> {
    let held = match scope {
        "xact" => begin(conn, request).await?,
        _ => acquire(conn, request).await?,
    };
    assert!(held.info().waited() > Duration::ZERO);
    end(held, Ok(())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_polling_call_is_not_a_waiter_and_gets_the_free_lock() {
    let db = database().await;
    let mut holder = connect(&db).await;
    for (scope, request) in ways() {
        for wait in [Wait::Session, Wait::Forever, Wait::For(HOUR)] {
            let mut conn = connect(&db).await;
            // Bounds waits at the server only.
            run(&mut conn, "SET lock_timeout = '1ms'").await;
            let pid = pid_of(&mut conn).await;
            let held = begin(&mut holder, 7).await.unwrap();
            let request = request.clone().wait(wait).poll(SHORT);
            let call = spawn(async move { take(&mut conn, scope, request).await });
            until_missed(&db, pid).await;
            until_alone(&db).await;
            end(held, Ok::<_, Error>(())).await.unwrap();
            call.await.unwrap().unwrap();
        }
    }
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_over_times_out_with_a_usable_connection() {
    let db = database().await;
    let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
    let held = begin(&mut holder, 7).await.unwrap();
    let wait = Duration::from_millis(30);
    for (scope, request) in ways() {
        let request = request.poll(SHORT);
        let error = take(&mut conn, scope, request.clone().wait(wait))
            .await
            .unwrap_err();
        assert_error!(error, TimedOut { waited, source: None, .. } if *waited >= wait, "{scope}");
        assert!(error.is_busy());
        for wait in [Wait::Never, Wait::For(Duration::ZERO)] {
            let error = take(&mut conn, scope, request.clone().wait(wait))
                .await
                .unwrap_err();
            assert_error!(error, NotAvailable, "{scope}");
        }
        assert_eq!(db.locks().await.len(), 1, "{scope}: none but the holder's");
        take(&mut conn, scope, Request::new(9).poll(SHORT))
            .await
            .unwrap();
    }
    end(held, Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}
