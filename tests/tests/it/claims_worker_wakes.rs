//! What wakes a worker up that has found nothing: a notification, and without one the time of
//! `poll`.

use crate::mails::{Limited, Mail, OPEN, mails, mails_that, until_empty, until_listening, work};
use crate::observers::{Counted, Heard, each_alone, is_alone};
use advisory_runtime::claim::{Claimed, Schema, Worker};
use advisory_tests::Database;
use advisory_tests::poolers::tracking_bouncer;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

const NEVER: Duration = Duration::from_secs(3600);

/// It would look again in an hour.
#[tokio::test]
async fn a_notification_wakes_an_idle_worker() {
    let db = mails(0).await;
    db.run("ALTER TABLE mail RENAME TO renamed; ALTER TABLE renamed RENAME TO mail")
        .await;
    let pool = db.bb8(2).await;
    let worker = Worker::new(&pool, "worker").poll(NEVER);
    let mut done = 0;
    let stop = async {
        until_listening(&db).await;
        for id in 1..=3 {
            db.run(&format!("INSERT INTO mail (id) VALUES ({id})"))
                .await;
            until_empty(&db, "the inserted mail", OPEN).await;
            done += 1;
        }
        // Another worker's, which it releases.
        db.run("INSERT INTO mail (id, locked_until, locked_by) VALUES (9, now() + interval '1 hour', 'other')")
            .await;
        db.run("UPDATE mail SET locked_until = NULL, locked_by = NULL WHERE id = 9")
            .await;
        until_empty(&db, "the released mail", OPEN).await;
        done += 1;
    };
    let worker = worker.until(stop);
    work::<Mail, _>(worker).await;
    assert_eq!(done, 4);
}

/// One connection listens for all workers of a pool, and when its worker stops, the next one
/// listens.
#[tokio::test]
async fn the_workers_of_a_pool_share_one_listener() {
    let db = mails(0).await;
    let pool = db.deadpool(4);
    let listeners = "SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN advisory_claim' \
         AND pid <> pg_backend_pid()";
    let exactly = async |count: usize, what: &str| {
        let sql =
            format!("SELECT 'not so' WHERE (SELECT count(*) FROM ({listeners}) AS l) <> {count}");
        db.until_none(what, &sql).await;
    };
    let (stop_first, first_stops) = oneshot::channel::<()>();
    let first = Worker::new(&pool, "first").poll(NEVER).until(async {
        drop(first_stops.await);
    });
    let second = Worker::new(&pool, "second").poll(NEVER).until(async {
        exactly(1, "one listener").await;
        db.run("INSERT INTO mail (id) VALUES (1)").await;
        until_empty(&db, "the first mail", OPEN).await;
        exactly(1, "one listener").await;
        drop(stop_first);
        // The connection of the first one closes, and the second one opens its own.
        for id in 2..=3 {
            db.run(&format!("INSERT INTO mail (id) VALUES ({id})"))
                .await;
            until_empty(&db, "the next mail", OPEN).await;
        }
        exactly(1, "the second one's").await;
    });
    tokio::join!(work::<Mail, _>(first), work::<Mail, _>(second));
}

/// The end of another worker's claim makes room, also if it deletes the row.
#[tokio::test]
async fn the_end_of_a_claim_wakes_a_worker_whose_values_were_full() {
    let db = mails(0).await;
    let pool = db.bb8(2).await;
    let worker = Worker::new(&pool, "worker").poll(NEVER);
    let mut done = 0;
    let stop = async {
        until_listening(&db).await;
        for end in [
            "DELETE FROM mail WHERE id = 1",
            "UPDATE mail SET locked_by = NULL, completed_at = now() WHERE id = 1",
        ] {
            db.run("INSERT INTO mail (id, locked_until, locked_by) VALUES (1, now() + interval '1 hour', 'other'), (2, NULL, NULL)")
                .await;
            let looked = "SELECT FROM pg_stat_activity WHERE datname = current_database() \
                 AND query = 'COMMIT' AND state = 'idle' AND state_change > (SELECT run_at FROM mail WHERE id = 2)";
            db.until_some("a claim in vain", looked).await;
            let left = "id = 2 AND completed_at IS NULL";
            let free = format!("{left} AND locked_by IS NULL");
            assert_eq!(mails_that(&db, &free).await, 1);
            db.run(end).await;
            until_empty(&db, "the second mail", left).await;
            db.run("DELETE FROM mail").await;
            done += 1;
        }
    };
    let worker = worker.until(stop);
    work::<Limited, _>(worker).await;
    assert_eq!(done, 2);
}

