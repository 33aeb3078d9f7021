//! Leases in sessions of every kind: in test transactions, with few rights, timeouts, read-only, on
//! a standby.

use advisory_runtime::lease::{Error, Leases, Request, Table};
use advisory_tests::bookings::{execute, run};
use advisory_tests::failover::{connect, primary};
use advisory_tests::futures::spawn;
use advisory_tests::leases::{
    BRIEF, Events, Pool, Role, database, expire, fence, finish, in_transaction, key, leases_at,
    once, until_renewed,
};
use advisory_tests::{BACKSLASH_ESCAPES, Database, assert_matches};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::{AsyncConnection, SimpleAsyncConnection};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(30);

/// Everything that a program does with leases, on connections of this pool.
async fn everything(pool: &Pool) {
    let table = Table::new().with_text();
    let leases = Leases::new(pool.clone()).table(table.clone());
    for request in [key("k"), key("k").keep(TTL)] {
        let held = leases.acquire(request.renew(BRIEF)).await.unwrap();
        let lease = held.lease();
        let error = once(&leases, key("k")).await.unwrap_err();
        assert!(error.is_held(), "{error:?}");
        until_renewed(lease).await;
        assert!(leases.holds(lease).await.unwrap());
        assert_eq!(leases.list().await.unwrap().len(), 1);
        let mut conn = pool.get().await.unwrap();
        let row = table.find(&mut conn, Request::text("k")).await;
        let row = row.unwrap().unwrap();
        assert_eq!((row.token, row.key.as_deref()), (lease.token(), Some("k")));
        fence(&mut conn, lease).await.unwrap();
        drop(conn);
        finish(held).await.unwrap();
    }
    let done = leases.list().await.unwrap().remove(0);
    assert!(done.is_done && done.key.is_none(), "its text is erased");
}

#[tokio::test]
async fn leases_work_in_full_in_a_test_transaction_and_leave_nothing() {
    let db = database().await;
    everything(&in_transaction(db.url(), true)).await;
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
}

#[tokio::test]
async fn a_test_transactions_lease_is_renewed_on_its_only_connection() {
    let db = database().await;
    let pool = in_transaction(db.url(), true);
    let leases = Leases::new(pool.clone());
    let request = key("k")
        .ttl(Duration::from_secs(20))
        .renew(Duration::from_millis(40));
    let mut held = leases.acquire(request).await.unwrap();
    let body = async {
        // While the body has the connection, no renewal reaches the row or reports it as lost.
        let mut conn = pool.get().await.unwrap();
        execute(&mut conn, "SELECT pg_sleep(0.3)").await.unwrap();
    };
    held.run(body).await.unwrap();
    finish(held).await.unwrap();
    assert_eq!(leases.list().await.unwrap(), []);
    assert_eq!(pool.status().size, 1);
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
}

#[tokio::test]
async fn what_a_transaction_could_undo_is_refused_inside_one() {
    let db = database().await;
    let (mut conn, table) = (db.connect().await, Table::new());
    let held = leases_at(db.url(), 1).acquire(key("k")).await.unwrap();
    let lease = held.lease();
    let undone: Result<(), Error> = conn
        .transaction(async |conn| {
            for (call, refused) in [
                table
                    .take_over(conn, key("k"), lease.token())
                    .await
                    .map(drop),
                table.set_data(conn, lease, Some("x")).await.map(drop),
                table.release(conn, lease).await.map(drop),
                table.sweep(conn).await.map(drop),
            ]
            .into_iter()
            .enumerate()
            {
                assert_matches!(
                    refused.expect_err(&call.to_string()),
                    Error::InTransaction { .. }
                );
            }
            lease.fence(conn).await
        })
        .await;
    undone.unwrap();
    let inside = Leases::new(in_transaction(db.url(), false));
    assert_matches!(
        once(&inside, key("other")).await,
        Err(Error::InTransaction { .. })
    );
    // A statement that only reads is not refused.
    assert!(inside.holds(lease).await.unwrap());
    assert!(lease.is_held());
    finish(held).await.unwrap();
}

#[tokio::test]
async fn a_role_with_the_rights_of_the_migration_leases_in_full() {
    let db = database().await;
    let role = Role::create(&db, "worker", "advisory_lease", "USAGE, UPDATE").await;
    everything(&Database::deadpool_at(&role.url, 1)).await;
    role.drop(&db).await;
}

