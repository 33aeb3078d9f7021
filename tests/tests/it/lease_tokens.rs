//! Tokens come from one sequence, and rows are deleted: a later grant of a key still has the larger
//! token.

use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::lease;
use advisory_runtime::lease::{Error, Table};
use advisory_tests::bookings::execute;
use advisory_tests::leases::{database, expire, key};
use advisory_tests::{Database, OwnServer, left_out, owns_server};
use diesel::dsl::sql;
use diesel::sql_types::{BigInt, Text};
use diesel_async::{AsyncConnection as _, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
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
    let (mut slow, mut conn) = (db.connect().await, db.connect().await);
    let slower = tokio::spawn(async move {
        let table = Table::new().held_by("slow").unwrap();
        table.acquire(&mut slow, key("k")).await
    });
    db.until_waiting(7).await;
    let table = Table::new();
    let refused = table.acquire(&mut conn, key("k")).await.unwrap_err();
    assert!(refused.is_held(), "{refused:?}");
    // Another key is not affected.
    table.acquire(&mut conn, key("other")).await.unwrap();
    db.run("SELECT pg_advisory_unlock(7)").await;
    let first = slower.await.unwrap().unwrap();
    assert!(table.release(&mut conn, &first).await.unwrap());
    assert_eq!(table.sweep(&mut conn).await.unwrap(), 1);
    let next = table.acquire(&mut conn, key("k")).await.unwrap();
    assert!(next.token() > first.token());
}

/// Grants, releases and sweeps of a few keys at once. Each holder writes its token into a list,
/// under the key's lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_key_grow_while_rows_come_and_go() {
    let db = Arc::new(database().await);
    db.run("CREATE TABLE granted (n bigserial, key text, token int8)")
        .await;
    let grants = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let (db, grants) = (Arc::clone(&db), Arc::clone(&grants));
        tasks.spawn(async move { come_and_go(&db, task, &grants).await });
    }
    tasks.join_all().await;
    let out_of_order = "SELECT count(*) FROM granted AS a JOIN granted AS b \
                        ON a.key = b.key AND a.n < b.n AND a.token >= b.token";
    assert_eq!(db.count(out_of_order).await, 0);
}