/// Without a trigger, and for rows that become due.
#[tokio::test]
async fn without_notifications_a_worker_polls() {
    let db = mails(0).await;
    db.run("DROP TRIGGER advisory_claim_inserted ON mail").await;
    let pool = db.bb8(2).await;
    let worker = Worker::new(&pool, "worker").poll(Duration::from_millis(20));
    let stop = async {
        db.run("INSERT INTO mail (id, run_at) VALUES (1, now() + interval '200 ms')")
            .await;
        until_empty(&db, "the mail", OPEN).await;
    };
    let worker = worker.poll_only().until(stop);
    work::<Mail, _>(worker).await;
    let listeners = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()";
    assert_eq!(db.count(listeners).await, 0);
}

#[tokio::test]
async fn each_observer_of_workers_sees_what_it_should() {
    let names = [
        "behind_a_pooler_it_polls_and_says_so",
        "works_are_spans_and_counters_of_their_table",
    ];
    each_alone("claims_worker_wakes", &names).await;
}

/// Does nothing unless another test starts it, like the one below.
#[tokio::test]
async fn behind_a_pooler_it_polls_and_says_so() {
    if !is_alone() {
        return;
    }
    let db = mails(0).await;
    let settings = "pool_mode = transaction\ndefault_pool_size = 3\nmax_prepared_statements = 50";
    let Some(bouncer) = tracking_bouncer(&db, settings).await else {
        return;
    };
    let pool = Database::deadpool_at(bouncer.url(&db), 3);
    let heard = Heard::default();
    let _guard = tracing::subscriber::set_default(heard.clone());
    let worker = Worker::new(&pool, "worker").poll(Duration::from_millis(20));
    let stop = async {
        db.run("INSERT INTO mail (id) VALUES (1), (2)").await;
        until_empty(&db, "the mails", OPEN).await;
        // It may still be opening the connection that would listen.
        let mut tick = tokio::time::interval(Duration::from_millis(5));
        while !heard.has("polls without notifications: a pooler in transaction mode") {
            tick.tick().await;
        }
    };
    let ran = work::<Mail, _>(worker.until(stop));
    let ran = timeout(Duration::from_secs(60), ran).await;
    ran.expect("it says so");
}

#[tokio::test]
async fn works_are_spans_and_counters_of_their_table() {
    if !is_alone() {
        return;
    }
    // Of the whole process: what ends a row late reports on the keeper's thread.
    let counted = Arc::new(Counted::default());
    assert!(metrics::set_global_recorder(Arc::clone(&counted)).is_ok());
    let heard = Heard::default();
    tracing::subscriber::set_global_default(heard.clone()).unwrap();
    let db = mails(3).await;
    let pool = db.bb8(2).await;
    let left = "completed_at IS NULL AND error_message IS NULL";
    let worker = Worker::new(&pool, "worker").until(until_empty(&db, "three attempts", left));
    let ran = worker.run(async |job: Claimed<Mail>| match job.id {
        1 => Err("no such address"),
        2 => panic!("no parts"),
        _ => Ok(()),
    });
    ran.await.unwrap();
    assert!(heard.has("new advisory_lock pattern=\"mail\" scope=\"claim\" mode=\"exclusive\""));
    assert!(heard.has("no such address"));
    assert!(heard.has("the body panicked: no parts"));
    for outcome in ["done", "failed", "panicked"] {
        let name = format!("advisory_ended_total/mail/claim/exclusive/{outcome}");
        assert_eq!(counted.count(&name), 1, "{outcome}");
    }
    let acquired = counted.count("advisory_acquired_total/mail/claim/exclusive");
    assert_eq!(acquired, 3);
}

#[tokio::test]
async fn the_printed_schema_goes_up_and_down() {
    let db = Database::create().await;
    db.run("CREATE SCHEMA shop; CREATE TABLE shop.\"Mail box\" (id int8, tenant text)")
        .await;
    for schema in [
        Schema::of("shop.Mail box"),
        Schema::of("shop.Mail box")
            .per("tenant")
            .order([("attempts", true), ("id", false)]),
    ] {
        db.run(&schema.up()).await;
        let columns = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'shop.\"Mail box\"'::regclass AND attnum > 0 AND NOT attisdropped";
        assert_eq!(db.count(columns).await, 9);
        db.run(&schema.down()).await;
        assert_eq!(db.count(columns).await, 2);
        let rest = "SELECT count(*) FROM pg_class WHERE relnamespace = 'shop'::regnamespace AND relkind = 'i'";
        assert_eq!(db.count(rest).await, 0);
        let rest = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'shop.\"Mail box\"'::regclass";
        assert_eq!(db.count(rest).await, 0);
    }
}
