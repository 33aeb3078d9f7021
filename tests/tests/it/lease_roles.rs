//! Leases in sessions of every kind: in test transactions, with few rights, timeouts, read-only, on
//! a standby.

use advisory_runtime::__private::lease::Steps as _;
use advisory_runtime::lease::{Error, Leases, Request, Table};
use advisory_tests::bookings::execute;
use advisory_tests::leases::{database, expire, key};
use advisory_tests::{BACKSLASH_ESCAPES, Database, OwnServer, left_out, owns_server};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(60);

/// Everything that a program does with leases, on one connection.
async fn everything(conn: &mut AsyncPgConnection) {
    let table = Table::new().with_text();
    for round in 0..2 {
        let lease = table.acquire(conn, key("k")).await.unwrap();
        let error = table.acquire(conn, key("k")).await.unwrap_err();
        assert!(error.is_held(), "{error:?}");
        assert!(table.renew(conn, &lease, TTL).await.unwrap());
        assert!(table.holds(conn, &lease).await.unwrap());
        let row = table.find(conn, Request::text("k")).await.unwrap().unwrap();
        assert_eq!((row.token, row.key.as_deref()), (lease.token(), Some("k")));
        assert_eq!(table.list(conn).await.unwrap().len(), 1);
        let fenced = conn.transaction(async |conn| lease.fence(conn).await);
        fenced.await.unwrap();
        if round == 0 {
            assert!(table.release(conn, &lease).await.unwrap());
            assert_eq!(table.find(conn, Request::text("k")).await.unwrap(), None);
        } else {
            assert!(table.keep(conn, &lease, TTL).await.unwrap());
            assert_eq!(table.list(conn).await.unwrap().len(), 1);
        }
    }
}

#[tokio::test]
async fn leases_work_in_full_in_a_test_transaction_and_leave_nothing() {
    let db = database().await;
    let mut conn = db.connect().await;
    conn.begin_test_transaction().await.unwrap();
    everything(&mut conn).await;
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
}

/// A pool of one connection, which is in a test transaction, like every further one that is opened.
fn test_pool(db: &Database) -> Pool<AsyncPgConnection> {
    let mut config = ManagerConfig::default();
    config.custom_setup = Box::new(|url| {
        Box::pin(async move {
            let mut conn = AsyncPgConnection::establish(url).await?;
            let begun = conn.begin_test_transaction().await;
            begun.map_err(diesel::ConnectionError::CouldntSetupConfiguration)?;
            Ok(conn)
        })
    });
    let manager = AsyncDieselConnectionManager::new_with_config(db.url(), config);
    Pool::builder(manager).max_size(1).build().unwrap()
}

#[tokio::test]
async fn a_test_transactions_lease_is_renewed_on_its_only_connection() {
    let db = database().await;
    let pool = test_pool(&db);
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
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert_eq!(leases.list().await.unwrap(), []);
    assert_eq!(pool.status().size, 1);
    assert_eq!(db.count("SELECT count(*) FROM advisory_lease").await, 0);
}

#[tokio::test]
async fn what_a_transaction_could_undo_is_refused_inside_one() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    let lease = table.acquire(&mut conn, key("k")).await.unwrap();
    let undone: Result<(), Error> = conn
        .transaction(async |conn| {
            let refused = [
                table.acquire(conn, key("other")).await.map(drop),
                table.renew(conn, &lease, TTL * 10).await.map(drop),
                table.keep(conn, &lease, TTL * 10).await.map(drop),
                table.release(conn, &lease).await.map(drop),
            ];
            for (call, refused) in refused.into_iter().enumerate() {
                let error = refused.expect_err(&call.to_string());
                assert!(matches!(error, Error::InTransaction { .. }), "{error:?}");
            }
            // A statement that only reads is not refused.
            assert!(table.holds(conn, &lease).await?);
            lease.fence(conn).await
        })
        .await;
    undone.unwrap();
    assert!(lease.is_held());
    assert!(lease.remaining() <= TTL, "a renewal that was undone");
    assert!(table.release(&mut conn, &lease).await.unwrap());
}

#[tokio::test]
async fn a_role_with_the_rights_of_the_migration_leases_in_full() {
    let db = database().await;
    // Roles belong to the whole server.
    let worker = format!("lease_worker_{}", std::process::id());
    db.run(&format!(
        "CREATE ROLE {worker}; GRANT SELECT, INSERT, UPDATE, DELETE ON advisory_lease TO {worker}; \
         GRANT USAGE, UPDATE ON SEQUENCE advisory_lease_token TO {worker}"
    ))
    .await;
    let mut conn = db.connect().await;
    conn.batch_execute(&format!("SET ROLE {worker}"))
        .await
        .unwrap();
    everything(&mut conn).await;
    conn.batch_execute("RESET ROLE").await.unwrap();
    db.run(&format!("DROP OWNED BY {worker}; DROP ROLE {worker}"))
        .await;
}

