//! Failovers: with the servers' own programs a standby is promoted, with every commit of its primary
//! or without the last ones; a failover manager, which `scripts/failover` starts, does it by itself.

use crate::calls::{book, book_across};
use crate::gated_migrations::{GATE, MIGRATIONS, NAMES};
use advisory_runtime::lease::Table;
use advisory_runtime::{Error, migrations, session};
use advisory_tests::campaigns::{Campaigns, ORDER, TTL, WORK};
use advisory_tests::failover::{
    BOOKING, GENEROUS, connect, cut_off, either, number, primary, reconnect, timeline_of, token,
    until,
};
use advisory_tests::futures::{spawn, spawn_blocking};
use advisory_tests::leases::{key, leases_at, once};
use advisory_tests::statements::run;
use advisory_tests::{Database, OwnServer, assert_error, assert_matches, left_out};
use diesel_async::SimpleAsyncConnection;
use std::process::Command;
use std::time::{Duration, Instant};

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
    run(
        &mut conn,
        "ALTER SYSTEM SET synchronous_standby_names = '*'",
    )
    .await;
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
    run(
        &mut conn,
        "CREATE TABLE mirror (room int8 NOT NULL); \
         CREATE RULE mirror AS ON INSERT TO booking DO ALSO INSERT INTO mirror VALUES (NEW.room)",
    )
    .await;
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

#[tokio::test]
async fn a_primary_that_comes_back_has_lost_only_what_it_did_alone() {
    let Some(first) = primary().await else {
        return;
    };
    let mut conn = connect(&first).await;
    conn.batch_execute(BOOKING).await.unwrap();
    run(&mut conn, "ALTER SYSTEM SET wal_log_hints = on").await;
    first.stop("fast").await;
    first.start_again().await;
    let second = first.follow().await;
    let mut old = connect(&first).await;
    assert!(book(&mut old, 1, "both").await.unwrap());
    cut_off(&first, &second).await;
    // Alone.
    assert!(book(&mut old, 2, "alone").await.unwrap());
    let alone = token(&first, "k").await;
    second.promote().await;
    let mut new = connect(&second).await;
    assert!(book(&mut new, 2, "second").await.unwrap());
    let after = token(&second, "k").await;
    assert!(after > alone && timeline_of(after) == 2);
    // The timeline is in the control file, where `pg_rewind` looks, from a checkpoint on.
    new.batch_execute("CHECKPOINT").await.unwrap();
    if !first.can_rejoin() {
        return left_out("failover", "the server came without `pg_rewind`");
    }
    first.stop("fast").await;
    first.rejoin(&second).await;
    let mut back = connect(&first).await;
    until(&mut back, "(SELECT count(*) = 2 FROM booking)").await;
    // As a standby it grants nothing.
    let refused = book(&mut back, 3, "back").await.unwrap_err();
    let found = Error::find(&refused);
    assert!(
        found
            .as_deref()
            .is_some_and(|found| matches!(found, Error::Standby { .. })),
        "{refused}"
    );
    let refused = once(&leases_at(first.url(), 1), key("k")).await;
    assert_matches!(refused, Err(advisory_runtime::lease::Error::Standby { .. }));
    let last = token(&second, "k").await;
    second.stop("fast").await;
    first.promote().await;
    let mut back = connect(&first).await;
    let guests = "SELECT count(*) FROM booking WHERE guest = 'alone'";
    assert_eq!(number(&mut back, guests).await, 0);
    assert!(!book(&mut back, 2, "third").await.unwrap());
    let newest = token(&first, "k").await;
    assert!(newest > last && timeline_of(newest) == 3);
}

const ROOM: i64 = 7;

const WAITS: &str = "EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)";

#[tokio::test]
async fn a_session_lock_ends_with_its_primary() {
    let Some(primary) = primary().await else {
        return;
    };
    let standby = primary.follow().await;
    let url = either(&primary, &standby);
    let pool = Database::deadpool_at(url, 3);
    let holder = session::acquire_from(&pool, ROOM).await.unwrap();
    // One more is idle in the pool.
    drop((pool.get().await.unwrap(), pool.get().await.unwrap()));
    let waiting = spawn({
        let mut conn = connect(&primary).await;
        async move { session::acquire(&mut conn, ROOM).await.map(|_| ()) }
    });
    until(&mut connect(&primary).await, WAITS).await;
    primary.stop("immediate").await;
    let waited = waiting.await.unwrap();
    assert_error!(waited, Database);
    // The call does not report that the lock was held to the end.
    let ended = holder.finish(Ok::<_, Error>(())).await.map(|_| ());
    assert_error!(ended, LockLost);
    // While there is no primary, acquiring a lock fails.
    let refused = session::acquire_from(&pool, ROOM).await.map(|_| ());
    assert_error!(refused, Pool);
    standby.promote().await;
    // The pool has replaced every connection.
    let mut guards = Vec::new();
    for key in [ROOM, ROOM + 1, ROOM + 2] {
        guards.push(session::acquire_from(&pool, key).await.unwrap());
    }
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    assert_eq!(number(&mut connect(&standby).await, locks).await, 3);
    for guard in guards {
        drop(guard.finish(Ok::<_, Error>(())).await.unwrap());
    }
    assert_eq!(number(&mut connect(&standby).await, locks).await, 0);
}

/// The first migration is under way when the primary dies.
#[tokio::test]
async fn migrations_resume_on_the_new_primary() {
    let Some(primary) = primary().await else {
        return;
    };
    let standby = primary.follow().await;
    let url = either(&primary, &standby);
    let gate = session::acquire_owned(connect(&primary).await, GATE).await;
    let running = spawn({
        let url = url.clone();
        async move { migrations::run(&url, MIGRATIONS).await }
    });
    until(&mut connect(&primary).await, WAITS).await;
    primary.stop("immediate").await;
    let error = running.await.unwrap().unwrap_err();
    assert!(error.applied().is_empty(), "{error}");
    drop(gate);
    standby.promote().await;
    let since = Instant::now();
    let report = migrations::run(&url, MIGRATIONS).await.unwrap();
    assert!(since.elapsed() < GENEROUS);
    assert_eq!(report.applied, NAMES);
    let again = migrations::run(&url, MIGRATIONS).await.unwrap();
    assert!(again.applied.is_empty());
    let mut conn = connect(&standby).await;
    run(&mut conn, "SELECT FROM __diesel_schema_migrations").await;
}

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
    run(&mut conn, "DROP TABLE IF EXISTS booking, work").await;
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
