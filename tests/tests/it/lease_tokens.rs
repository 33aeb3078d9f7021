//! Tokens come from one sequence, and rows are deleted: a later grant of a key still has the larger
//! token.

use advisory_runtime::lease::{self, Error, Leases, Table};
use advisory_tests::bookings::execute;
use advisory_tests::futures::spawn;
use advisory_tests::leases::{
    database, expire, fence, finish, key, leases_at, once, orphan, until_over,
};
use advisory_tests::monitor::until_waiters;
use advisory_tests::statements::{explain, run};
use advisory_tests::{Database, assert_matches};
use diesel::dsl::sql;
use diesel::sql_types::Text;
use diesel_async::{AsyncConnection as _, RunQueryDsl};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::JoinSet;

/// Delays an insertion, after it got its number, until `pg_advisory_unlock(7)`.
const HOLD_UP: &str = "
    CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.holder = 'slow' THEN PERFORM pg_advisory_xact_lock(7); END IF; RETURN NEW; END $$;
    CREATE TRIGGER hold_up BEFORE INSERT ON advisory_lease FOR EACH ROW EXECUTE FUNCTION hold_up();
    SELECT pg_advisory_lock(7)";

/// The race for which a sequence alone is not enough: the slow one has its number, another is
/// granted a larger one and ends, its row is removed, and the slow one inserts.
#[tokio::test]
async fn an_insertion_delayed_after_its_number_excludes_later_ones() {
    let db = database().await;
    db.run(HOLD_UP).await;
    let slow = leases_at(db.url(), 1).table(Table::new().held_by("slow").unwrap());
    let slower = spawn(async move { once(&slow, key("k")).await });
    db.until_waiting(7).await;
    let leases = leases_at(db.url(), 1);
    let refused = once(&leases, key("k")).await.unwrap_err();
    assert!(refused.is_held(), "{refused:?}");
    // Another key is not affected.
    let other = leases.acquire(key("other")).await.unwrap();
    db.run("SELECT pg_advisory_unlock(7)").await;
    let first = slower.await.unwrap().unwrap();
    let mut conn = db.connect().await;
    assert_eq!(Table::new().sweep(&mut conn).await.unwrap(), 1);
    assert!(once(&leases, key("k")).await.unwrap() > first);
    finish(other).await.unwrap();
}

/// Grants and releases of a few keys at once, while rows are removed or the sequence is set back.
/// Each holder writes its token into a list, under the key's lease.
///
/// Where the sequence is set back each key has a row: a token above the one in the row is what is
/// promised then. A row is removed only by the insertion of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_key_grow_while_rows_come_and_go_or_the_sequence_is_set_back() {
    for disturbs in [
        "DELETE FROM advisory_lease WHERE expires_at <= clock_timestamp()",
        "SELECT setval('advisory_lease_token', 1)",
    ] {
        let db = Arc::new(database().await);
        db.run("CREATE TABLE granted (n bigserial, key text, token int8)")
            .await;
        let leases = leases_at(db.url(), 1);
        for text in ["k0", "k1", "k2"] {
            once(&leases, key(text)).await.unwrap();
        }
        let grants = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for task in 0..8 {
            let (db, grants) = (Arc::clone(&db), Arc::clone(&grants));
            tasks.spawn(async move { come_and_go(&db, disturbs, task, &grants).await });
        }
        tasks.join_all().await;
        let out_of_order = "SELECT count(*) FROM granted AS a JOIN granted AS b \
                            ON a.key = b.key AND a.n < b.n AND a.token >= b.token";
        assert_eq!(db.count(out_of_order).await, 0, "{disturbs}");
    }
}

/// Continues until all tasks together have been granted enough: how many tries are refused depends
/// on the machine.
async fn come_and_go(db: &Database, disturbs: &str, task: usize, grants: &AtomicUsize) {
    const ENOUGH: usize = 200;
    let (mut conn, leases) = (db.connect().await, leases_at(db.url(), 1));
    for round in task.. {
        if grants.load(Relaxed) >= ENOUGH {
            return;
        }
        let text = format!("k{}", round % 3);
        match leases.acquire(key(&text)).await {
            Ok(held) => {
                let token = held.lease().token();
                let note = format!("INSERT INTO granted (key, token) VALUES ('{text}', {token})");
                execute(&mut conn, &note).await.unwrap();
                finish(held).await.unwrap();
                if grants.fetch_add(1, Relaxed).is_multiple_of(10) {
                    execute(&mut conn, disturbs).await.unwrap();
                }
            }
            Err(error) => assert!(error.is_held(), "{error:?}"),
        }
    }
}

#[tokio::test]
async fn the_sequence_has_no_numbers_in_stock() {
    let db = database().await;
    let cached = "SELECT count(*) FROM pg_sequences WHERE sequencename = 'advisory_lease_token' AND cache_size = 1 AND NOT cycle";
    assert_eq!(db.count(cached).await, 1);
}