#[tokio::test]
async fn leases_work_in_full_whatever_the_sessions_settings_are() {
    let db = database().await;
    let mut conn = db.connect().await;
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
        conn.batch_execute(settings).await.unwrap();
        everything(&mut conn).await;
        expire(&db).await;
        conn.batch_execute("RESET ALL").await.unwrap();
    }
}

#[tokio::test]
async fn a_read_only_role_gets_an_error_that_says_so() {
    let db = database().await;
    let mut conn = db.connect().await;
    let table = Table::new();
    let lease = table.acquire(&mut conn, key("k")).await.unwrap();
    conn.batch_execute("SET default_transaction_read_only = on")
        .await
        .unwrap();
    let is_read_only = |error: &Error| {
        matches!(
            error,
            Error::Database(DieselError::DatabaseError(
                DatabaseErrorKind::ReadOnlyTransaction,
                _
            ))
        )
    };
    let error = table.acquire(&mut conn, key("other")).await.unwrap_err();
    assert!(is_read_only(&error), "{error:?}");
    let error = table.renew(&mut conn, &lease, TTL).await.unwrap_err();
    assert!(is_read_only(&error), "{error:?}");
    assert!(lease.is_held(), "it is held still");
    assert_eq!(table.list(&mut conn).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_standby_grants_and_renews_no_lease_and_shows_them() {
    if !owns_server() {
        return left_out("standby", "the server is not our own");
    }
    let server = OwnServer::start().await;
    let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
    let table = Table::new();
    table.set_up(&mut conn).await.unwrap();
    let lease = table.acquire(&mut conn, key("k")).await.unwrap();
    server.become_standby().await;
    let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
    for refused in [
        table.acquire(&mut conn, key("k")).await.map(drop),
        table.acquire(&mut conn, key("other")).await.map(drop),
        table.renew(&mut conn, &lease, TTL).await.map(drop),
        table.keep(&mut conn, &lease, TTL).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Standby { .. }), "{error:?}");
    }
    assert!(table.holds(&mut conn, &lease).await.unwrap());
    assert_eq!(table.list(&mut conn).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_wait_counts_for_the_pool_too_also_at_its_end() {
    let db = database().await;
    let mut other = db.connect().await;
    Table::new().acquire(&mut other, key("k")).await.unwrap();
    let pool = db.deadpool(1);
    // Opened before: the wait includes that time, and a slow machine also needs time for a try.
    drop(pool.get().await.unwrap());
    let leases = Leases::new(pool.clone());
    let wait = Duration::from_secs(3);
    let asked = tokio::spawn(async move { leases.acquire(Request::text("k").wait(wait)).await });
    db.until_empty(Duration::from_secs(30), "a try", UNTRIED)
        .await;
    // Refused, and afterwards the only connection is in use for a long time.
    let conn = pool.get().await.unwrap();
    let error = tokio::time::timeout(Duration::from_secs(30), asked).await;
    let error = error.expect("it waits for the pool forever").unwrap();
    let Err(Error::Held { waited, .. }) = error else {
        panic!("{error:?}");
    };
    assert!(waited >= wait, "{waited:?}");
    drop(conn);
}

const UNTRIED: &str = "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity \
    WHERE datname = current_database() AND state = 'idle' AND query LIKE '%WITH free AS%' OFFSET 1)";

#[tokio::test]
async fn bounds_beyond_all_time_are_none() {
    let db = database().await;
    let leases = Leases::new(db.deadpool(1));
    let request = Request::text("k")
        .max_hold(Duration::MAX)
        .wait(Duration::MAX);
    let mut held = leases.acquire(request).await.unwrap();
    held.run(async {}).await.unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    let mut conn = db.connect().await;
    let table = Table::new();
    let lease = table.acquire(&mut conn, key("k")).await.unwrap();
    for long in [Duration::MAX, Duration::from_secs(200_000 * 365 * 86_400)] {
        // Refused by the server, or as long as it reports.
        drop(table.renew(&mut conn, &lease, long).await);
        assert!(lease.is_held());
    }
    table.list(&mut conn).await.unwrap();
}
