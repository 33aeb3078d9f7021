//! A leader whose primary is killed, or goes on by itself while its standby is promoted.

use advisory_tests::campaigns::{Campaigns, ORDER, TTL, WORK};
use advisory_tests::failover::{connect, cut_off, either, number, primary, timeline_of};
use diesel_async::SimpleAsyncConnection;
use std::time::{Duration, Instant};

/// The new primary does not know the term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_followed_by_a_larger_token() {
    let Some(primary) = primary().await else {
        return;
    };
    connect(&primary).await.batch_execute(WORK).await.unwrap();
    let standby = primary.follow().await;
    cut_off(&primary, &standby).await;
    let url = either(&primary, &standby);
    let campaigns = Campaigns::start([url.clone(), url]);
    let first = campaigns
        .until(|store| (store.largest > 0).then_some(store.largest))
        .await;
    assert_eq!(timeline_of(first), 1);
    primary.stop("immediate").await;
    let killed = Instant::now();
    standby.promote().await;
    campaigns
        .until(|store| (store.largest > first).then_some(()))
        .await;
    let store = campaigns.end().await;
    assert_eq!(timeline_of(store.largest), 2);
    // The first leader stopped by itself, within its ttl; a second is for a machine that is busy.
    let (_, last) = store.written[&first];
    let late = last.saturating_duration_since(killed);
    assert!(late < TTL + Duration::from_secs(1), "{late:?}");
}

/// Both lead at once, since neither primary knows of the other. Storage takes the writes of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_leader_is_refused_by_storage() {
    let Some(primary) = primary().await else {
        return;
    };
    connect(&primary).await.batch_execute(WORK).await.unwrap();
    let standby = primary.follow().await;
    cut_off(&primary, &standby).await;
    let urls = [&primary, &standby].map(|server| server.url().to_owned());
    let campaigns = Campaigns::start(urls);
    let isolated = campaigns
        .until(|store| (store.largest > 0).then_some(store.largest))
        .await;
    assert_eq!(timeline_of(isolated), 1);
    standby.promote().await;
    let after = campaigns
        .until(|store| {
            let is_refused = store
                .refused
                .get(&isolated)
                .is_some_and(|times| *times >= 3);
            (is_refused && store.largest > isolated).then_some(store.largest)
        })
        .await;
    assert_eq!(timeline_of(after), 2);
    let store = campaigns.end().await;
    assert!(store.refused.keys().all(|token| timeline_of(*token) == 1));
    // What the isolated leader wrote under its fence is in its own database, and in no other.
    let mut conn = connect(&standby).await;
    let old = "SELECT count(*) FROM work WHERE token >> 40 = 1";
    assert_eq!(number(&mut conn, old).await, 0);
    assert!(number(&mut conn, ORDER[0]).await > 0);
    assert!(number(&mut connect(&primary).await, old).await > 0);
}
