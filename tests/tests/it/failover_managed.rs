//! A cluster under a failover manager, which `scripts/failover` starts: whether it loses a booking,
//! or has two leaders.

use crate::calls::book_across;
use advisory_runtime::lease::Table;
use advisory_tests::campaigns::{Campaigns, ORDER, WORK};
use advisory_tests::failover::{BOOKING, number, reconnect, timeline_of};
use advisory_tests::futures::spawn_blocking;
use advisory_tests::left_out;
use diesel_async::SimpleAsyncConnection;
use std::process::Command;

/// The addresses of all servers, of which the one that writes is wanted.
const URL: &str = "ADVISORY_TEST_FAILOVER_URL";

/// Ends the primary.
const COMMAND: &str = "ADVISORY_TEST_FAILOVER_COMMAND";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_managed_failover_loses_no_booking_and_no_term() {
    let (Ok(url), Ok(command)) = (std::env::var(URL), std::env::var(COMMAND)) else {
        return left_out(
            "manager",
            "no address of a cluster is set: `scripts/failover` does",
        );
    };
    let mut conn = reconnect(&url).await;
    conn.batch_execute("DROP TABLE IF EXISTS booking, work")
        .await
        .unwrap();
    conn.batch_execute(BOOKING).await.unwrap();
    conn.batch_execute(WORK).await.unwrap();
    Table::new().set_up(&mut conn).await.unwrap();
    let campaigns = Campaigns::start([url.clone(), url.clone()]);
    let first = campaigns
        .until(|store| (store.largest > 0).then_some(store.largest))
        .await;
    book_across(&url, 2_000, async {
        let ended = spawn_blocking(move || Command::new("sh").args(["-c", &command]).status());
        assert!(ended.await.unwrap().unwrap().success());
    })
    .await;
    let after = campaigns
        .until(|store| (store.largest > first).then_some(store.largest))
        .await;
    campaigns.end().await;
    assert_eq!(timeline_of(after), timeline_of(first) + 1);
    let mut conn = reconnect(&url).await;
    assert_eq!(number(&mut conn, ORDER[1]).await, 0);
    assert_eq!(number(&mut conn, ORDER[0]).await, 2);
}
