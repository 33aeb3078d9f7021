//! A write under a fencing token: what it excludes, what runs concurrently, and when it is refused;
//! a token in a column of the user's own table.

use advisory_runtime::lease::{Error, FencingToken, Lease, Leases, Table};
use advisory_tests::bookings::{execute, run};
use advisory_tests::futures::spawn;
use advisory_tests::leases::{
    BRIEF, database, expire, fence, finish, key, leases_at, once, orphan, until_renewed,
};
use advisory_tests::settings::idle_bound;
use advisory_tests::{Database, assert_matches};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::BigInt;
use diesel::{ExpressionMethods, QueryDsl};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::time::Duration;

diesel::table! {
    report (id) {
        id -> Int8,
        state -> Text,
        token -> Int8,
        refused -> Nullable<Int8>,
    }
}

const TTL: Duration = Duration::from_secs(60);

async fn reports() -> Database {
    let db = database().await;
    db.run("CREATE TABLE report (id int8 PRIMARY KEY, state text NOT NULL, token int8 NOT NULL DEFAULT 0, refused int8); INSERT INTO report VALUES (7, 'new')")
        .await;
    db
}

async fn state(db: &Database) -> String {
    let mut conn = db.connect().await;
    let report = report::table.find(7).select(report::state);
    report.first(&mut conn).await.unwrap()
}

