//! The lease table itself: its migration, its set-up, and other names.

use advisory_runtime::lease::{ADVISORY_LEASE_DOWN, ADVISORY_LEASE_UP, Error, Request, Table};
use advisory_tests::bookings::{execute, run};
use advisory_tests::leases::{
    FIRST, database, fence, finish, key, leases_at, once, orphan, until_renewed,
};
use advisory_tests::{Database, assert_matches};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::time::Duration;

#[tokio::test]
async fn the_migration_goes_up_and_down_and_up_again() {
    let db = Database::create().await;
    // A schema that comes before all others, and types of the same names in it.
    db.run("CREATE SCHEMA hostile; CREATE SEQUENCE hostile.advisory_lease_token")
        .await;
    for name in ["int8", "bytea", "timestamptz", "bool"] {
        db.run(&format!(
            "CREATE DOMAIN hostile.{name} AS text CHECK (false)"
        ))
        .await;
    }
    let (leases, mut conn) = (leases_at(db.url(), 1), db.connect().await);
    run(&mut conn, "SET search_path = hostile, public, pg_catalog").await;
    let left = "SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'advisory%' AND relnamespace = 'public'::regnamespace) \
                + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'advisory%')";
    for _ in 0..2 {
        for (side, is_up) in [(ADVISORY_LEASE_UP, true), (ADVISORY_LEASE_DOWN, false)] {
            // Like Diesel's harness.
            let ran = conn.transaction(async |conn| conn.batch_execute(side).await);
            ran.await.unwrap();
            if is_up {
                let token = once(&leases, key("k")).await.unwrap();
                assert_eq!(token.get(), FIRST + 1, "a new sequence");
            }
        }
        assert_eq!(db.count(left).await, 0);
    }
    assert_matches!(
        once(&leases, key("k")).await,
        Err(Error::MissingTable { .. })
    );
}

#[tokio::test]
async fn tables_of_other_names_are_key_spaces_of_their_own() {
    let db = database().await;
    db.run("CREATE SCHEMA locks; CREATE SCHEMA _1; CREATE SCHEMA \"select\"")
        .await;
    let longest = format!("locks.{}", "x".repeat(48));
    let mut conn = db.connect().await;
    for name in [
        "app_lease",
        "locks.advisory_lease",
        "select.table",
        "_1.x",
        &longest,
    ] {
        its_own(&db, &mut conn, name).await;
    }
}

async fn its_own(db: &Database, conn: &mut AsyncPgConnection, name: &str) {
    let table = Table::new().named(name).unwrap();
    let leases = leases_at(db.url(), 1).table(table.clone());
    assert_matches!(
        once(&leases, key("k")).await,
        Err(Error::MissingTable { .. })
    );
    conn.batch_execute(&table.up()).await.unwrap();
    let request = key("k").renew(Duration::from_millis(20));
    let held = leases.acquire(request).await.unwrap();
    let lease = held.lease().clone();
    assert!(once(&leases, key("k")).await.unwrap_err().is_held());
    let elsewhere = Table::new().find(conn, Request::text("k")).await;
    assert_eq!(elsewhere.unwrap(), None);
    until_renewed(&lease).await;
    fence(conn, &lease).await.unwrap();
    finish(held).await.unwrap();
    let quoted = name.replace('.', "\".\"");
    let deleted = execute(conn, &format!("DELETE FROM \"{quoted}\"")).await;
    deleted.unwrap();
    let next = once(&leases, key("k")).await.unwrap();
    assert!(next > lease.token(), "though its row is gone");
    conn.batch_execute(&table.down()).await.unwrap();
    let left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'x%' OR relname IN ('app_lease', 'table')";
    assert_eq!(db.count(left).await, 0);
    assert_eq!(
        db.count("SELECT count(*) FROM public.advisory_lease").await,
        0
    );
}

#[tokio::test]
async fn an_invalid_name_is_refused() {
    let long = "x".repeat(49);
    let schema = format!("{long}.a");
    let short = [
        "", ".", "a.", ".a", "a.b.c", "1a", "A", "a b", "a-b", "a\"b", "a'b", "é", "a;", "a\0",
        "a. b",
    ];
    for wrong in short.into_iter().chain([&*long, &*schema]) {
        let error = Table::new().named(wrong).expect_err(wrong);
        assert_matches!(error, Error::InvalidTable { .. });
    }
    for wrong in ["x".repeat(256), "a\0".to_owned()] {
        let error = Table::new().held_by(wrong).unwrap_err();
        assert_matches!(error, Error::InvalidHolder { .. });
        assert!(!error.to_string().contains("table"), "{error}");
    }
}

#[tokio::test]
async fn two_that_set_it_up_at_once_make_it_once() {
    let db = Database::create().await;
    let mut making = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let mut conn = db.connect().await;
        making.spawn(async move { Table::new().set_up(&mut conn).await });
    }
    for made in making.join_all().await {
        made.unwrap();
    }
    let lease = orphan(db.url(), &Table::new(), key("k")).await;
    let mut conn = db.connect().await;
    Table::new().set_up(&mut conn).await.unwrap();
    assert!(leases_at(db.url(), 1).holds(&lease).await.unwrap());
}