#[tokio::test]
async fn a_holder_whose_row_is_gone_is_refused() {
    let db = database().await;
    let (mut conn, pool) = (db.connect().await, db.deadpool(1));
    let leases = Leases::new(pool.clone());
    let old = orphan(db.url(), &Table::new(), key("k")).await;
    expire(&db).await;
    assert_eq!(lease::sweep(&pool).await.unwrap(), 1);
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
    assert_matches!(fence(&mut conn, &old).await, Err(Error::Lost { .. }));
    assert!(!Table::new().release(&mut conn, &old).await.unwrap());
    let request = key("k").renew(Duration::from_millis(20));
    let new = leases.acquire(request).await.unwrap();
    assert!(new.lease().token() > old.token());
    db.run("DELETE FROM advisory_lease").await;
    until_over(new.lease()).await;
}

/// Next to keys that stay.
#[tokio::test]
async fn a_table_of_keys_that_are_used_once_stays_small() {
    const STAY: i64 = 100;
    let db = database().await;
    db.run(&format!(
        "INSERT INTO advisory_lease (key_hash, token, grant_id, holder, acquired_at, expires_at)
             SELECT sha256(n::text::bytea), n, 0, 'h', now(), now() + interval '1 hour' FROM generate_series(1, {STAY}) AS n"
    ))
    .await;
    let (leases, mut expired) = (leases_at(db.url(), 1), Vec::new());
    for number in 1..=1_000 {
        let event = key(&format!("event:{number}"));
        once(&leases, event).await.unwrap();
        if number % 10 == 0 {
            expired.push(db.count("SELECT count(*) FROM advisory_lease").await - STAY);
        }
    }
    // Chance decides when an expired row is removed, so one count can be high. Their mean is about
    // 40, in one of 2,400 runs above 100, and 500 if none is removed.
    let mean = expired.iter().sum::<i64>() / 100;
    assert!(mean < 2 * STAY, "{expired:?} expired rows beside {STAY}");
    lease::sweep(&db.deadpool(1)).await.unwrap();
    let rows = db.count("SELECT count(*) FROM advisory_lease").await;
    assert_eq!(rows, STAY);
}

/// None of its steps reads the whole table, and neither does the sweep.
#[tokio::test]
async fn an_acquisition_finds_every_row_by_the_index() {
    let db = database().await;
    db.run(
        "INSERT INTO advisory_lease (key_hash, token, grant_id, holder, acquired_at, expires_at)
             SELECT sha256(n::text::bytea), 0, 0, 'h', now(), now() + interval '1 day' FROM generate_series(1, 20000) AS n;
         ANALYZE advisory_lease",
    )
    .await;
    let pool = db.deadpool(1);
    once(&Leases::new(pool.clone()), key("k")).await.unwrap();
    let mut conn = pool.get().await.unwrap();
    let call = "SELECT format('%s(%s)', name, array_to_string(array_fill('NULL'::text, ARRAY[cardinality(parameter_types)]), ', ')) \
         FROM pg_prepared_statements WHERE statement LIKE 'WITH free%'";
    let call: String = sql::<Text>(call).get_result(&mut conn).await.unwrap();
    run(&mut conn, "SET plan_cache_mode = force_generic_plan").await;
    let plan = explain(&mut conn, "EXPLAIN EXECUTE", &call).await;
    assert!(
        plan.contains("Index") && !plan.contains("Seq Scan"),
        "{plan}"
    );
}

/// Rows that are held, kept or used by a fence are not removed.
#[tokio::test]
async fn a_sweep_keeps_rows_in_use_and_does_not_wait() {
    let db = database().await;
    let (mut conn, mut writer) = (db.connect().await, db.connect().await);
    run(&mut conn, "SET lock_timeout = '10s'").await;
    let (table, leases) = (Table::new(), leases_at(db.url(), 1));
    let held = leases.acquire(key("held")).await.unwrap();
    let kept = key("kept").keep(Duration::from_secs(3600));
    once(&leases, kept).await.unwrap();
    let fenced = orphan(db.url(), &table, key("fenced")).await;
    let written = writer.transaction(async |writer| {
        fenced.fence(writer).await?;
        assert!(table.release(&mut conn, &fenced).await?);
        assert_eq!(table.sweep(&mut conn).await?, 0);
        Ok::<_, Error>(())
    });
    written.await.unwrap();
    assert_eq!(table.sweep(&mut conn).await.unwrap(), 1);
    assert!(leases.holds(held.lease()).await.unwrap());
    assert_eq!(table.sweep(&mut conn).await.unwrap(), 0);
}

/// A key whose row is being removed is free.
#[tokio::test]
async fn a_key_whose_row_is_being_swept_is_not_busy() {
    let db = database().await;
    let (leases, mut sweeper) = (leases_at(db.url(), 1), db.connect().await);
    let first = once(&leases, key("k")).await.unwrap();
    run(&mut sweeper, "BEGIN; DELETE FROM advisory_lease").await;
    let acquiring = spawn(async move { once(&leases, key("k")).await });
    until_waiters(&db, 1).await;
    run(&mut sweeper, "COMMIT").await;
    assert!(acquiring.await.unwrap().unwrap() > first);
}