async fn publish(conn: &mut AsyncPgConnection, lease: &Lease, state: &str) -> usize {
    diesel::update(report::table.find(7))
        .filter(report::state.ne("withdrawn"))
        .filter(lease.is_current())
        .filter(report::id.gt(0))
        .set(report::state.eq(state))
        .execute(conn)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_condition_among_others_lets_only_the_holder_write() {
    let db = reports().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let old = orphan(db.url(), &table, key("k")).await;
    assert_eq!(publish(&mut a, &old, "first").await, 1);
    expire(&db).await;
    assert_eq!(publish(&mut a, &old, "expired").await, 0);
    let new = orphan(db.url(), &table, key("k")).await;
    assert_eq!(publish(&mut a, &old, "late").await, 0);
    assert_eq!(state(&db).await, "first");
    assert_eq!(publish(&mut b, &new, "second").await, 1);
    assert_eq!(state(&db).await, "second");
    assert_matches!(fence(&mut a, &old).await, Err(Error::Lost { .. }));
    assert!(!old.is_held());
    fence(&mut b, &new).await.unwrap();
    assert_matches!(new.fence(&mut b).await, Err(Error::NotInTransaction { .. }));
}

/// Both ways to write under a token.
async fn open_write(conn: &mut AsyncPgConnection, lease: &Lease, is_fence: bool) {
    if is_fence {
        lease.fence(conn).await.unwrap();
        run(conn, "UPDATE report SET state = 'fenced'").await;
    } else {
        assert_eq!(publish(conn, lease, "fenced").await, 1);
    }
}

#[tokio::test]
async fn renewals_pass_by_an_open_fenced_transaction() {
    let db = reports().await;
    let (mut writer, leases) = (db.connect().await, leases_at(db.url(), 1));
    for is_fence in [true, false] {
        let request = key("k").renew(BRIEF);
        let held = leases.acquire(request).await.unwrap();
        let lease = held.lease();
        let written = writer.transaction(async |writer| {
            open_write(writer, lease, is_fence).await;
            for _ in 1..=5 {
                until_renewed(lease).await;
                execute(writer, "UPDATE report SET state = 'longer'").await?;
            }
            // A second fence finds the renewed row.
            lease.fence(writer).await.unwrap();
            Ok::<_, DieselError>(())
        });
        written.await.unwrap();
        assert!(lease.is_held());
        finish(held).await.unwrap();
    }
    assert_eq!(state(&db).await, "longer");
}

#[tokio::test]
async fn a_key_is_busy_only_while_a_fenced_transaction_is_open() {
    let db = reports().await;
    let (mut writer, mut conn) = (db.connect().await, db.connect().await);
    // A statement that waits for a row's lock fails, and the test with it.
    let pool = db.deadpool(1);
    let leases = Leases::new(pool.clone());
    run(&mut pool.get().await.unwrap(), "SET lock_timeout = '10s'").await;
    let table = Table::new();
    for (is_fence, is_released) in [(true, false), (true, true), (false, false), (false, true)] {
        let lease = orphan(db.url(), &table, key("k")).await;
        let written = writer.transaction(async |writer| {
            open_write(writer, &lease, is_fence).await;
            if is_released {
                assert!(table.release(&mut conn, &lease).await.unwrap());
            } else {
                expire(&db).await;
            }
            for _ in 0..3 {
                assert_matches!(once(&leases, key("k")).await, Err(Error::Held { .. }));
            }
            Ok::<_, DieselError>(())
        });
        written.await.unwrap();
        assert!(once(&leases, key("k")).await.unwrap() > lease.token());
    }
}

#[tokio::test]
async fn a_fence_under_an_old_snapshot_is_a_serialization_failure() {
    let db = reports().await;
    let (mut writer, mut conn) = (db.connect().await, db.connect().await);
    let leases = leases_at(db.url(), 1);
    let held = leases.acquire(key("k").renew(BRIEF)).await.unwrap();
    let lease = held.lease();
    let mut strict = writer.build_transaction().repeatable_read();
    let passed = strict.run(async |writer| {
        execute(writer, "SELECT 1").await?;
        until_renewed(lease).await;
        lease.fence(writer).await
    });
    passed.await.unwrap();
    let mut strict = writer.build_transaction().repeatable_read();
    let refused = strict.run(async |writer| {
        execute(writer, "SELECT 1").await?;
        assert!(Table::new().release(&mut conn, lease).await.unwrap());
        orphan(db.url(), &Table::new(), key("k")).await;
        lease.fence(writer).await
    });
    let error = refused.await.unwrap_err();
    assert_matches!(
        error,
        Error::Database(DieselError::DatabaseError(
            DatabaseErrorKind::SerializationFailure,
            _
        ))
    );
}

/// A write that was suspended between its snapshot and its condition, while the lease ended and
/// went to another process.
#[tokio::test]
async fn a_delayed_write_detects_a_newer_grant() {
    let db = reports().await;
    db.run(
        "CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$; \
         CREATE TRIGGER hold_up BEFORE UPDATE ON report FOR EACH STATEMENT EXECUTE FUNCTION hold_up(); \
         SELECT pg_advisory_lock(7)",
    )
    .await;
    let (mut writer, mut conn) = (db.connect().await, db.connect().await);
    let table = Table::new();
    let old = orphan(db.url(), &table, key("k")).await;
    let late = spawn({
        let old = old.clone();
        async move { publish(&mut writer, &old, "late").await }
    });
    db.until_waiting(7).await;
    assert!(table.release(&mut conn, &old).await.unwrap());
    orphan(db.url(), &table, key("k")).await;
    db.run("SELECT pg_advisory_unlock(7)").await;
    assert_eq!(late.await.unwrap(), 0);
    assert_eq!(state(&db).await, "new");
}

#[tokio::test]
async fn a_fence_bounds_idle_time_by_the_lease_and_raises_no_bound() {
    let db = reports().await;
    let mut conn = db.connect().await;
    // Every bound is long enough not to end the session of a slow client.
    let lease = orphan(db.url(), &Table::new(), key("k").ttl(TTL * 10)).await;
    for style in ["postgres", "postgres_verbose", "sql_standard", "iso_8601"] {
        run(&mut conn, &format!("SET intervalstyle = '{style}'")).await;
        for (own, is_kept) in [
            ("0", false),
            ("20500ms", true),
            ("90s", true),
            ("2min", true),
            ("20min", false),
            ("3h", false),
            ("5d", false),
        ] {
            let set = format!("SET idle_in_transaction_session_timeout = '{own}'");
            run(&mut conn, &set).await;
            let before = idle_bound(&mut conn).await;
            let bound = conn.transaction(async |conn| {
                lease.fence(conn).await?;
                Ok::<_, Error>(idle_bound(conn).await)
            });
            let bound = bound.await.unwrap();
            if is_kept {
                assert_eq!(bound, before, "{style}: {own}");
            } else {
                let left = 300_000..=600_000;
                assert!(left.contains(&bound), "{style}: {own} became {bound}");
            }
            let after = idle_bound(&mut conn).await;
            assert_eq!(after, before, "to the transaction's end");
        }
    }
}

#[tokio::test]
async fn a_token_is_bound_and_compared_as_a_bigint() {
    let db = reports().await;
    let mut conn = db.connect().await;
    let leases = Leases::in_memory();
    let older = once(&leases, key("a")).await.unwrap();
    let newer = once(&leases, key("b")).await.unwrap();
    let tokens = (report::token.eq(newer), report::refused.eq(older));
    let update = diesel::update(report::table).set(tokens);
    update.execute(&mut conn).await.unwrap();
    // As storage that has seen a token refuses an older one.
    let written = async |conn: &mut AsyncPgConnection, token: FencingToken| {
        let current = report::table.filter(report::token.le(token));
        let update = diesel::update(current).set(report::token.eq(token));
        update.execute(conn).await.unwrap()
    };
    assert_eq!(written(&mut conn, older).await, 0);
    assert_eq!(written(&mut conn, newer).await, 1);
    let by_sql = diesel::sql_query("UPDATE report SET token = $1 WHERE token = $1");
    let by_sql = by_sql.bind::<BigInt, _>(newer).execute(&mut conn).await;
    assert_eq!(by_sql.unwrap(), 1);
}
