//! The situations of `docs/stuck-locks.md`, each made for real, with the screen that the page
//! shows. The full lock table is in `doctor_server.rs`.

use crate::live_view::{does, holder, locks, locks_at, screens, shape, shows, waiter};
use advisory_tests::futures::spawn;
use std::time::{Duration, Instant};

use advisory_pattern::ClaimRecord;
use advisory_runtime::lease::{Request, Table};
use advisory_tests::leases::orphan;
use advisory_tests::{Database, pid_of};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use tokio::task::JoinHandle;

use crate::programs::{file, leased, pooler, program_of};

const LOCK: &str = "/*advisory:booking:<id>*/;SELECT pg_catalog.pg_advisory_xact_lock(42)";

/// Two sessions that wait for the lock.
async fn two_wait(db: &Database) -> [JoinHandle<AsyncPgConnection>; 2] {
    [
        waiter(db, "web", LOCK).await.1,
        waiter(db, "web", LOCK).await.1,
    ]
}

async fn end(waiting: [JoinHandle<AsyncPgConnection>; 2]) {
    for one in waiting {
        drop(one.await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_that_stopped_or_work_look_as_on_the_page() {
    let db = Database::create().await;
    let held = holder(&db, "booking-service", &format!("BEGIN; {LOCK}")).await;
    let waiting = two_wait(&db).await;
    shows(1, &locks(&db, &[]).await.out);
    drop(held);
    end(waiting).await;

    let held = holder(&db, "booking-service", "SELECT pg_advisory_lock(42)").await;
    let waiting = two_wait(&db).await;
    shows(2, &locks(&db, &[]).await.out);
    drop(held);
    end(waiting).await;

    let mut held = holder(&db, "booking-service", "").await;
    let pid = pid_of(&mut held).await;
    let stay = format!("CREATE TEMP TABLE stay AS SELECT 0 AS price; BEGIN; {LOCK}");
    does(&mut held, &stay).await;
    let running = spawn(async move {
        // The sleep is the statement that is still running; the test terminates it.
        let sql = "UPDATE stay SET price = 1 WHERE pg_sleep(600) IS NULL";
        drop(held.batch_execute(sql).await);
    });
    db.until_active("pg_sleep").await;
    let waiting = two_wait(&db).await;
    shows(3, &locks(&db, &[]).await.out);
    db.terminate(pid).await;
    running.await.unwrap();
    end(waiting).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_that_wait_themselves_look_as_on_the_page() {
    let db = Database::create().await;
    db.run("CREATE TABLE room (id int); INSERT INTO room VALUES (1)")
        .await;
    let cause = holder(&db, "report", "BEGIN; UPDATE room SET id = 2").await;
    let mut held = holder(&db, "booking-service", &format!("BEGIN; {LOCK}")).await;
    let pid = pid_of(&mut held).await;
    let blocked = spawn(async move {
        drop(held.batch_execute("UPDATE room SET id = 3").await);
    });
    let none = format!(
        "SELECT 'none' WHERE NOT EXISTS (SELECT FROM pg_locks WHERE pid = {pid} AND NOT granted)"
    );
    db.until_empty(Duration::from_secs(30), "a waiter", &none)
        .await;
    let waiting = two_wait(&db).await;
    shows(4, &locks(&db, &[]).await.out);
    drop(cause);
    blocked.await.unwrap();
    end(waiting).await;

    let prepare = format!("BEGIN; {LOCK}; PREPARE TRANSACTION 'invoice-4711'");
    drop(holder(&db, "invoices", &prepare).await);
    let waiting = two_wait(&db).await;
    shows(5, &locks(&db, &[]).await.out);
    db.run("ROLLBACK PREPARED 'invoice-4711'").await;
    end(waiting).await;

    let patient = "SET deadlock_timeout = '1min'; SELECT pg_advisory_lock";
    let mut one = holder(&db, "web", &format!("{patient}(1)")).await;
    let mut two = holder(&db, "web", &format!("{patient}(2)")).await;
    let pid = pid_of(&mut one).await;
    let circle = [
        spawn(async move { drop(one.batch_execute("SELECT pg_advisory_lock(2)").await) }),
        spawn(async move { drop(two.batch_execute("SELECT pg_advisory_lock(1)").await) }),
    ];
    db.until_waiting(1).await;
    db.until_waiting(2).await;
    shows(6, &locks(&db, &[]).await.out);
    db.terminate(pid).await;
    for one in circle {
        one.await.unwrap();
    }
    db.until_no_locks().await;

    let held = holder(&db, "booking-service", &format!("BEGIN; {LOCK}")).await;
    let poll = "/*advisory:booking:<id>*/;SELECT pg_catalog.pg_try_advisory_xact_lock(42)";
    let polling = holder(&db, "web", poll).await;
    shows(7, &locks(&db, &[]).await.out);
    drop((held, polling));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poolers_situations_look_as_on_the_page() {
    let db = Database::create().await;
    let settings = "pool_mode = transaction\ndefault_pool_size = 1";
    let bouncer = pooler!(&db, settings);
    let pooled = bouncer.url(&db);
    let mut conn = AsyncPgConnection::establish(&pooled).await.unwrap();
    does(&mut conn, "SELECT pg_advisory_lock(42)").await;
    let said = locks_at(&pooled, &[]).await;
    shows(8, &said.out);
    does(&mut conn, "BEGIN").await;
    // The name of the database and the address differ.
    let since = Instant::now();
    let said = locks_at(&pooled, &[]).await.err;
    // Two seconds, and what a busy machine adds; the pooler itself would say so after two minutes.
    assert!(
        since.elapsed() < Duration::from_secs(6),
        "{:?}",
        since.elapsed()
    );
    let (_, why) = said.split_once(": the pooler").unwrap();
    let (_, rest) = why.split_once("` gives").unwrap();
    let wanted = screens(9)[0].split_once("` gives").unwrap().1;
    assert_eq!(shape(rest), shape(wanted));
    drop(conn);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_behind_a_pooler_looks_as_on_the_page() {
    let db = Database::create().await;
    let settings = "pool_mode = transaction\napplication_name_add_host = 1";
    let bouncer = pooler!(&db, settings);
    let held = holder(&db, "booking-service", &format!("BEGIN; {LOCK}")).await;
    let pooled = format!("{}?application_name=web", bouncer.url(&db));
    let waiting = spawn(async move {
        let mut conn = AsyncPgConnection::establish(&pooled).await.unwrap();
        does(&mut conn, LOCK).await;
    });
    db.until_waiting(42).await;
    shows(12, &locks(&db, &[]).await.out);
    drop(held);
    waiting.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_holders_lease_looks_as_on_the_page() {
    let db = Database::create().await;
    let table = Table::new().held_by("svc:14365@vm").unwrap();
    table.set_up(&mut db.connect().await).await.unwrap();
    let request = Request::rendered("webhook:<id>", "webhook:42".to_owned());
    orphan(db.url(), &table, request).await;
    db.run("UPDATE public.advisory_lease SET expires_at = clock_timestamp() + interval '12 s'")
        .await;
    let leased = leased("hook", "webhook:<id: uint>");
    let program = program_of("situations.rmeta", &[leased]);
    shows(10, &locks(&db, &["--artifact", &program]).await.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_workers_claim_looks_as_on_the_page() {
    let db = Database::create().await;
    db.run(
        "CREATE TABLE mail (id int PRIMARY KEY, locked_until timestamptz, locked_by text); \
         INSERT INTO mail VALUES (7, clock_timestamp() - interval '48 s', 'worker-3#9f0c')",
    )
    .await;
    let claim = ClaimRecord {
        table: "schema::mail".to_owned(),
        ..ClaimRecord::default()
    };
    let program = file("situations-claim.rmeta", format!("rust{}", claim.encode()));
    shows(11, &locks(&db, &["--artifact", &program]).await.out);
}