/// Continues until all tasks together have been granted enough: how many tries are refused depends
/// on the machine.
async fn come_and_go(db: &Database, task: usize, grants: &AtomicUsize) {
    const ENOUGH: usize = 200;
    let (mut conn, table) = (db.connect().await, Table::new());
    for round in 0.. {
        if grants.load(Relaxed) >= ENOUGH {
            return;
        }
        let text = format!("k{}", round % 3);
        match table.acquire(&mut conn, key(&text)).await {
            Ok(lease) => {
                grants.fetch_add(1, Relaxed);
                let token = lease.token();
                let note = format!("INSERT INTO granted (key, token) VALUES ('{text}', {token})");
                execute(&mut conn, &note).await.unwrap();
                assert!(table.release(&mut conn, &lease).await.unwrap());
            }
            Err(error) => assert!(error.is_held(), "{error:?}"),
        }
        if (round + task).is_multiple_of(4) {
            table.sweep(&mut conn).await.unwrap();
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
    let mut conn = db.connect().await;
    let table = Table::new();
    let old = table.acquire(&mut conn, key("k")).await.unwrap();
    expire(&db).await;
    let pool = db.deadpool(1);
    assert_eq!(lease::sweep(&pool).await.unwrap(), 1);
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
    let fenced =
        diesel_async::AsyncConnection::transaction(&mut conn, async |conn| old.fence(conn).await);
    let error = fenced.await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    assert!(!table.renew(&mut conn, &old, old.remaining()).await.unwrap());
    assert!(!table.release(&mut conn, &old).await.unwrap());
    let new = table.acquire(&mut conn, key("k")).await.unwrap();
    assert!(new.token() > old.token());
}

/// Each key once, like ids of events, next to keys that stay.
#[tokio::test]
async fn a_table_of_keys_that_are_used_once_stays_small() {
    const STAY: i64 = 400;
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    for number in 0..STAY {
        // However long the rest takes.
        let stays = key(&format!("stays:{number}")).ttl(std::time::Duration::from_secs(3_600));
        table.acquire(&mut conn, stays).await.unwrap();
    }
    for number in 0..4_000 {
        let lease = table
            .acquire(&mut conn, key(&format!("event:{number}")))
            .await;
        assert!(table.release(&mut conn, &lease.unwrap()).await.unwrap());
    }
    // A seventh on average; each stays until it is among those that an acquisition checks.
    let expired = db.count("SELECT count(*) FROM advisory_lease").await - STAY;
    assert!(expired < STAY / 2, "{expired} expired rows beside {STAY}");
    table.sweep(&mut conn).await.unwrap();
    let rows = db.count("SELECT count(*) FROM advisory_lease").await;
    assert_eq!(rows, STAY);
}

/// Its pages are cleaned while they are filled, if no other transaction of the server is open:
/// therefore on a separate server.
#[tokio::test]
async fn a_table_of_keys_used_once_stays_small_between_vacuums() {
    if !owns_server() {
        return left_out("file size", "the server is not our own");
    }
    let server = OwnServer::start().await;
    let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
    let table = Table::new();
    table.set_up(&mut conn).await.unwrap();
    for number in 0..4_000 {
        let event = key(&format!("event:{number}"));
        let lease = table.acquire(&mut conn, event).await.unwrap();
        assert!(table.release(&mut conn, &lease).await.unwrap());
    }
    let size = sql::<BigInt>("SELECT pg_catalog.pg_table_size('advisory_lease')");
    let size: i64 = size.get_result(&mut conn).await.unwrap();
    // It would be 1.6 MB if the pages were filled only in part.
    assert!(size < 800_000, "{size} bytes for 4,000 keys");
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
    let mut conn = db.connect().await;
    Table::new().acquire(&mut conn, key("k")).await.unwrap();
    let call = "SELECT format('%s(%s)', name, array_to_string(array_fill('NULL'::text, ARRAY[cardinality(parameter_types)]), ', ')) \
         FROM pg_prepared_statements WHERE statement LIKE 'WITH free%'";
    let call: String = sql::<Text>(call).get_result(&mut conn).await.unwrap();
    execute(&mut conn, "SET plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    let explain = format!("EXPLAIN EXECUTE {call}");
    let plan: Vec<Line> = diesel::sql_query(explain).load(&mut conn).await.unwrap();
    let plan: Vec<String> = plan.into_iter().map(|line| line.plan).collect();
    let plan = plan.join("\n");
    assert!(
        plan.contains("Index") && !plan.contains("Seq Scan"),
        "{plan}"
    );
}

#[derive(diesel::QueryableByName)]
struct Line {
    #[diesel(sql_type = Text, column_name = "QUERY PLAN")]
    plan: String,
}

/// Rows that are held, kept or used by a fence are not removed.
#[tokio::test]
async fn a_sweep_keeps_rows_in_use_and_does_not_wait() {
    let db = database().await;
    let (mut conn, mut writer) = (db.connect().await, db.connect().await);
    conn.batch_execute("SET lock_timeout = '10s'")
        .await
        .unwrap();
    let table = Table::new();
    let held = table.acquire(&mut conn, key("held")).await.unwrap();
    let kept = table.acquire(&mut conn, key("kept")).await.unwrap();
    let hour = std::time::Duration::from_secs(3600);
    assert!(table.keep(&mut conn, &kept, hour).await.unwrap());
    let fenced = table.acquire(&mut conn, key("fenced")).await.unwrap();
    let written = diesel_async::AsyncConnection::transaction(&mut writer, async |writer| {
        fenced.fence(writer).await?;
        assert!(table.release(&mut conn, &fenced).await?);
        assert_eq!(table.sweep(&mut conn).await?, 0);
        Ok::<_, Error>(())
    });
    written.await.unwrap();
    assert_eq!(table.sweep(&mut conn).await.unwrap(), 1);
    assert!(table.holds(&mut conn, &held).await.unwrap());
    let refused = table.sweep(&mut conn);
    assert_eq!(refused.await.unwrap(), 0);
    let inside = diesel_async::AsyncConnection::transaction(&mut conn, async |conn| {
        table.sweep(conn).await.map(drop)
    });
    let error = inside.await.unwrap_err();
    assert!(matches!(error, Error::InTransaction { .. }), "{error:?}");
}

/// A key whose row is being removed is free.
#[tokio::test]
async fn a_key_whose_row_is_being_swept_is_not_busy() {
    let db = database().await;
    let (mut conn, mut sweeper) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let lease = table.acquire(&mut conn, key("k")).await.unwrap();
    assert!(table.release(&mut conn, &lease).await.unwrap());
    sweeper
        .batch_execute("BEGIN; DELETE FROM advisory_lease")
        .await
        .unwrap();
    let pid = advisory_tests::pid_of(&mut conn).await;
    let acquiring = tokio::spawn(async move { Table::new().acquire(&mut conn, key("k")).await });
    let waits = format!(
        "SELECT 'no' WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock')"
    );
    let soon = std::time::Duration::from_secs(30);
    db.until_empty(soon, "an acquisition that waits for the sweep", &waits)
        .await;
    sweeper.batch_execute("COMMIT").await.unwrap();
    let next = acquiring.await.unwrap().unwrap();
    assert!(next.token() > lease.token());
}
