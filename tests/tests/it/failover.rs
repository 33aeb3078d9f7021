//! Failovers with the servers' own programs: a standby is promoted, with every commit of its
//! primary or without the last ones.

use crate::calls::{book, book_across};
use advisory_tests::OwnServer;
use advisory_tests::failover::{
    BOOKING, connect, cut_off, either, number, primary, timeline_of, token, until,
};
use diesel_async::SimpleAsyncConnection;

/// Keys with a row and without one, twice.
#[tokio::test]
async fn tokens_grow_across_failovers_that_lose_grants() {
    let Some(primary) = primary().await else {
        return;
    };
    let second = primary.follow().await;
    let first = token(&primary, "k").await;
    assert_eq!(timeline_of(first), 1);
    cut_off(&primary, &second).await;
    let mut largest = first;
    // A sequence is logged 32 numbers ahead.
    for number in 0..100 {
        let lost = token(&primary, if number % 2 == 0 { "k" } else { "new" }).await;
        assert!(lost > largest);
        largest = lost;
    }
    // It goes on by itself, as a primary that is cut off does.
    let isolated = token(&primary, "k").await;
    second.promote().await;
    let after = token(&second, "k").await;
    assert_eq!(timeline_of(after), 2);
    assert!(after > isolated);
    assert!(token(&second, "new").await > largest);
    // Storage that compares tokens refuses the isolated holder's, whenever they were granted.
    for _ in 0..3 {
        let late = token(&primary, "new").await;
        assert!(late < after && timeline_of(late) == 1);
    }
    // And once more.
    let fourth = second.follow().await;
    cut_off(&second, &fourth).await;
    let lost = token(&second, "new").await;
    fourth.promote().await;
    let after = token(&fourth, "new").await;
    assert!(after > lost && timeline_of(after) == 3);
    assert_eq!(token(&fourth, "new").await, after + 1);
}

async fn follow_synchronously(primary: &OwnServer) -> OwnServer {
    let standby = primary.follow().await;
    let mut conn = connect(primary).await;
    conn.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        .await
        .unwrap();
    conn.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    until(
        &mut conn,
        "EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')",
    )
    .await;
    standby
}

/// The primary is killed while clients book; they reconnect to the standby, which is promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_booking_is_lost_or_made_twice_by_a_synchronous_failover() {
    let Some(primary) = primary().await else {
        return;
    };
    connect(&primary)
        .await
        .batch_execute(BOOKING)
        .await
        .unwrap();
    let standby = follow_synchronously(&primary).await;
    book_across(&either(&primary, &standby), 400, async {
        primary.stop("immediate").await;
        // Its synchrony is the old primary's affair: the promoted one must not wait for another.
        let alone = "ALTER SYSTEM SET synchronous_standby_names = ''";
        connect(&standby).await.batch_execute(alone).await.unwrap();
        standby.promote().await;
    })
    .await;
}

/// What an asynchronous failover loses is lost whole: a commit of two rows has both or none.
#[tokio::test]
async fn an_asynchronous_failover_loses_whole_transactions() {
    let Some(primary) = primary().await else {
        return;
    };
    let standby = primary.follow().await;
    let mut conn = connect(&primary).await;
    conn.batch_execute(BOOKING).await.unwrap();
    conn.batch_execute(
        "CREATE TABLE mirror (room int8 NOT NULL); \
         CREATE RULE mirror AS ON INSERT TO booking DO ALSO INSERT INTO mirror VALUES (NEW.room)",
    )
    .await
    .unwrap();
    for room in 0..20 {
        assert!(book(&mut conn, room, "before").await.unwrap());
    }
    cut_off(&primary, &standby).await;
    for room in 20..40 {
        assert!(book(&mut conn, room, "lost").await.unwrap());
    }
    primary.stop("immediate").await;
    standby.promote().await;
    let mut conn = connect(&standby).await;
    assert_eq!(number(&mut conn, "SELECT count(*) FROM booking").await, 20);
    let halves = "SELECT count(*) FROM booking FULL JOIN mirror USING (room) WHERE guest IS NULL OR mirror.room IS NULL";
    assert_eq!(number(&mut conn, halves).await, 0);
    assert!(book(&mut conn, 20, "after").await.unwrap());
    assert!(!book(&mut conn, 19, "after").await.unwrap());
}