#[tokio::test]
async fn leases_work_in_full_whatever_the_sessions_settings_are() {
    let db = database().await;
    let pool = db.deadpool(1);
    for settings in [
        "SET lock_timeout = '20ms'",
        "SET statement_timeout = '50s'; SET idle_in_transaction_session_timeout = '40s'",
        "SET synchronous_commit = 'off'",
        "SET synchronous_commit = 'local'",
        "SET synchronous_commit = 'remote_apply'",
        "SET datestyle = 'German, DMY'; SET intervalstyle = 'sql_standard'; SET timezone = 'Asia/Kathmandu'",
        "SET extra_float_digits = -15; SET bytea_output = 'escape'",
        BACKSLASH_ESCAPES,
        "SET quote_all_identifiers = on",
        "SET default_transaction_isolation = 'repeatable read'",
        "SET default_transaction_isolation = 'serializable'; SET default_transaction_deferrable = on",
        "SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_seqscan = off",
        "SET plan_cache_mode = force_generic_plan; SET jit = on; SET jit_above_cost = 0",
        "SET client_encoding = 'LATIN1'",
        "SET transform_null_equals = on; SET array_nulls = off",
    ] {
        let mut conn = pool.get().await.unwrap();
        conn.batch_execute("RESET ALL").await.unwrap();
        conn.batch_execute(settings).await.unwrap();
        drop(conn);
        everything(&pool).await;
        expire(&db).await;
    }
}

#[tokio::test]
async fn a_read_only_role_gets_an_error_that_says_so() {
    let db = database().await;
    let (pool, events) = (db.deadpool(1), Events::default());
    let leases = Leases::new(pool.clone()).observe(events.observer());
    let held = leases.acquire(key("k").renew(BRIEF)).await.unwrap();
    // The pool may replace a connection that answers late, so new ones are read-only too.
    db.set("default_transaction_read_only = on").await;
    let read_only = "SET default_transaction_read_only = on";
    run(&mut pool.get().await.unwrap(), read_only).await;
    let error = once(&leases, key("other")).await.unwrap_err();
    let is_read_only = matches!(
        error,
        Error::Database(DieselError::DatabaseError(
            DatabaseErrorKind::ReadOnlyTransaction,
            _
        ))
    );
    assert!(is_read_only, "{error:?}");
    events.until("RenewalFailed").await;
    assert!(held.lease().is_held(), "it is held still");
    assert_eq!(leases.list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_standby_grants_and_renews_no_lease_and_shows_them() {
    let Some(server) = primary().await else {
        return;
    };
    let (table, events) = (Table::new(), Events::default());
    let leases = leases_at(server.url(), 1).observe(events.observer());
    let held = leases.acquire(key("k").renew(BRIEF)).await.unwrap();
    server.become_standby().await;
    let mut conn = connect(&server).await;
    let lease = held.lease();
    events.until("RenewalFailed").await;
    assert!(lease.is_held());
    for refused in [
        once(&leases, key("k")).await.map(drop),
        once(&leases, key("other")).await.map(drop),
        table.set_data(&mut conn, lease, None).await.map(drop),
        table.release(&mut conn, lease).await.map(drop),
    ] {
        assert_matches!(refused, Err(Error::Standby { .. }));
    }
    assert!(leases.holds(lease).await.unwrap());
    assert_eq!(leases.list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_wait_counts_for_the_pool_too_also_at_its_end() {
    let db = database().await;
    let _held = leases_at(db.url(), 1).acquire(key("k")).await.unwrap();
    let pool = db.deadpool(1);
    // Opened before: the wait includes that time, and a slow machine also needs time for a try.
    drop(pool.get().await.unwrap());
    let leases = Leases::new(pool.clone());
    let wait = Duration::from_secs(3);
    let asked = spawn(async move { leases.acquire(Request::text("k").wait(wait)).await });
    db.until_some("a try", TRIED).await;
    // Refused, and afterwards the only connection is in use for a long time.
    let conn = pool.get().await.unwrap();
    let error = tokio::time::timeout(SOON, asked).await;
    let error = error.expect("it waits for the pool forever").unwrap();
    let Err(Error::Held { waited, .. }) = error else {
        panic!("{error:?}");
    };
    assert!(waited >= wait, "{waited:?}");
    drop(conn);
}

/// Two sessions have been idle since a try: the holder's, and the one that was refused.
const TRIED: &str = "SELECT FROM pg_stat_activity \
    WHERE datname = current_database() AND state = 'idle' AND query LIKE '%WITH free AS%' OFFSET 1";

#[tokio::test]
async fn bounds_beyond_all_time_are_none() {
    let db = database().await;
    let leases = leases_at(db.url(), 1);
    let request = Request::text("k")
        .max_hold(Duration::MAX)
        .wait(Duration::MAX);
    let mut held = leases.acquire(request).await.unwrap();
    held.run(async {}).await.unwrap();
    finish(held).await.unwrap();
}
